/* /admin/session: a browser signs in with a key, is told who it is, and signs out. */
#pragma once

#include "admin/request.h"

/* `is_secure`: the cookie is for TLS alone. */
void session_answer(struct request *request, struct access *access, struct json_arena *arena,
		    int is_secure);

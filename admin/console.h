/* The files of the console (console/), which browsers get from coupon-admin. */
#pragma once

#include <event2/http.h>

/* Whether the path is that of a file: then GET and HEAD are answered. */
int console_answer(struct evhttp_request *request, const char *path);

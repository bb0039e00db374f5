/* From the text of a request to the request. */
#pragma once

#include "common/message/json.h"
#include "gateway/listen/request.h"

/*
 * Parses a request's object. `op` is OP_COUNT when the object itself must name it (socket), else
 * the operation that the path named (HTTP). The responder's key, which is valid, is another
 * spelling of the member; operations without that member do not look at it. Returns the new
 * request, or NULL after the error was sent to the responder (which counts it as answered).
 */
struct request *request_parse(struct json_arena *arena, const char *text, size_t len,
			      enum request_op op, struct responder *responder);

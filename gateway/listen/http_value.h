/*
 * What clients write into headers and paths, each by the specification that defines it. The texts
 * are arbitrary bytes; each function reads them once, from left to right, and keeps nothing.
 */
#pragma once

#include "common/message/receive.h"

#include <stddef.h>

/*
 * Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): a string of RFC 9651, in quotes and
 * without parameters, or bare, as most clients send it. 0 and the key with its NUL; -1: it is no
 * key of the protocol.
 */
int http_key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1]);

enum http_accept {
	ACCEPT_JSON,    /* also for what is not done */
	ACCEPT_PROBLEM, /* for what is not done: application/problem+json of RFC 9457 */
	ACCEPT_NEITHER
};

/*
 * Accept (RFC 9110, 12.5.1). Problems must be named, or be wanted more than JSON. Parameters beside
 * `q` are not looked at, and what is malformed allows nothing.
 */
enum http_accept http_accept_parse(const char *text, size_t len);

/*
 * A segment of a path, percent-decoded once, with its NUL. Returns the length; -1: a % without two
 * hexadecimal digits, NUL, or more than `room` - 1 bytes.
 */
int http_segment_decode(const char *text, size_t len, char *out, size_t room);

/*
 * The destination of replies: a connection of the socket API or an HTTP exchange. It does not
 * depend on requests, because a line that cannot be parsed is answered too.
 */
#ifndef GATEWAY_LISTEN_RESPONDER_H
#define GATEWAY_LISTEN_RESPONDER_H

#include "common/message/answer.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded by its implementations. One thread. */
struct responder {
	/* Takes one reply line (without its end) and counts the request as answered. */
	void (*reply)(struct responder *responder, enum answer answer, const char *line,
		      size_t len);
	uint64_t peer;             /* whose connection it is (peer.h) */
	int64_t codes_wrong_by_us; /* attempts.h */
};

/*
 * Replies with `id` (as JSON; empty: none), code, status (NULL: the answer's own) and the members
 * of `object`. Takes the object; NULL is allowed.
 */
void responder_object(struct responder *responder, const char *id, enum answer answer,
		      const char *status, cJSON *object);

/* Replies with a code and a sentence; NULL: the code's own text. */
void responder_fail(struct responder *responder, const char *id, enum answer answer,
		    const char *message);

#endif

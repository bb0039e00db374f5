/*
 * Where requests of every kind of client come in: parsed, counted, refused with busy beyond the
 * limit, and handed on. The responder's reply function calls front_answered() for each reply.
 */
#ifndef GATEWAY_LISTEN_DISPATCH_H
#define GATEWAY_LISTEN_DISPATCH_H

#include "gateway/listen/reply.h"

struct front;

typedef void front_dispatch_fn(void *context, struct request *request);

struct front *front_new(size_t inflight_max, front_dispatch_fn *dispatch, void *context);
void front_free(struct front *front);

/*
 * Takes one request's text; exactly one reply follows, now or later. `op` as request_parse. `busy`:
 * the connection is at a limit of its own, so that the request is only parsed, for its id, and
 * refused.
 */
void front_request(struct front *front, const char *text, size_t len, enum request_op op,
		   struct responder *responder, int busy);
/* The same for a request that was never parsed, for instance for its length. */
void front_refuse(struct front *front, struct responder *responder, enum answer answer,
		  const char *message);

void front_answered(struct front *front, enum answer answer);
size_t front_inflight(const struct front *front);

#endif

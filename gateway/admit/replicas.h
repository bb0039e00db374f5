/*
 * COUPON_REDIS_REPLICAS: what Redis has decided is answered when so many replicas have it.
 *
 * One connection of the process writes one key, sends WAIT, and looks at the offset of each
 * replica. That releases every answer that was read from the same process of Redis before the write
 * was sent, since Redis replicates in order: all replicas that are online, may be promoted and have
 * what was answered before must have it, and so many at least. After a round that ends in vain
 * nothing is issued until one succeeds. Event-loop thread only.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/request.h"

#include <event2/event.h>

struct replicas;

/* NULL if the setting is 0. */
struct replicas *replicas_new(struct event_base *base, const struct config *config);

/*
 * Answers later what was read now from the process with this run id: with the result, or `unknown`
 * with the same receive if too few replicas have got it in time. NULL or "": `unknown` too.
 */
void replicas_hold(struct replicas *replicas, const char *run_id, struct request *request,
		   const struct result *result);
/*
 * Answers later with an object, which it takes, or with `unavailable` if too few replicas have got
 * what was read.
 */
void replicas_hold_object(struct replicas *replicas, const char *run_id, struct request *request,
			  const char *status, cJSON *object);

/* Calls `done` later with whether enough replicas have what was read now. */
typedef void replicas_done_fn(void *context, int is_replicated);
void replicas_hold_call(struct replicas *replicas, const char *run_id, replicas_done_fn *done,
			void *context);

/* NULL if enough replicas have what was written last, as far as is known, else the reason. */
const char *replicas_trouble(const struct replicas *replicas);

/* To be called once at the end of every loop turn, and once in a while. */
void replicas_flush(struct replicas *replicas);

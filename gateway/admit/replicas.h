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

/* What waits until replicas have what was read from Redis: one of the three. */
struct held {
	struct request *request;

	/* The request's answer; `unknown` with the same receive if too few have it in time. */
	struct result result;

	/* Or an object, which is taken over, and its status; `unavailable` if too few have it. */
	cJSON *object;
	const char *status;

	/* Or a call, without a request. */
	void (*done)(void *context, int is_replicated);
	void *context;
};

/*
 * Holds back what was read now from the process with this run id, and copies `held`. NULL or "": it
 * ends as if no replica had it.
 */
void replicas_hold(struct replicas *replicas, const char *run_id, const struct held *held);

/* NULL if enough replicas have what was written last, as far as is known, else the reason. */
const char *replicas_trouble(const struct replicas *replicas);

/* To be called once at the end of every loop turn, and once in a while. */
void replicas_flush(struct replicas *replicas);

/*
 * Reads API keys from both stores as their watch says: each store by itself, twice a second and
 * when PostgreSQL notifies of a change, and what a question needs (common/api_key_watch.h).
 * Event-loop thread only.
 */
#pragma once

#include "common/api_key_watch.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/listen/intake.h"
#include "gateway/read/lookup.h"

struct key_records {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct intake *intake; /* is told of changes, and of the end of questions */
	struct key_watch *watch;

	struct key_look of_redis, of_rows, question; /* its own */
};

/* Initializes its own members; the others are set. From now on it is told of changes. */
void key_records_init(struct key_records *records);
/* Begins the looks that are due. Many notices come at once: several times a second is enough. */
void key_records_tick(struct key_records *records);
/* Asks what is to be asked; once a turn of the loop. */
void key_records_flush(struct key_records *records);

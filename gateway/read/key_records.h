/*
 * Reads API keys from both stores: whether there is something new, twice a second and when
 * PostgreSQL notifies of a change, and then what. Each store tells what it has; the gate believes
 * the higher version of each record. A store that is behind the other, because it was put back or
 * has lost its data, tells nothing final. Event-loop thread only.
 */
#pragma once

#include "gateway/admit/redis_pool.h"
#include "gateway/gate/gate.h"
#include "gateway/listen/intake.h"
#include "gateway/read/lookup.h"

struct key_records {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct gate *gate;
	struct intake *intake; /* is told that keys have changed */

	/* Its own. */
	int64_t redis_version, lookup_version; /* up to which each has told; 0: nothing */
	int64_t due_ms;
	int is_asking_redis, is_asking_lookup;
};

/* Of the other fields, which are set: from now on it is told of changes. */
void key_records_init(struct key_records *records);

/* Not while Redis and PostgreSQL belong to different installations. */
void key_records_tick(struct key_records *records, int64_t now_ms);

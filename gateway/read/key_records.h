/*
 * Reads API keys from both stores: whether there is something new, twice a second and when
 * PostgreSQL notifies of a change, and then what. Each store tells what it has; the gateway
 * believes the higher version of each record. A store that is behind the other, because it was put
 * back or has lost its data, tells nothing final. Event-loop thread only.
 */
#pragma once

#include "gateway/admit/redis_pool.h"
#include "gateway/auth/auth.h"
#include "gateway/listen/intake.h"
#include "gateway/read/lookup.h"

struct key_look {
	struct key_records *records;
	int is_question; /* by key_records_ask() */
};

struct key_records {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct auth *auth;
	struct intake *intake; /* is told that keys have changed */

	/* Its own. */
	int64_t redis_version, lookup_version; /* up to which each has told; 0: nothing */
	int64_t due_ms;
	int is_asking_redis, is_asking_lookup;
	uint64_t asked_n; /* questions by key_records_ask(); the last one has not ended: is_asked */
	uint64_t told_n;  /* the last one that a store has answered to the end */
	int is_asked, is_asked_again;
	struct key_look look, question;
};

/* Initializes its own members; the others are set. From now on it is told of changes. */
void key_records_init(struct key_records *records);

/*
 * Asks the stores for what is new, without waiting for the next look. Returns the number of the
 * question, whose end intake_keys_told() gets, never within the call. However many ask, one
 * question is under way at a time, and those who ask meanwhile share the next one.
 * `context`: the records.
 */
uint64_t key_records_ask(void *context);
/* Sends it; once a turn of the loop. `may_ask` 0: the stores are of different installations. */
void key_records_flush(struct key_records *records, int may_ask);

/* Not while Redis and PostgreSQL belong to different installations. */
void key_records_tick(struct key_records *records, int64_t now_ms);

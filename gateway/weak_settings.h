/*
 * Reads the durability settings of Redis and PostgreSQL over each new connection, and once a
 * minute.
 * Event-loop thread only.
 */
#ifndef GATEWAY_WEAK_SETTINGS_H
#define GATEWAY_WEAK_SETTINGS_H

#include "common/program/durability.h"
#include "gateway/read/lookup.h"
#include "gateway/read/redis_query.h"

struct weak_settings {
	struct redis_pool *redis;
	struct lookup *lookup;

	/* Its own. */
	struct durability durability;
	uint64_t redis_connects; /* that were read over */
	uint64_t lookup_connects;
	int64_t redis_due_ms; /* read again */
	int64_t lookup_due_ms;
};

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms);

/* For readyz: an array of sentences, empty when nothing is weak. */
cJSON *weak_settings_json(const struct weak_settings *settings);

#endif

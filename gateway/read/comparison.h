/*
 * Compares the numbers of PostgreSQL with their copy in Redis (common/changes.h), over each new
 * connection to PostgreSQL: it may have been put back to an earlier moment, and what it says then
 * is not final. The comparison is repeated, often while PostgreSQL is behind, since a worker may
 * copy the number of a COMMIT a while after it, and a pooler may replace PostgreSQL behind a
 * connection that stays. Event-loop thread only.
 */
#ifndef GATEWAY_READ_COMPARISON_H
#define GATEWAY_READ_COMPARISON_H

#include "common/changes.h"
#include "gateway/read/lookup.h"
#include "gateway/read/redis_query.h"

struct comparison {
	struct redis_pool *redis;
	struct lookup *lookup;

	/* Its own. */
	struct changes copy;
	uint64_t connects; /* the connections to PostgreSQL that are compared, or were */
	int is_asking;
	int64_t due_ms; /* the next comparison */
};

void comparison_tick(struct comparison *comparison, int64_t now_ms);

/* Whether a connection waits for its first comparison. */
int comparison_is_due(const struct comparison *comparison);

#endif

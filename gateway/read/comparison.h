/*
 * Compares the numbers of PostgreSQL with their copy in Redis (common/changes.h), over each new
 * connection to PostgreSQL: it may have been put back to an earlier moment, and what it does not
 * have proves nothing then. The comparison is repeated, often while PostgreSQL is behind, since a
 * worker may copy the number of a COMMIT a while after it. Event-loop thread only.
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
	uint64_t connects; /* the connection to PostgreSQL that is compared, or was */
	int is_asking;
	int is_equal;
	int is_behind;
	int64_t due_ms; /* the next comparison */
};

void comparison_tick(struct comparison *comparison, int64_t now_ms);

/* Whether PostgreSQL has all that it had, as far as it can be known now. */
int comparison_is_good(const struct comparison *comparison);
/* NULL, or why it is not. */
const char *comparison_trouble(const struct comparison *comparison);

#endif

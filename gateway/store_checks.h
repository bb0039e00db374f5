/*
 * What the gateway checks of the stores, over each new connection and once in a while: whether
 * PostgreSQL and Redis belong together, whether they keep what they are told, and whether Redis has
 * the batches that RabbitMQ has not confirmed. Event-loop thread only.
 */
#pragma once

#include "common/changes.h"
#include "common/program/weak_settings.h"
#include "coupon/copies.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/admit/replicas.h"
#include "gateway/read/lookup.h"

/*
 * Compares the numbers of PostgreSQL with their copy in Redis (common/changes.h), over each new
 * connection to PostgreSQL: it may have been put back to an earlier moment, and what it says then
 * is not final. The comparison is repeated, often while PostgreSQL is behind, since a worker may
 * copy the number of a COMMIT a while after it, and a pooler may replace PostgreSQL behind a
 * connection that stays.
 *
 * With the numbers goes the id of the installation. Where they differ, PostgreSQL says nothing
 * about what Redis has. The first comparison of a gateway looks at the id in Redis more often, also
 * while PostgreSQL is away: a Redis that has lost its data gets the id from those who knew it
 * before, not from whoever comes first.
 */
struct comparison {
	struct redis_pool *redis;
	struct lookup *lookup;
	int is_first; /* the first of the gateway adopts, and logs */

	/* Private. */
	struct changes copy;
	char installation[INSTALLATION_SIZE]; /* PostgreSQL's, as last read; empty: never */
	enum relation relation;
	uint64_t connects;       /* the connections to PostgreSQL that are compared, or were */
	uint64_t redis_connects; /* the connections to Redis over which `copy` was read */
	uint64_t asked_connects;
	int is_asking;
	int is_look;      /* only Redis is asked */
	int64_t due_ms;   /* the next comparison */
	int64_t look_ms;  /* the next look */
	int64_t adopt_ms; /* Redis may be adopted from then on */
};

void comparison_tick(struct comparison *comparison, int64_t now_ms);

/* Whether a connection waits for its first comparison. */
int comparison_is_due(const struct comparison *comparison);
/*
 * Whether Redis may be told of accepted receives: it does not belong to another installation, as
 * read over the present connection.
 */
int comparison_allows_telling(const struct comparison *comparison);

/* Reads the settings that promises depend on, over each new connection and once a minute. */
struct weak_settings {
	struct redis_pool *redis;
	int has_sentinels;
	struct lookup *lookup;

	/* Private. */
	struct durability durability;
	struct {
		uint64_t connects; /* that were read over */
		int64_t due_ms;    /* read again */
	} parts[2];                /* by enum durability_part */
};

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms);

/*
 * Asks Redis which unconfirmed batches it has in the outbox, and writes those again that it has
 * lost (coupon/copies.h). What Redis alone has counts when its replicas have it.
 */
struct outbox_copies {
	struct redis_pool *redis;
	struct replicas *replicas;           /* NULL: none are waited for */
	const struct comparison *comparison; /* whether Redis may be asked and told */
	struct copies *copies;               /* its own */
};

/* The parts are lent. */
struct copies *outbox_copies_new(struct outbox_copies *outbox);

#include "gateway/read/comparison.h"

#include "common/clock.h"
#include "common/log/log.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 500
#define AGAIN_EQUAL_MS 5000
#define LOOK_MS 200      /* between two looks at the id in Redis */
#define CLAIM_NEW_MS 500 /* a gateway that has just learnt its id leaves Redis to others */

static void relation_set(struct comparison *comparison)
{
	struct changes own = { .num = { 0 } };
	int was_foreign = comparison->relation == RELATION_FOREIGN;

	memcpy(own.installation, comparison->installation, INSTALLATION_SIZE);
	comparison->relation = changes_relate(comparison->relation, &own, &comparison->copy);
	if (comparison->relation == RELATION_FOREIGN) {
		lookup_trust(comparison->lookup, LOOKUP_FOREIGN);
		if (!was_foreign)
			comparison->due_ms = 0; /* PostgreSQL may have got another id, too */
		if (!was_foreign && comparison->is_first)
			log_error("installation_differs",
				  LOG_S("postgresql", comparison->installation),
				  LOG_S("redis", comparison->copy.installation),
				  LOG_S("why", RELATION_FOREIGN_TEXT "; nothing is issued"),
				  LOG_S("mend", "correct DATABASE_URL or REDIS_URL, or see "
						"couponctl installation"));
	} else if (was_foreign) {
		if (comparison->is_first)
			log_info("installation_agrees",
				 LOG_S("installation", comparison->installation));
		comparison->due_ms = 0;
	}
}

static void on_rows(void *context, const PGresult *rows)
{
	struct comparison *comparison = context;
	struct changes changes;
	int is_behind;

	comparison->is_asking = 0;
	if (!rows || comparison_is_due(comparison))
		return;
	changes_take(&changes, rows);
	if (strcmp(changes.installation, comparison->installation) != 0) {
		memcpy(comparison->installation, changes.installation, INSTALLATION_SIZE);
		comparison->claim_ms = clock_monotonic_ms() + CLAIM_NEW_MS;
	}
	relation_set(comparison);
	if (comparison->relation == RELATION_FOREIGN)
		return;
	is_behind = changes_behind(&changes, &comparison->copy) > 0;
	if (!is_behind)
		comparison->due_ms = clock_monotonic_ms() + AGAIN_EQUAL_MS;
	lookup_trust(comparison->lookup, is_behind ? LOOKUP_PUT_BACK : LOOKUP_TRUSTED);
}

static void on_claim(void *context, const redisReply *reply)
{
	const struct comparison *comparison = context;

	if (reply && reply->type == REDIS_REPLY_STRING &&
	    changes_replied(reply->str) == RELATION_OWN)
		log_info("installation_claimed", LOG_S("installation", comparison->installation));
}

/* Redis has lost its data, the id too. It gets back the one that PostgreSQL had before that. */
static void claim_step(struct comparison *comparison, int64_t now_ms)
{
	if (comparison->is_first && comparison->relation == RELATION_UNCLAIMED &&
	    now_ms >= comparison->claim_ms)
		redis_query_claim(comparison->redis, comparison->installation, on_claim,
				  comparison);
}

static void on_copy(void *context, const redisReply *reply)
{
	struct comparison *comparison = context;
	int64_t now_ms = clock_monotonic_ms();

	comparison->is_asking = 0;
	if (!reply || changes_copy_take(&comparison->copy, reply))
		return;
	comparison->redis_connects = comparison->asked_connects;
	relation_set(comparison);
	claim_step(comparison, now_ms);
	if (!comparison->is_look)
		comparison->is_asking = lookup_changes(comparison->lookup, on_rows, comparison) ==
					0;
}

int comparison_is_due(const struct comparison *comparison)
{
	return comparison->connects != lookup_connects_n(comparison->lookup);
}

/* First the copy: it must not be newer than what it is compared with. */
void comparison_tick(struct comparison *comparison, int64_t now_ms)
{
	int is_compared = lookup_is_connected(comparison->lookup) &&
			  (comparison_is_due(comparison) || now_ms >= comparison->due_ms),
	    is_look = comparison->is_first &&
		      (now_ms >= comparison->look_ms ||
		       comparison->redis_connects != redis_pool_connects(comparison->redis));

	if (comparison->is_asking || redis_pool_trouble(comparison->redis) ||
	    (!is_compared && !is_look))
		return;
	comparison->look_ms = now_ms + LOOK_MS;
	comparison->asked_connects = redis_pool_connects(comparison->redis);
	comparison->is_look = !is_compared;
	if (is_compared) {
		comparison->connects = lookup_connects_n(comparison->lookup);
		comparison->due_ms = now_ms + AGAIN_MS;
	}
	comparison->is_asking = 1;
	redis_query_changes(comparison->redis, on_copy, comparison);
}

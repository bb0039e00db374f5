#include "keeper/use_upkeep.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/use.h"
#include "common/redis/redis_client.h"
#include "embed.h"
#include "keeper/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREED_MOST 2000 /* a round */
#define FORGOTTEN_MOST 10000
#define DUE_MOST 100
#define LIST_STEPS 32
#define PAGE 1000            /* of the list */
#define LOOK_RECORDS "-4000" /* of the end of the list: workers add in another order, and copies */
#define LOOK_MS 15000        /* for workers to add what they have not acked */

static const char *const keys[] = { CHANGES_KEY, CHANGES_USES_KEY };

/* Runs lua/uses_fill.lua. */
static void fill(const struct use_upkeep *upkeep, struct keeper_context *context, const char *from,
		 const char *to, const PGresult *rows, char word[REDIS_WORD_SIZE])
{
	const char *argv[4 + PAGE];
	char bytes[NUMBER_SIZE];
	int n = 4;

	argv[0] = context->run_id;
	argv[1] = from;
	argv[2] = to;
	argv[3] = number_text(upkeep->keep_bytes, bytes);
	for (int row = 0; row < PQntuples(rows); row++)
		argv[n++] = PQgetvalue(rows, row, 1);
	redis_word_take(redis_client_eval(context->redis, lua_uses_fill, 2, keys, n, argv), word);
}

static int number_compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Whether the list ends with the latest operations of PostgreSQL; -1: a store has failed. */
static int is_whole(struct keeper_context *context)
{
	const char *lrange[] = { "LRANGE", CHANGES_USES_KEY, LOOK_RECORDS, "-1" };
	PGresult *rows = keeper_database_query(context->database, sql_query_uses_latest, 0, NULL);
	int64_t *numbers;
	redisReply *reply;
	size_t n;
	int is = 1;

	if (!rows)
		return -1;
	reply = redis_client_call(context->redis, 4, lrange);
	if (!reply) {
		PQclear(rows);
		return -1;
	}
	n = reply->elements;
	numbers = checked(calloc(n + 1, sizeof(*numbers)));
	for (size_t i = 0; i < n; i++)
		sscanf(reply->element[i]->str, "[1, %" SCNd64 ",", &numbers[i]);
	qsort(numbers, n, sizeof(*numbers), number_compare);
	for (int row = 0; row < PQntuples(rows); row++) {
		int64_t number = number_at(rows, row, 0);

		is &= bsearch(&number, numbers, n, sizeof(number), number_compare) != NULL;
	}
	free(numbers);
	freeReplyObject(reply);
	PQclear(rows);
	return is;
}

/* Looks at the list in a process of Redis that is new, and fills it. */
static int look(struct use_upkeep *upkeep, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();
	char word[REDIS_WORD_SIZE];
	int is = is_whole(context);

	if (is < 0)
		return keeper_context_usable(context);
	if (strcmp(upkeep->look_run_id, context->run_id) != 0) {
		memcpy(upkeep->look_run_id, context->run_id, REDIS_RUN_ID_SIZE);
		upkeep->look_ms = now_ms;
	}
	if (!is && now_ms - upkeep->look_ms < LOOK_MS)
		return 0;
	if (!is)
		log_warn("uses_lost", LOG_S("why", "Redis has lost records of uses of receives"),
			 LOG_S("mend", "the keeper fills them in again from PostgreSQL"));
	*upkeep->look_run_id = '\0';
	fill(upkeep, context, is ? "keep" : "begin", "0", NULL, word);
	fault_point(FAULT_KEEPER_BEFORE_FILL);
	return strcmp(word, "ok") == 0 ? 1 : keeper_context_failed(context);
}

/* The next page, below this number. */
static int page_fill(struct use_upkeep *upkeep, struct keeper_context *context, const char *from)
{
	char word[REDIS_WORD_SIZE], to[NUMBER_SIZE] = "0";
	int64_t before = strtoll(from, NULL, 10);
	PGresult *rows = keeper_database_query(context->database, sql_query_uses_page,
					       POSTGRES_ARGUMENTS(postgres_number(before),
								  postgres_number(USE_KEEP_S),
								  postgres_number(PAGE)));
	int n = PQntuples(rows);

	if (!rows)
		return keeper_context_usable(context);
	if (n == PAGE)
		number_text(number_at(rows, n - 1, 0), to);
	fill(upkeep, context, from, to, rows, word);
	fault_point(FAULT_KEEPER_FILLING);
	PQclear(rows);
	if (strcmp(word, "moved") == 0 || (strcmp(word, "ok") == 0 && n == PAGE))
		return 1;
	if (!*word)
		return keeper_context_failed(context);
	log_info("uses_filled", LOG_S("run_id", context->run_id));
	return 0;
}

/* Keeps the list in Redis. 1: more is to be done; 0: nothing now; -1: the round is over. */
static int list_step(struct use_upkeep *upkeep, struct keeper_context *context)
{
	char keep_ms[NUMBER_SIZE];
	const char *argv[] = { number_text(USE_KEEP_S * 1000, keep_ms) };
	const char *hmget[] = { "HMGET", CHANGES_KEY, "uses_run", "uses_from" };
	const char *run_id, *from;
	redisReply *reply = redis_client_eval(context->redis, lua_uses_trim, 2, keys, 1, argv);
	int is_trimmed, rc = 0;

	if (!reply)
		return keeper_context_failed(context);
	is_trimmed = reply->element[0]->integer == 0;
	metrics_set(KEEPER_METRIC_USES_BYTES, reply->element[1]->integer);
	metrics_set(KEEPER_METRIC_USES_COVERED, reply->element[2]->integer);
	freeReplyObject(reply);
	if (!is_trimmed)
		return 1;

	reply = redis_client_call(context->redis, 4, hmget);
	if (!reply)
		return keeper_context_failed(context);
	run_id = reply->element[0]->str;
	from = reply->element[1]->str;
	if (!run_id || strcmp(run_id, context->run_id) != 0)
		rc = look(upkeep, context);
	else if (from && strcmp(from, "0") != 0)
		rc = page_fill(upkeep, context, from);
	freeReplyObject(reply);
	return rc;
}

int use_upkeep_round(struct use_upkeep *upkeep, struct keeper_context *context)
{
	PGresult *due;
	int rc = 0, more = 1;

	/*
	 * The row of a hold says that it is held until somebody frees it, and its budget has
	 * reserved its discount until then.
	 */
	if (keeper_database_run(context->database, sql_query_use_free,
				POSTGRES_ARGUMENTS(postgres_number(FREED_MOST))) &&
	    keeper_context_failed(context))
		return -1;
	fault_point(FAULT_KEEPER_HOLDS_ENDED);
	/* A copy of a message does not come later than USE_KEEP_S. */
	if (keeper_database_run(context->database, sql_query_use_forget,
				POSTGRES_ARGUMENTS(postgres_number(USE_KEEP_S),
						   postgres_number(FORGOTTEN_MOST))) &&
	    keeper_context_failed(context))
		return -1;

	/*
	 * Each campaign is paused or continued by itself. What a death leaves, or one that is
	 * locked, is due in the next round.
	 */
	due = keeper_database_query(context->database, sql_query_budget_due,
				    POSTGRES_ARGUMENTS(postgres_number(DUE_MOST)));
	if (!due && keeper_context_failed(context))
		return -1;
	for (int row = 0; rc == 0 && row < PQntuples(due); row++) {
		int64_t coupon = number_at(due, row, 0);
		int is_open = strcmp(PQgetvalue(due, row, 1), "published") == 0, moved = 0;

		if (keeper_context_goes_on(context) ||
		    keeper_context_change(context, sql_query_budget_pause,
					  POSTGRES_ARGUMENTS(postgres_number(coupon),
							     postgres_number(context->fence)),
					  &moved))
			rc = -1;
		if (moved)
			log_info(is_open ? "coupon_budget_spent" : "coupon_budget_left",
				 LOG_I("coupon", coupon));
	}
	PQclear(due);

	for (int i = 0; rc == 0 && more > 0 && i < LIST_STEPS; i++)
		more = keeper_lock_hold(context) ? -1 : list_step(upkeep, context);
	return rc || more < 0 ? -1 : 0;
}

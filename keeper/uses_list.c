#include "keeper/uses_list.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/client.h"
#include "embed.h"
#include "keeper/database.h"
#include "keeper/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 1000
#define LOOK_RECORDS "-4000" /* of the end of the list: workers add in another order, and copies */
#define LOOK_MS 15000        /* for workers to add what they have not acked */

static const char *const keys[] = { CHANGES_KEY, CHANGES_USES_KEY };

/* Runs lua/uses_fill.lua. */
static void fill(const struct uses_list *list, struct keeper_context *context, const char *from,
		 const char *to, const PGresult *rows, char word[REDIS_WORD_SIZE])
{
	const char *argv[4 + PAGE];
	char bytes[NUMBER_SIZE];
	int n = 4;

	argv[0] = context->run_id;
	argv[1] = from;
	argv[2] = to;
	argv[3] = number_text(list->keep_bytes, bytes);
	for (int row = 0; row < PQntuples(rows); row++)
		argv[n++] = PQgetvalue(rows, row, 1);
	redis_word_take(redis_client_eval(context->redis, lua_uses_fill, 2, keys, n, argv), word);
}

static int number_compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The numbers at the end of the list, ascending (malloc). NULL: Redis has failed. */
static int64_t *numbers_read(struct keeper_context *context, size_t *n)
{
	const char *lrange[] = { "LRANGE", CHANGES_USES_KEY, LOOK_RECORDS, "-1" };
	redisReply *reply = redis_client_call(context->redis, 4, lrange);
	int64_t *numbers;

	if (!reply)
		return NULL;
	*n = reply->elements;
	numbers = checked(calloc(*n + 1, sizeof(*numbers)));
	for (size_t i = 0; i < *n; i++)
		sscanf(reply->element[i]->str, "[1, %" SCNd64 ",", &numbers[i]);
	qsort(numbers, *n, sizeof(*numbers), number_compare);
	freeReplyObject(reply);
	return numbers;
}

/* Whether the list has the latest operations of PostgreSQL; -1: a store has failed. */
static int is_whole(struct keeper_context *context)
{
	PGresult *rows = keeper_database_query(context->database, sql_query_uses_latest, 0, NULL);
	int64_t *numbers;
	size_t n;
	int is = 1;

	if (!rows)
		return -1;
	numbers = numbers_read(context, &n);
	for (int row = 0; numbers && row < PQntuples(rows); row++) {
		int64_t number = number_at(rows, row, 0);

		is &= bsearch(&number, numbers, n, sizeof(number), number_compare) != NULL;
	}
	if (!numbers)
		is = -1;
	free(numbers);
	PQclear(rows);
	return is;
}

/* Looks at the list in a process of Redis that is new, and fills it. */
static int look(struct uses_list *list, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();
	char word[REDIS_WORD_SIZE];
	int is = is_whole(context);

	if (is < 0)
		return keeper_context_usable(context);
	if (strcmp(list->look_run_id, context->run_id) != 0) {
		memcpy(list->look_run_id, context->run_id, REDIS_RUN_ID_SIZE);
		list->look_ms = now_ms;
	}
	if (!is && now_ms - list->look_ms < LOOK_MS)
		return 0;
	if (!is)
		log_warn("uses_lost", LOG_S("why", "Redis has lost what orders have done"),
			 LOG_S("mend", "it is filled again"));
	*list->look_run_id = '\0';
	fill(list, context, is ? "keep" : "begin", "0", NULL, word);
	fault_point(FAULT_KEEPER_BEFORE_FILL);
	return strcmp(word, "ok") == 0 ? 1 : keeper_context_failed(context);
}

/* The next page, below this number. */
static int page_fill(struct uses_list *list, struct keeper_context *context, const char *from)
{
	char word[REDIS_WORD_SIZE], to[NUMBER_SIZE] = "0";
	int64_t before = strtoll(from, NULL, 10);
	PGresult *rows = keeper_database_query(context->database, sql_query_uses_page,
					       POSTGRES_ARGUMENTS(postgres_number(before),
								  postgres_number(list->keep_s),
								  postgres_number(PAGE)));
	int n = PQntuples(rows);

	if (!rows)
		return keeper_context_usable(context);
	if (n == PAGE)
		number_text(number_at(rows, n - 1, 0), to);
	fill(list, context, from, to, rows, word);
	fault_point(FAULT_KEEPER_FILLING);
	PQclear(rows);
	if (strcmp(word, "moved") == 0 || (strcmp(word, "ok") == 0 && n == PAGE))
		return 1;
	if (!*word)
		return keeper_context_failed(context);
	log_info("uses_filled", LOG_S("run_id", context->run_id));
	return 0;
}

/* 1: more is to be removed, 0, or -1 as uses_list_step(). */
static int trim(const struct uses_list *list, struct keeper_context *context)
{
	char keep_ms[NUMBER_SIZE];
	const char *argv[] = { number_text(list->keep_s * 1000, keep_ms) };
	redisReply *reply = redis_client_eval(context->redis, lua_uses_trim, 2, keys, 1, argv);
	int more;

	if (!reply)
		return keeper_context_failed(context);
	more = reply->element[0]->integer > 0;
	metrics_set(KEEPER_METRIC_USES_BYTES, reply->element[1]->integer);
	metrics_set(KEEPER_METRIC_USES_COVERED, reply->element[2]->integer);
	freeReplyObject(reply);
	return more;
}

int uses_list_step(struct uses_list *list, struct keeper_context *context)
{
	const char *hmget[] = { "HMGET", CHANGES_KEY, "uses_run", "uses_from" };
	const char *run_id, *from;
	redisReply *reply;
	int rc = trim(list, context);

	if (rc)
		return rc;
	reply = redis_client_call(context->redis, 4, hmget);
	if (!reply)
		return keeper_context_failed(context);
	run_id = reply->element[0]->str;
	from = reply->element[1]->str;
	if (!run_id || strcmp(run_id, context->run_id) != 0)
		rc = look(list, context);
	else if (from && strcmp(from, "0") != 0)
		rc = page_fill(list, context, from);
	freeReplyObject(reply);
	return rc;
}

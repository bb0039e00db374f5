#include "ctl/lost/generations.h"

#include "common/check.h"
#include "common/message/number.h"
#include "common/redis/key.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIGH "high:" /* field of a coupon: the highest number of an older generation */

/* Stores the highest numbers of older generations in PostgreSQL, and lowers `current`. */
static void redis_read(struct lost_generations *generations, struct db *db,
		       struct redis_client *redis)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL",
				  coupon_key(generations->coupon, COUPON_KEY_COUPON, key) };
	redisReply *fields = redis_client_call(redis, 2, hgetall);
	struct postgres_array numbers = { .type = POSTGRES_INT4 }, seqs = { .type = POSTGRES_INT8 };
	const struct postgres_argument arguments[] = { postgres_number(generations->coupon),
						       postgres_array(&numbers),
						       postgres_array(&seqs) };
	int64_t number, seq;

	store_redis_check(redis, fields != NULL);
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;

		if (strcmp(name, "generation") == 0 &&
		    number_parse(value, INT32_MAX, &number) == 0 && number < generations->current)
			generations->current = number;
		if (strncmp(name, HIGH, strlen(HIGH)) != 0 ||
		    number_parse(name + strlen(HIGH), INT32_MAX, &number) ||
		    number_parse(value, INT64_MAX, &seq))
			continue;
		postgres_array_add_number(&numbers, number);
		postgres_array_add_number(&seqs, seq);
	}
	freeReplyObject(fields);
	PQclear(db_query_arguments(db, sql_query_generation_seen, 3, arguments));
	postgres_array_fini(&numbers);
	postgres_array_fini(&seqs);
}

void lost_generations_read(struct lost_generations *generations, struct db *db,
			   struct redis_client *redis, int64_t coupon)
{
	char text[DB_NUMBER_SIZE];
	const char *id = db_number(coupon, text);
	PGresult *row = store_coupon_row(db, sql_query_coupon_show, coupon), *page;

	*generations = (struct lost_generations){ .coupon = coupon,
						  .current = db_int(row, 0, "generation") };
	PQclear(row);
	redis_read(generations, db, redis);
	page = db_query(db, sql_query_coupon_generation_page, 1, &id);
	generations->older_n = (size_t)PQntuples(page);
	generations->older = calloc(generations->older_n + 1, sizeof(*generations->older));
	check(generations->older != NULL);
	for (int i = 0; i < PQntuples(page); i++)
		generations->older[i] = (struct older){ .number = db_int(page, i, "generation"),
							.left = db_int(page, i, "seq_seen") -
								db_int(page, i, "settled_num") };
	PQclear(page);
}

void lost_generations_fini(struct lost_generations *generations)
{
	free(generations->older);
}

struct older *lost_generations_find(struct lost_generations *generations, int64_t number)
{
	for (size_t i = 0; i < generations->older_n; i++)
		if (generations->older[i].number == number)
			return &generations->older[i];
	return NULL;
}

int64_t lost_generations_take(struct lost_generations *generations)
{
	struct older *older = generations->older;

	for (size_t i = 0; i < generations->older_n; i++)
		if (older[i].left > older[i].owed) {
			older[i].left--;
			return older[i].number;
		}
	/* receive_lost() counts it where it can. */
	return generations->older_n > 0 ? older[generations->older_n - 1].number
					: generations->current;
}

void lost_generations_owe(struct lost_generations *generations, int64_t n)
{
	for (size_t i = generations->older_n; i > 0 && n > 0; i--) {
		struct older *older = &generations->older[i - 1];
		int64_t room = older->left - older->owed;
		int64_t taken = room < n ? room : n;

		if (taken > 0) {
			older->owed += taken;
			n -= taken;
		}
	}
}

static void older_give_up(const struct older *older, const char *coupon, struct db *db)
{
	char number[DB_NUMBER_SIZE], owed[DB_NUMBER_SIZE];
	PGresult *result;

	db_run(db, "BEGIN");
	PQclear(db_query(db, sql_query_coupon_lock, 1, &coupon));
	result = db_query(db, sql_query_generation_lost, 4,
			  (const char *[]){ coupon, db_number(older->number, number), "0",
					    db_number(older->owed, owed) });
	db_run(db, "COMMIT");
	if (PQntuples(result) == 1)
		printf("lost: %s receives of generation %s that nothing names\n",
		       db_text(result, 0, "lost_num"), number);
	PQclear(result);
}

void lost_generations_give_up(const struct lost_generations *generations, struct db *db)
{
	char coupon[DB_NUMBER_SIZE];

	for (size_t i = 0; i < generations->older_n; i++)
		older_give_up(&generations->older[i], db_number(generations->coupon, coupon), db);
}

/*
 * Brings back what orders have done with receives (lua/uses.lua), when all receives are back, or
 * gives it up.
 */
#include "ctl/recover/recover.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 1000
#define RECORD_MEMBERS 20 /* of version 1 */

void recover_uses_begin(struct recover *recover)
{
	static const char *const keys[] = { CHANGES_KEY, CHANGES_USES_KEY };
	PGresult *rows = db_ask(recover->db, sql_query_change_counts);
	char server[SERVER_TEXT_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[] = { recover->changes.installation,
			       server_text(&recover->changes.server, server),
			       column_text(rows, 0, "started"),
			       "9007199254740991",
			       "9007199254740991",
			       "" };

	redis_word_take(redis_client_eval(recover->redis, lua_uses, 2, keys, 6, argv), word);
	store_redis_check(recover->redis, strcmp(word, "ok") == 0);
	PQclear(rows);
}

static int is_record(const redisReply *text)
{
	cJSON *record = text->type == REDIS_REPLY_STRING ? cJSON_Parse(text->str) : NULL;
	int is_one = cJSON_IsArray(record) && cJSON_GetArraySize(record) == RECORD_MEMBERS;

	cJSON_Delete(record);
	return is_one;
}

/* Returns how many PostgreSQL did not have. */
static int64_t page_restore(struct recover *recover, const redisReply *page)
{
	struct postgres_array records = { .type = POSTGRES_TEXT };
	int64_t missing;

	for (size_t i = 0; i < page->elements; i++)
		if (is_record(page->element[i]))
			postgres_array_add_text(&records, page->element[i]->str,
						page->element[i]->len);
		else
			recover->counts.unreadable++;
	missing = db_value_take(
		db_ask(recover->db, sql_query_recover_uses, postgres_array(&records)));
	postgres_array_fini(&records);
	return missing;
}

/* Every record that Redis has. Returns how many PostgreSQL did not have. */
static int64_t pages_restore(struct recover *recover)
{
	char first[NUMBER_SIZE], last[NUMBER_SIZE];
	const char *lrange[] = { "LRANGE", CHANGES_USES_KEY, first, last };
	int64_t missing = 0;
	size_t n = PAGE;

	for (int64_t from = 0; n == PAGE; from += PAGE) {
		redisReply *page;

		number_text(from, first);
		number_text(from + PAGE - 1, last);
		page = store_reply(recover->redis, redis_client_call(recover->redis, 4, lrange));
		n = page->elements;
		if (n > 0)
			missing += page_restore(recover, page);
		freeReplyObject(page);
	}
	return missing;
}

static void budgets_report(struct recover *recover)
{
	PGresult *rows = db_ask(recover->db, sql_query_recover_uses_end);

	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = output_object();

		output_text(object, "what", "check");
		output_text(object, "budget", column_text(rows, row, "name"));
		output_say(object, "{what}: the amount of the budget {budget}\n", recover->is_json);
	}
	PQclear(rows);
}

void recover_uses(struct recover *recover)
{
	const char *unlink[] = { "UNLINK", CHANGES_USES_KEY };
	int is_undone = recover->is_dry || recover->gives_up;
	int64_t missing, n;

	db_run(recover->db, "BEGIN");
	missing = pages_restore(recover);
	if (!recover->gives_up && (missing > 0 || !recover->tail_max)) /* no terms are of a tail */
		budgets_report(recover);
	db_run(recover->db, is_undone ? "ROLLBACK" : "COMMIT");
	if (!recover->gives_up) {
		recover->counts.uses = missing;
		return;
	}
	recover->counts.uses_lost = missing;
	if (!recover->is_dry)
		store_redis_check(recover->redis,
				  redis_client_integer(recover->redis, 2, unlink, &n) == 0);
}

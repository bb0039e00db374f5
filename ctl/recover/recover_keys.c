#include "ctl/recover/recover_keys.h"

#include "common/check.h"
#include "common/api_keys.h"
#include "ctl/recover/recover.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_FIELDS 500

int64_t keys_ahead(struct db *db, struct redis_client *redis)
{
	int64_t there, own;

	if (key_copy_version(redis, &there))
		return -1;
	own = db_value(db, sql_query_key_version);
	return there > own ? there - own : 0;
}

/* Counts and tells what has happened to a key. An id that is malformed is not printed. */
static void restored_note(struct key_counts *counts, const char *what, const char *id,
			  key_restored_fn *tell, void *context)
{
	counts->created += strcmp(what, "created") == 0;
	counts->changed += strcmp(what, "changed") == 0;
	counts->revoked += strcmp(what, "revoked") == 0;
	counts->told += strcmp(what, "told") == 0;
	counts->unreadable += strcmp(what, "unreadable") == 0;
	if (tell)
		tell(context, what, key_id_valid(id, strlen(id)) ? id : "?");
}

/* No record has other bytes, and PostgreSQL would refuse all records of the statement together. */
static int is_printable(const redisReply *text)
{
	for (size_t i = 0; i < text->len; i++)
		if (text->str[i] < ' ' || text->str[i] > '~')
			return 0;
	return 1;
}

void keys_restore(struct db *db, struct redis_client *redis, struct key_counts *counts,
		  key_restored_fn *tell, void *context)
{
	char cursor[REDIS_CURSOR_SIZE] = "0";
	int64_t version;

	*counts = (struct key_counts){ .ahead = keys_ahead(db, redis) };
	store_redis_check(redis, counts->ahead >= 0 && key_copy_version(redis, &version) == 0);
	do {
		redisReply *reply = store_reply(redis, redis_client_hscan(redis, KEYS_KEY, cursor,
									  SCAN_FIELDS));
		const redisReply *fields = reply->element[1];
		struct postgres_array records = { .type = POSTGRES_TEXT };
		const char **ids = checked(calloc(fields->elements + 1, sizeof(*ids)));
		PGresult *rows;

		for (size_t i = 0; i + 1 < fields->elements; i += 2) {
			const redisReply *record = fields->element[i + 1];
			const char *id = fields->element[i]->str;

			if (strcmp(id, "version") == 0) /* no record */
				continue;
			if (!is_printable(record)) {
				restored_note(counts, "unreadable", id, tell, context);
				continue;
			}
			ids[records.n] = id;
			postgres_array_add_text(&records, record->str, record->len);
		}
		rows = db_ask(db, sql_query_key_restore, postgres_array(&records),
			      postgres_number(version));
		for (int row = 0; row < PQntuples(rows); row++)
			restored_note(counts, column_text(rows, row, "what"),
				      ids[column_number(rows, row, "ord") - 1], tell, context);
		PQclear(rows);
		postgres_array_fini(&records);
		free(ids);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
}

static void key_report(void *context, const char *what, const char *id)
{
	const struct recover *recover = context;
	cJSON *object = output_object();

	output_text(object, "what", what);
	output_text(object, "key", id);
	output_say(object, "{what}: key {key}\n", recover->is_json);
}

int recover_keys(struct recover *recover)
{
	struct recover_counts *counts = &recover->counts;
	struct key_counts keys = { .ahead = keys_ahead(recover->db, recover->redis) };

	store_redis_check(recover->redis, keys.ahead >= 0);
	if (recover->tail_max && keys.ahead > 0)
		TAIL_REFUSE("%lld changes of API keys are missing", (long long)keys.ahead);
	if (recover->tail_max)
		return 0;
	db_run(recover->db, "BEGIN");
	keys_restore(recover->db, recover->redis, &keys, key_report, recover);
	db_run(recover->db, recover->is_dry ? "ROLLBACK" : "COMMIT");
	counts->keys_created = keys.created;
	counts->keys_changed = keys.changed;
	counts->keys_revoked = keys.revoked;
	counts->keys_told = keys.told;
	counts->unreadable += keys.unreadable;
	return keys.ahead > 0 || keys.created > 0 || keys.changed > 0 || keys.revoked > 0 ||
	       keys.told > 0;
}

/*
 * A look asks both stores, each by itself. A question does not wait for the next look: Redis is
 * asked, and PostgreSQL if Redis cannot tell or is behind what is known. What it finds was true
 * after it had begun.
 *
 *	flush ─▶ version in Redis ─┬─(known)────────────────────▶ end
 *	                           ├─(another)─▶ all of Redis ──▶ end
 *	                           └─(none, behind)─▶ rows of PostgreSQL ─▶ end
 */
#include "gateway/read/key_records.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"

#include <string.h>

#define EVERY_MS 500
#define RECORDS_MAX 1000 /* in one statement */
#define VERSION_FIELD "version"

/* What is known of all keys: up to the change with this number. */
static int64_t known_version(const struct key_records *records)
{
	return records->redis_version > records->lookup_version ? records->redis_version
								: records->lookup_version;
}

/* The store has told of all changes up to this number. */
static void told(struct key_records *records, int64_t version)
{
	if (version >= known_version(records))
		auth_keys_told(records->auth, clock_monotonic_ms());
}

/* Returns whether it was something new. */
static int record_take(const struct key_records *records, const char *text, size_t len)
{
	enum keys_merged merged = keys_merge(auth_keys(records->auth), text, len);

	if (merged == KEYS_MALFORMED || merged == KEYS_FULL)
		log_warn("key_record",
			 LOG_S("error", merged == KEYS_FULL ? "there are too many API keys"
							    : "the record is malformed"));
	return merged == KEYS_CHANGED;
}

static int64_t version_of(const redisReply *reply)
{
	int64_t version;

	return reply && reply->type == REDIS_REPLY_STRING &&
			       id_parse(reply->str, reply->len, &version) == 0
		       ? version
		       : 0;
}

static void question_end(struct key_records *records, int is_told)
{
	records->is_asked = 0;
	if (is_told)
		records->told_n = records->asked_n;
	intake_keys_told(records->intake, records->asked_n, is_told);
}

static int rows_ask(struct key_look *look);

/* Takes a record of each row: all that are new in PostgreSQL, or the first RECORDS_MAX of them. */
static void on_rows(void *context, const PGresult *rows)
{
	struct key_look *look = context;
	struct key_records *records = look->records;
	int64_t version = records->lookup_version, counted = -1;
	int is_new = 0, is_good = 0, n = 0;

	if (rows && PQntuples(rows) > 0) {
		counted = column_number(rows, 0, "counted");
		is_good = counted >= version;
		if (!is_good) /* PostgreSQL was put back: all of it once more */
			records->lookup_version = 0;
	}
	for (int row = 0; is_good && row < PQntuples(rows); row++) {
		const char *text = column_text(rows, row, "record");

		if (!*text)
			continue;
		n++;
		version = column_number(rows, row, "version");
		is_new |= record_take(records, text, strlen(text));
	}
	if (is_new)
		intake_keys_changed(records->intake);
	if (is_good && n == RECORDS_MAX) {
		records->lookup_version = version;
		if (rows_ask(look) == 0)
			return;
	} else if (is_good) {
		records->lookup_version = counted;
		told(records, counted);
	}

	if (look->is_question)
		question_end(records,
			     is_good && n < RECORDS_MAX && counted >= known_version(records));
	else
		records->is_asking_lookup = 0;
}

static int rows_ask(struct key_look *look)
{
	return lookup_ask(look->records->lookup, LOOKUP_KEYS,
			  POSTGRES_ARGUMENTS(postgres_number(look->records->lookup_version),
					     postgres_number(RECORDS_MAX)),
			  on_rows, look);
}

/* Redis was asked. If it could not tell, a question goes to PostgreSQL. */
static void redis_end(struct key_look *look, int is_told)
{
	struct key_records *records = look->records;

	if (!look->is_question)
		records->is_asking_redis = 0;
	else if (is_told || !lookup_is_connected(records->lookup) || rows_ask(look))
		question_end(records, is_told);
}

static void on_all(void *context, const redisReply *reply)
{
	struct key_look *look = context;
	struct key_records *records = look->records;
	int64_t version = 0;
	int is_new = 0;

	if (!reply || reply->type != REDIS_REPLY_ARRAY) {
		redis_end(look, 0);
		return;
	}
	for (size_t i = 0; i + 1 < reply->elements; i += 2) {
		const redisReply *field = reply->element[i], *value = reply->element[i + 1];

		if (strcmp(field->str, VERSION_FIELD) == 0)
			version = version_of(value);
		else
			is_new |= record_take(records, value->str, value->len);
	}
	records->redis_version = version;
	if (is_new)
		intake_keys_changed(records->intake);
	told(records, version);
	redis_end(look, version > 0 && version == known_version(records));
}

static void on_version(void *context, const redisReply *reply)
{
	const char *argv[] = { "HGETALL", KEYS_KEY };
	struct key_look *look = context;
	struct key_records *records = look->records;
	int64_t version = version_of(reply);

	/* 0: Redis has lost its data, or never had any. */
	if (version == 0 || (look->is_question && version < known_version(records))) {
		redis_end(look, 0);
	} else if (version != records->redis_version) {
		redis_pool_query(records->redis, 2, argv, on_all, look);
	} else {
		told(records, version);
		redis_end(look, 1);
	}
}

uint64_t key_records_ask(void *context)
{
	struct key_records *records = context;

	records->is_asked_again = 1;
	return records->asked_n + 1;
}

void key_records_flush(struct key_records *records, int may_ask)
{
	const char *argv[] = { "HGET", KEYS_KEY, VERSION_FIELD };

	if (!records->is_asked_again || records->is_asked)
		return;
	records->is_asked = 1;
	records->is_asked_again = 0;
	records->asked_n++;
	if (may_ask)
		redis_pool_query(records->redis, 3, argv, on_version, &records->question);
	else
		question_end(records, 0);
}

static void on_notified(void *context)
{
	struct key_records *records = context;

	records->due_ms = 0;
}

void key_records_init(struct key_records *records)
{
	records->look.records = records->question.records = records;
	records->question.is_question = 1;
	lookup_on_keys(records->lookup, on_notified, records);
}

void key_records_tick(struct key_records *records, int64_t now_ms)
{
	const char *argv[] = { "HGET", KEYS_KEY, VERSION_FIELD };

	if (now_ms < records->due_ms)
		return;
	records->due_ms = now_ms + EVERY_MS;
	if (!records->is_asking_redis) {
		records->is_asking_redis = 1;
		redis_pool_query(records->redis, 3, argv, on_version, &records->look);
	}
	if (!records->is_asking_lookup && lookup_is_connected(records->lookup))
		records->is_asking_lookup = rows_ask(&records->look) == 0;
}

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
			 LOG_S("error", merged == KEYS_FULL ? "there are too many keys"
							    : "not of the form of a record"));
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

/* Returns whether it was a reply. */
static int all_take(struct key_records *records, const redisReply *reply)
{
	int64_t version = 0;
	int is_new = 0;

	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		return 0;
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
	return 1;
}

static void on_all(void *context, const redisReply *reply)
{
	struct key_records *records = context;

	records->is_asking_redis = 0;
	all_take(records, reply);
}

static void redis_send(struct key_records *records, int argc, const char **argv,
		       redis_done_fn *done)
{
	struct redis_link *link = redis_pool_pick(records->redis);

	if (!link)
		return;
	records->is_asking_redis = 1;
	redis_pool_query(link, argc, argv, done, records);
}

static void on_version(void *context, const redisReply *reply)
{
	const char *argv[] = { "HGETALL", KEYS_KEY };
	struct key_records *records = context;
	int64_t version = version_of(reply);

	records->is_asking_redis = 0;
	if (version == 0) /* it has lost its data, or never had any */
		return;
	if (version != records->redis_version)
		redis_send(records, 2, argv, on_all);
	else
		told(records, version);
}

static void lookup_send(struct key_records *records);

/* How many there were; -1: the look-up failed, or PostgreSQL was put back. */
static int rows_take(struct key_records *records, const PGresult *rows)
{
	int64_t version = records->lookup_version, counted;
	int is_new = 0, n = 0;

	if (!rows || PQntuples(rows) == 0)
		return -1;
	counted = column_number(rows, 0, "counted");
	if (counted < records->lookup_version) { /* it was put back: all of it once more */
		records->lookup_version = 0;
		return -1;
	}
	for (int row = 0; row < PQntuples(rows); row++) {
		const char *text = column_text(rows, row, "record");

		if (!*text)
			continue;
		n++;
		version = column_number(rows, row, "version");
		is_new |= record_take(records, text, strlen(text));
	}
	records->lookup_version = n < RECORDS_MAX ? counted : version;
	if (is_new)
		intake_keys_changed(records->intake);
	if (n < RECORDS_MAX)
		told(records, counted);
	return n;
}

static int rows_ask(struct key_records *records, lookup_fn *done)
{
	return lookup_ask(records->lookup, LOOKUP_KEYS,
			  POSTGRES_ARGUMENTS(postgres_number(records->lookup_version),
					     postgres_number(RECORDS_MAX)),
			  done, records);
}

static void on_rows(void *context, const PGresult *rows)
{
	struct key_records *records = context;

	records->is_asking_lookup = 0;
	if (rows_take(records, rows) == RECORDS_MAX)
		lookup_send(records);
}

static void lookup_send(struct key_records *records)
{
	records->is_asking_lookup = rows_ask(records, on_rows) == 0;
}

/*
 * A question that does not wait for the next look: Redis is asked, and PostgreSQL if Redis cannot
 * tell or is behind what is known. What it finds was true after it had begun.
 *
 *	flush ─▶ version in Redis ─┬─(known)────────────────────▶ end
 *	                           ├─(another)─▶ all of Redis ──▶ end
 *	                           └─(none, behind)─▶ rows of PostgreSQL ─▶ end
 */

static void question_end(struct key_records *records, int is_told)
{
	records->is_asked = 0;
	if (is_told)
		records->told_n = records->asked_n;
	intake_keys_told(records->intake, records->asked_n, is_told);
}

static void on_asked_rows(void *context, const PGresult *rows)
{
	struct key_records *records = context;
	int n = rows_take(records, rows);

	if (n != RECORDS_MAX || rows_ask(records, on_asked_rows))
		question_end(records, n >= 0 && n < RECORDS_MAX &&
					      records->lookup_version >= known_version(records));
}

static void rows_begin(struct key_records *records)
{
	if (!lookup_is_connected(records->lookup) || rows_ask(records, on_asked_rows))
		question_end(records, 0);
}

static void on_asked_all(void *context, const redisReply *reply)
{
	struct key_records *records = context;

	if (all_take(records, reply) && records->redis_version > 0 &&
	    records->redis_version == known_version(records))
		question_end(records, 1);
	else
		rows_begin(records);
}

static void on_asked_version(void *context, const redisReply *reply)
{
	const char *argv[] = { "HGETALL", KEYS_KEY };
	struct key_records *records = context;
	struct redis_link *link = redis_pool_pick(records->redis);
	int64_t version = version_of(reply);

	if (version == 0 || version < known_version(records) || !link) {
		rows_begin(records);
	} else if (version != records->redis_version) {
		redis_pool_query(link, 2, argv, on_asked_all, records);
	} else {
		told(records, version);
		question_end(records, 1);
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
	struct redis_link *link;

	if (!records->is_asked_again || records->is_asked)
		return;
	records->is_asked = 1;
	records->is_asked_again = 0;
	records->asked_n++;
	link = redis_pool_pick(records->redis);
	if (!may_ask)
		question_end(records, 0);
	else if (link)
		redis_pool_query(link, 3, argv, on_asked_version, records);
	else
		rows_begin(records);
}

static void on_notified(void *context)
{
	struct key_records *records = context;

	records->due_ms = 0;
}

void key_records_init(struct key_records *records)
{
	lookup_on_keys(records->lookup, on_notified, records);
}

void key_records_tick(struct key_records *records, int64_t now_ms)
{
	const char *argv[] = { "HGET", KEYS_KEY, VERSION_FIELD };

	if (now_ms < records->due_ms)
		return;
	records->due_ms = now_ms + EVERY_MS;
	if (!records->is_asking_redis)
		redis_send(records, 3, argv, on_version);
	if (!records->is_asking_lookup && lookup_is_connected(records->lookup))
		lookup_send(records);
}

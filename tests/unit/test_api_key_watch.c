/*
 * The watch of API keys: which store it believes, when keys can be judged, what it reads next and
 * when. The stores are structures.
 */
#include "common/api_key_watch.h"

#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "0a1b2c3d4e"
#define OTHER_ID "zzzzzzzzzz"
#define A "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define TEXT "cmq_" ID "_" A
#define OTHER_TEXT "cmq_" OTHER_ID "_" A
#define STALE_MS 2000
#define WALL_MS 1700000000000
#define RECORDS_MAX (KEY_ROWS_MAX + 1)

static struct key_watch watch;
static struct key_look redis, rows, both, question;
static int64_t now_ms;

static int setup(void **state)
{
	(void)state;
	watch = (struct key_watch){ .keys = keys_new(), .stale_ms = STALE_MS };
	redis = (struct key_look){ .watch = &watch, .kind = KEY_LOOK_REDIS };
	rows = (struct key_look){ .watch = &watch, .kind = KEY_LOOK_ROWS };
	both = (struct key_look){ .watch = &watch, .kind = KEY_LOOK_BOTH };
	question = (struct key_look){ .watch = &watch, .kind = KEY_LOOK_QUESTION };
	now_ms = 1000000;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	keys_free(watch.keys);
	return 0;
}

/* ---- what stores answer */

struct record {
	const char *text; /* what is presented; its id is the record's */
	int64_t version;
	int is_revoked;
	const char *coupons; /* NULL: every one */
};

#define LIVE(version)                  \
	{                              \
		TEXT, version, 0, NULL \
	}
#define REVOKED(version)               \
	{                              \
		TEXT, version, 1, NULL \
	}

static const char *json(const struct record *record)
{
	static char texts[RECORDS_MAX][400];
	static size_t next;
	char *text = texts[next++ % RECORDS_MAX], hex[2 * KEY_HASH_SIZE + 1];
	unsigned char sha256[KEY_HASH_SIZE];

	SHA256((const unsigned char *)record->text, strlen(record->text), sha256);
	for (int i = 0; i < KEY_HASH_SIZE; i++)
		snprintf(hex + 2 * i, 3, "%02x", sha256[i]);
	snprintf(text, sizeof(texts[0]),
		 "{\"id\":\"%.10s\",\"name\":\"shop\",\"version\":%lld,\"roles\":[\"issue\"],"
		 "\"coupons\":%s,\"budgets\":null,\"expires_ms\":null,\"rate\":null,"
		 "\"sha256\":\"%s\",\"previous\":null,\"revoked\":%s}",
		 record->text + 4, (long long)record->version,
		 record->coupons ? record->coupons : "null", hex,
		 record->is_revoked ? "true" : "false");
	return text;
}

static void value_set(PGresult *result, int row, int column, const char *value)
{
	assert_true(PQsetvalue(result, row, column, (char *)(uintptr_t)value, (int)strlen(value)));
}

/* PostgreSQL answers with these records; without any: with one row that has none. */
static enum key_read rows_answer(struct key_look *look, int64_t counted, int n,
				 const struct record *records)
{
	static char names[][8] = { "counted", "version", "record" };
	PGresAttDesc columns[] = { { .name = names[0] },
				   { .name = names[1] },
				   { .name = names[2] } };
	PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	enum key_read read;
	char number[24];

	assert_int_equal(look->reads, KEY_READ_ROWS);
	assert_true(PQsetResultAttrs(result, 3, columns));
	for (int row = 0; row < (n ? n : 1); row++) {
		snprintf(number, sizeof(number), "%lld", (long long)counted);
		value_set(result, row, 0, number);
		if (n == 0) {
			assert_true(PQsetvalue(result, row, 1, NULL, -1));
			assert_true(PQsetvalue(result, row, 2, NULL, -1));
			continue;
		}
		snprintf(number, sizeof(number), "%lld", (long long)records[row].version);
		value_set(result, row, 1, number);
		value_set(result, row, 2, records[row].text ? json(&records[row]) : "{}");
	}
	read = key_look_rows(look, result, now_ms);
	PQclear(result);
	return read;
}

static redisReply string_of(const char *text)
{
	return (redisReply){ .type = REDIS_REPLY_STRING,
			     .str = (char *)(uintptr_t)text,
			     .len = strlen(text) };
}

/* Redis answers with its version; NULL: it has none. */
static enum key_read version_answer(struct key_look *look, const char *version)
{
	redisReply reply = { .type = REDIS_REPLY_NIL };

	assert_int_equal(look->reads, KEY_READ_VERSION);
	if (version)
		reply = string_of(version);
	return key_look_reply(look, &reply, now_ms);
}

/* Redis answers with all it has. */
static enum key_read all_answer(struct key_look *look, const char *version, int n,
				const struct record *records)
{
	redisReply values[8], *elements[8];
	redisReply reply = { .type = REDIS_REPLY_ARRAY, .element = elements };

	assert_int_equal(look->reads, KEY_READ_ALL);
	for (int i = 0; i < n; i++) {
		values[reply.elements++] = string_of(ID);
		values[reply.elements++] = string_of(records[i].text ? json(&records[i]) : "[]");
	}
	if (version) {
		values[reply.elements++] = string_of(KEYS_VERSION);
		values[reply.elements++] = string_of(version);
	}
	for (size_t i = 0; i < reply.elements; i++)
		elements[i] = &values[i];
	return key_look_reply(look, &reply, now_ms);
}

/* A whole look at PostgreSQL, and at Redis. Each returns whether the store was believed. */
#define POSTGRES(counted, ...) postgres_look(counted, &(struct record)__VA_ARGS__)
static int postgres_look(int64_t counted, const struct record *record)
{
	now_ms++;
	assert_int_equal(key_look_begin(&rows, now_ms), KEY_READ_ROWS);
	assert_int_equal(rows_answer(&rows, counted, record != NULL, record), KEY_READ_NOTHING);
	return watch.told_ms == now_ms;
}

#define REDIS(version, ...) redis_look(version, &(struct record)__VA_ARGS__)
static int redis_look(const char *version, const struct record *record)
{
	now_ms++;
	assert_int_equal(key_look_begin(&redis, now_ms), KEY_READ_VERSION);
	if (version_answer(&redis, version) == KEY_READ_ALL)
		assert_int_equal(all_answer(&redis, version, record != NULL, record),
				 KEY_READ_NOTHING);
	return watch.told_ms == now_ms;
}

/* ---- what is presented */

static enum key_judgement find(const char *text, int is_asked)
{
	struct key_grant grant;
	enum key_judgement judgement = key_watch_find(&watch, text, strlen(text), is_asked, now_ms,
						      WALL_MS, &grant);

	assert_int_equal(judgement == KEY_ACCEPTED, grant.key != NULL);
	return judgement;
}

/* What is answered before the stores are asked, after they have told, and if they were silent. */
static void assert_found(const char *text, enum key_judgement before, enum key_judgement told,
			 enum key_judgement silent)
{
	assert_int_equal(find(text, 0), before);
	assert_int_equal(find(text, 1), told);
	assert_int_equal(find(text, -1), silent);
}

static void test_never_known(void **state)
{
	(void)state;
	assert_false(key_watch_knows(&watch, now_ms));
	assert_found(TEXT, KEY_MAY_BE_NEW, KEY_UNTOLD, KEY_UNTOLD);
	/* What has another form can be no key. */
	assert_found("cmq_", KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);
	/* Records without a number that they go up to: nobody knows what is missing. */
	key_look_begin(&redis, now_ms);
	version_answer(&redis, "5");
	assert_int_equal(all_answer(&redis, NULL, 1, &(struct record)LIVE(5)), KEY_READ_NOTHING);
	assert_found(TEXT, KEY_UNTOLD, KEY_UNTOLD, KEY_UNTOLD);
	assert_found(OTHER_TEXT, KEY_MAY_BE_NEW, KEY_UNTOLD, KEY_UNTOLD);
}

static void test_a_store_without_keys_tells(void **state)
{
	(void)state;
	assert_true(postgres_look(0, NULL));
	assert_found(TEXT, KEY_MAY_BE_NEW, KEY_REFUSED, KEY_UNTOLD);
}

static void test_either_store_is_enough(void **state)
{
	(void)state;
	assert_true(POSTGRES(5, LIVE(5)));
	assert_true(rows.has_changed);
	assert_found(TEXT, KEY_ACCEPTED, KEY_ACCEPTED, KEY_ACCEPTED);
	assert_found("cmq_" ID "_" A "B", KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);

	teardown(state);
	setup(state);
	assert_true(REDIS("5", LIVE(5)));
	assert_true(redis.has_changed);
	assert_found(TEXT, KEY_ACCEPTED, KEY_ACCEPTED, KEY_ACCEPTED);
	assert_found(OTHER_TEXT, KEY_MAY_BE_NEW, KEY_REFUSED, KEY_UNTOLD);
	/* Its secret may be that of a rotation. */
	assert_found("cmq_" ID "_B"
		     "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		     KEY_MAY_BE_NEW, KEY_REFUSED, KEY_UNTOLD);
}

static void test_a_key_that_is_revoked(void **state)
{
	struct key_grant grant;

	(void)state;
	POSTGRES(5, LIVE(5));
	assert_int_equal(key_watch_find(&watch, TEXT, strlen(TEXT), 0, now_ms, WALL_MS, &grant),
			 KEY_ACCEPTED);
	assert_int_equal(key_watch_check(&watch, &grant, now_ms, WALL_MS), KEY_ACCEPTED);
	assert_true(REDIS("6", REVOKED(6)));
	assert_true(redis.has_changed);
	assert_int_equal(key_watch_check(&watch, &grant, now_ms, WALL_MS), KEY_REFUSED);
	/* No question is needed, and no store revives it. */
	assert_found(TEXT, KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);
	assert_true(POSTGRES(9, LIVE(9)));
	assert_false(rows.has_changed);
	assert_found(TEXT, KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);
}

static void test_a_key_of_some_coupons(void **state)
{
	struct key_grant grant;

	(void)state;
	REDIS("5", { TEXT, 5, 0, "[\"7\",\"8\"]" });
	key_watch_find(&watch, TEXT, strlen(TEXT), 0, now_ms, WALL_MS, &grant);
	assert_true(key_has_coupon(grant.key, 7));
	POSTGRES(6, { TEXT, 6, 0, "[\"8\"]" });
	assert_int_equal(key_watch_check(&watch, &grant, now_ms, WALL_MS), KEY_ACCEPTED);
	assert_false(key_has_coupon(grant.key, 7));
	assert_true(key_has_coupon(grant.key, 8));
}

static void test_for_how_long_keys_are_judged(void **state)
{
	struct key_grant grant;

	(void)state;
	POSTGRES(5, LIVE(5));
	key_watch_find(&watch, TEXT, strlen(TEXT), 0, now_ms, WALL_MS, &grant);
	now_ms += STALE_MS;
	assert_true(key_watch_knows(&watch, now_ms));
	assert_found(TEXT, KEY_ACCEPTED, KEY_ACCEPTED, KEY_ACCEPTED);
	now_ms++;
	assert_false(key_watch_knows(&watch, now_ms));
	assert_found(TEXT, KEY_UNTOLD, KEY_UNTOLD, KEY_UNTOLD);
	/* Another one may be new, but nobody can say that it is wrong. */
	assert_found(OTHER_TEXT, KEY_MAY_BE_NEW, KEY_UNTOLD, KEY_UNTOLD);
	assert_int_equal(key_watch_check(&watch, &grant, now_ms, WALL_MS), KEY_UNTOLD);
	assert_true(postgres_look(5, NULL));
	assert_int_equal(key_watch_check(&watch, &grant, now_ms, WALL_MS), KEY_ACCEPTED);
}

/* ---- which store is believed */

static void test_redis_is_read_when_it_has_changed(void **state)
{
	(void)state;
	assert_int_equal(key_look_begin(&redis, now_ms), KEY_READ_VERSION);
	assert_int_equal(version_answer(&redis, "5"), KEY_READ_ALL);
	/* A change since then is among all. */
	assert_int_equal(all_answer(&redis, "6", 1, &(struct record)LIVE(6)), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, now_ms);
	now_ms++;
	key_look_begin(&redis, now_ms);
	assert_int_equal(version_answer(&redis, "6"), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, now_ms);
	assert_false(redis.has_changed);
}

static void test_a_redis_that_cannot_tell(void **state)
{
	static const char *const versions[] = { NULL, "", "0", "-1", "1.5", "9007199254740992" };
	redisReply error = { .type = REDIS_REPLY_ERROR };

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		assert_false(redis_look(versions[i], NULL));
	key_look_begin(&redis, now_ms);
	assert_int_equal(key_look_reply(&redis, &error, now_ms), KEY_READ_NOTHING);
	key_look_begin(&redis, now_ms);
	assert_int_equal(key_look_reply(&redis, NULL, now_ms), KEY_READ_NOTHING);
	key_look_begin(&redis, now_ms);
	version_answer(&redis, "5");
	assert_int_equal(key_look_reply(&redis, &error, now_ms), KEY_READ_NOTHING);
	/* What it has is read again: it was not known. */
	key_look_begin(&redis, now_ms);
	assert_int_equal(version_answer(&redis, "5"), KEY_READ_ALL);
	assert_int_equal(key_look_reply(&redis, NULL, now_ms), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, 0);
}

static void test_a_postgresql_that_cannot_tell(void **state)
{
	PGresult *none = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

	(void)state;
	key_look_begin(&rows, now_ms);
	assert_int_equal(key_look_rows(&rows, NULL, now_ms), KEY_READ_NOTHING);
	key_look_begin(&rows, now_ms);
	assert_int_equal(key_look_rows(&rows, none, now_ms), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, 0);
	PQclear(none);
}

static void test_rows_that_are_newer_than_replies(void **state)
{
	(void)state;
	assert_true(POSTGRES(9, REVOKED(9)));
	assert_false(REDIS("5", LIVE(5)));
	assert_found(TEXT, KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);
	/* Redis has caught up. */
	assert_true(REDIS("9", REVOKED(9)));
	assert_true(redis_look("9", NULL));
}

static void test_replies_that_are_newer_than_rows(void **state)
{
	(void)state;
	assert_true(REDIS("9", LIVE(9)));
	assert_false(POSTGRES(5, { TEXT, 5, 0, "[\"7\"]" }));
	assert_null(keys_get(watch.keys, ID, KEY_ID_LEN)->coupons);
	assert_true(redis_look("9", NULL));
	assert_false(postgres_look(8, NULL));
	assert_true(postgres_look(9, NULL));
}

static void test_a_redis_that_has_lost_its_data(void **state)
{
	(void)state;
	assert_true(REDIS("9", LIVE(9)));
	assert_false(redis_look(NULL, NULL));
	/* PostgreSQL does not have what Redis had. */
	assert_false(postgres_look(5, NULL));
	/* A keeper has copied that: it is all that there is. */
	assert_true(redis_look("5", NULL));
	assert_true(postgres_look(5, NULL));
	assert_found(TEXT, KEY_ACCEPTED, KEY_ACCEPTED, KEY_ACCEPTED);
}

static void test_a_postgresql_that_was_put_back(void **state)
{
	(void)state;
	assert_true(POSTGRES(9, REVOKED(9)));
	assert_int_equal(key_look_begin(&rows, now_ms), KEY_READ_ROWS);
	assert_int_equal(rows.from, 9);
	now_ms++;
	assert_int_equal(rows_answer(&rows, 5, 1, &(struct record)LIVE(5)), KEY_READ_NOTHING);
	assert_int_not_equal(watch.told_ms, now_ms);
	/* All of it is read once more, and revives nothing. */
	assert_int_equal(key_look_begin(&rows, now_ms), KEY_READ_ROWS);
	assert_int_equal(rows.from, 0);
	assert_int_equal(rows_answer(&rows, 5, 1, &(struct record)LIVE(5)), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, now_ms);
	assert_found(TEXT, KEY_REFUSED, KEY_REFUSED, KEY_REFUSED);
}

static void test_a_postgresql_that_was_put_back_and_redis_knows_more(void **state)
{
	(void)state;
	assert_true(POSTGRES(9, LIVE(9)));
	assert_true(redis_look("9", NULL));
	for (int i = 0; i < 3; i++)
		assert_false(postgres_look(5, NULL));
	assert_true(redis_look("9", NULL));
}

static void test_pages(void **state)
{
	static struct record records[KEY_ROWS_MAX];
	static char texts[KEY_ROWS_MAX][sizeof(TEXT)];

	(void)state;
	for (int i = 0; i < KEY_ROWS_MAX; i++) {
		snprintf(texts[i], sizeof(texts[i]), "cmq_%010d_" A, i);
		records[i] = (struct record){ texts[i], i + 1, 0, NULL };
	}
	key_look_begin(&rows, now_ms);
	assert_int_equal(rows_answer(&rows, KEY_ROWS_MAX, KEY_ROWS_MAX, records), KEY_READ_ROWS);
	/* There may be more. What was read is not read again, whatever happens. */
	assert_int_equal(watch.told_ms, 0);
	assert_int_equal(rows.from, KEY_ROWS_MAX);
	assert_int_equal(key_look_rows(&rows, NULL, now_ms), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, 0);
	key_look_begin(&rows, now_ms);
	assert_int_equal(rows.from, KEY_ROWS_MAX);
	assert_int_equal(rows_answer(&rows, KEY_ROWS_MAX + 7, 0, NULL), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, now_ms);
	assert_int_equal(watch.rows_version, KEY_ROWS_MAX + 7);
	assert_int_equal(find(texts[KEY_ROWS_MAX - 1], 0), KEY_ACCEPTED);
}

static void test_looks_side_by_side(void **state)
{
	(void)state;
	POSTGRES(5, LIVE(5));
	/* One is slower, and was answered before the last change: it counts as put back. */
	key_look_begin(&rows, now_ms);
	key_look_begin(&both, now_ms);
	version_answer(&both, NULL);
	assert_int_equal(rows_answer(&both, 6, 1, &(struct record)LIVE(6)), KEY_READ_NOTHING);
	now_ms++;
	assert_int_equal(rows_answer(&rows, 5, 0, NULL), KEY_READ_NOTHING);
	assert_int_not_equal(watch.told_ms, now_ms);
	assert_int_equal(watch.rows_version, 0);

	/* One was asked for what comes after a number that does not count any more. */
	POSTGRES(9, LIVE(9));
	key_look_begin(&rows, now_ms);
	key_look_begin(&both, now_ms);
	version_answer(&both, NULL);
	rows_answer(&both, 7, 0, NULL);
	now_ms++;
	assert_int_equal(rows.from, 9);
	assert_int_equal(rows_answer(&rows, 9, 0, NULL), KEY_READ_NOTHING);
	assert_int_not_equal(watch.told_ms, now_ms);
	assert_int_equal(watch.rows_version, 0);
}

static void test_records_that_cannot_be_read(void **state)
{
	const struct record records[] = { { .version = 4 }, LIVE(5) };

	(void)state;
	key_look_begin(&rows, now_ms);
	rows_answer(&rows, 5, 2, records);
	assert_int_equal(watch.told_ms, now_ms);
	assert_int_equal(find(TEXT, 0), KEY_ACCEPTED);
	now_ms++;
	key_look_begin(&redis, now_ms);
	version_answer(&redis, "5");
	all_answer(&redis, "5", 2, records);
	assert_int_equal(watch.told_ms, now_ms);
	assert_false(redis.has_changed);
}

static void test_stores_of_different_installations(void **state)
{
	uint64_t asked;

	(void)state;
	POSTGRES(5, LIVE(5));
	key_look_begin(&redis, now_ms);
	key_look_begin(&rows, now_ms);
	watch.is_foreign = 1;
	/* What is under way tells nothing, */
	now_ms++;
	assert_int_equal(version_answer(&redis, "9"), KEY_READ_NOTHING);
	assert_int_equal(rows_answer(&rows, 9, 1, &(struct record)REVOKED(9)), KEY_READ_NOTHING);
	assert_int_not_equal(watch.told_ms, now_ms);
	/* and nothing is read, nor waited for. */
	asked = key_watch_ask(&watch, 1);
	assert_int_equal(key_look_begin(&redis, now_ms), KEY_READ_NOTHING);
	assert_int_equal(key_look_begin(&rows, now_ms), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 0);
	assert_int_equal(key_look_begin(&question, now_ms), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), -1);
	/* What is known is judged by that for a while. */
	assert_found(TEXT, KEY_ACCEPTED, KEY_ACCEPTED, KEY_ACCEPTED);
	assert_found(OTHER_TEXT, KEY_MAY_BE_NEW, KEY_REFUSED, KEY_UNTOLD);
	watch.is_foreign = 0;
	assert_true(POSTGRES(9, REVOKED(9)));
}

/* ---- questions */

static void test_a_question_asks_redis_first(void **state)
{
	uint64_t asked = key_watch_ask(&watch, 1);

	(void)state;
	assert_int_equal(key_look_begin(&question, now_ms), KEY_READ_VERSION);
	assert_int_equal(version_answer(&question, "5"), KEY_READ_ALL);
	assert_int_equal(key_watch_told(&watch, asked), 0);
	assert_int_equal(all_answer(&question, "5", 1, &(struct record)LIVE(5)), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
	assert_int_equal(find(TEXT, 1), KEY_ACCEPTED);

	asked = key_watch_ask(&watch, 1);
	key_look_begin(&question, now_ms);
	assert_int_equal(version_answer(&question, "5"), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
}

static void test_a_question_to_postgresql(void **state)
{
	uint64_t asked = key_watch_ask(&watch, 1);

	(void)state;
	/* Redis is away, */
	key_look_begin(&question, now_ms);
	assert_int_equal(key_look_reply(&question, NULL, now_ms), KEY_READ_ROWS);
	assert_int_equal(rows_answer(&question, 5, 1, &(struct record)LIVE(5)), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
	/* or behind: then all that it has is of no use. */
	asked = key_watch_ask(&watch, 1);
	key_look_begin(&question, now_ms);
	assert_int_equal(version_answer(&question, "4"), KEY_READ_ROWS);
	assert_int_equal(rows_answer(&question, 5, 0, NULL), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
	/* Both are. */
	asked = key_watch_ask(&watch, 1);
	key_look_begin(&question, now_ms);
	version_answer(&question, "4");
	assert_int_equal(key_look_rows(&question, NULL, now_ms), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), -1);
	/* PostgreSQL is, too. */
	asked = key_watch_ask(&watch, 1);
	key_look_begin(&question, now_ms);
	version_answer(&question, "4");
	assert_int_equal(rows_answer(&question, 4, 0, NULL), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), -1);
}

/* Redis was behind and told all when a look noticed; a question from before is not answered. */
static void test_a_question_to_a_redis_that_was_put_back(void **state)
{
	uint64_t asked;

	(void)state;
	REDIS("9", LIVE(9));
	asked = key_watch_ask(&watch, 1);
	now_ms++;
	key_look_begin(&both, now_ms);
	version_answer(&both, "5");
	assert_int_equal(all_answer(&both, "5", 0, NULL), KEY_READ_ROWS);
	assert_int_equal(key_look_rows(&both, NULL, now_ms), KEY_READ_NOTHING);
	assert_int_equal(watch.told_ms, now_ms);
	assert_int_equal(key_watch_told(&watch, asked), -1);
	/* By now it is what there is. */
	asked = key_watch_ask(&watch, 1);
	key_look_begin(&both, now_ms);
	assert_int_equal(version_answer(&both, "5"), KEY_READ_ROWS);
	assert_int_equal(key_look_rows(&both, NULL, now_ms), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
}

static void test_a_look_at_both_stores(void **state)
{
	uint64_t asked = key_watch_ask(&watch, 0);

	(void)state;
	/* Redis tells, and PostgreSQL may have what Redis was not told. */
	key_look_begin(&both, now_ms);
	version_answer(&both, "5");
	assert_int_equal(all_answer(&both, "5", 1, &(struct record)LIVE(5)), KEY_READ_ROWS);
	assert_true(both.has_changed);
	assert_int_equal(rows_answer(&both, 6, 1, &(struct record)REVOKED(6)), KEY_READ_NOTHING);
	assert_int_equal(key_watch_told(&watch, asked), 1);
	assert_int_equal(find(TEXT, 1), KEY_REFUSED);
	/* PostgreSQL alone. */
	asked = key_watch_ask(&watch, 0);
	key_look_begin(&both, now_ms);
	assert_int_equal(key_look_reply(&both, NULL, now_ms), KEY_READ_ROWS);
	rows_answer(&both, 6, 0, NULL);
	assert_int_equal(key_watch_told(&watch, asked), 1);
	/* Neither. */
	asked = key_watch_ask(&watch, 0);
	key_look_begin(&both, now_ms);
	key_look_reply(&both, NULL, now_ms);
	key_look_rows(&both, NULL, now_ms);
	assert_int_equal(key_watch_told(&watch, asked), -1);
}

static void test_those_who_ask_share_a_question(void **state)
{
	uint64_t first = key_watch_ask(&watch, 1), second;

	(void)state;
	/* One that was never asked has been answered. */
	assert_int_equal(key_watch_told(&watch, 0), 1);
	assert_int_equal(key_watch_ask(&watch, 0), first);
	key_look_begin(&question, now_ms);
	/* This one has begun: what it finds may be from before. */
	second = key_watch_ask(&watch, 1);
	assert_int_equal(second, first + 1);
	key_look_reply(&question, NULL, now_ms);
	key_look_rows(&question, NULL, now_ms);
	assert_int_equal(key_watch_told(&watch, first), -1);
	assert_int_equal(key_watch_told(&watch, second), 0);
	key_look_begin(&question, now_ms);
	key_look_reply(&question, NULL, now_ms);
	rows_answer(&question, 5, 0, NULL);
	assert_int_equal(key_watch_told(&watch, second), 1);
	/* The store has told since the first one, too. */
	assert_int_equal(key_watch_told(&watch, first), 1);
	assert_int_equal(key_watch_told(&watch, second + 1), 0);
	/* Looks that were not asked for answer none. */
	second = key_watch_ask(&watch, 1);
	POSTGRES(6, LIVE(6));
	assert_int_equal(key_watch_told(&watch, second), 0);
}

/* ---- when */

static void test_when_a_look_is_due(void **state)
{
	(void)state;
	assert_true(key_look_due_ms(&rows) <= now_ms);
	key_look_begin(&rows, now_ms);
	assert_int_equal(key_look_due_ms(&rows), INT64_MAX);
	now_ms += 100;
	key_look_rows(&rows, NULL, now_ms);
	assert_int_equal(key_look_due_ms(&rows), now_ms + 500);
	/* It is none of its questions. */
	key_watch_ask(&watch, 1);
	assert_int_equal(key_look_due_ms(&rows), now_ms + 500);
	/* A notice is not lost while a look is under way. */
	watch.notices_n++;
	assert_true(key_look_due_ms(&rows) <= now_ms);
	key_look_begin(&rows, now_ms);
	watch.notices_n++;
	assert_int_equal(key_look_due_ms(&rows), INT64_MAX);
	key_look_rows(&rows, NULL, now_ms);
	assert_true(key_look_due_ms(&rows) <= now_ms);
	key_look_begin(&rows, now_ms);
	key_look_rows(&rows, NULL, now_ms);
	assert_int_equal(key_look_due_ms(&rows), now_ms + 500);
}

static void test_when_a_question_is_due(void **state)
{
	(void)state;
	watch.notices_n++;
	assert_int_equal(key_look_due_ms(&question), INT64_MAX);
	key_watch_ask(&watch, 1);
	assert_true(key_look_due_ms(&question) <= now_ms);
	key_look_begin(&question, now_ms);
	key_watch_ask(&watch, 1);
	assert_int_equal(key_look_due_ms(&question), INT64_MAX);
	key_look_reply(&question, NULL, now_ms);
	key_look_rows(&question, NULL, now_ms);
	assert_true(key_look_due_ms(&question) <= now_ms);
	key_look_begin(&question, now_ms);
	key_look_reply(&question, NULL, now_ms);
	key_look_rows(&question, NULL, now_ms);
	assert_int_equal(key_look_due_ms(&question), INT64_MAX);
}

static void test_strangers_ask_less_often(void **state)
{
	(void)state;
	key_look_begin(&both, now_ms);
	key_look_reply(&both, NULL, now_ms);
	key_look_rows(&both, NULL, now_ms);
	assert_int_equal(key_look_due_ms(&both), now_ms + 500);
	key_watch_ask(&watch, 0);
	assert_int_equal(key_look_due_ms(&both), now_ms + 100);
	key_watch_ask(&watch, 1);
	key_watch_ask(&watch, 0);
	assert_true(key_look_due_ms(&both) <= now_ms);
	key_look_begin(&both, now_ms);
	key_look_reply(&both, NULL, now_ms);
	key_look_rows(&both, NULL, now_ms);
	key_watch_ask(&watch, 0);
	assert_int_equal(key_look_due_ms(&both), now_ms + 100);
}

static void test_commands(void **state)
{
	const char *words[KEY_READ_WORDS];

	(void)state;
	assert_int_equal(key_read_words(KEY_READ_VERSION, words), 3);
	assert_string_equal(words[0], "HGET");
	assert_string_equal(words[1], KEYS_KEY);
	assert_string_equal(words[2], "version");
	assert_int_equal(key_read_words(KEY_READ_ALL, words), 2);
	assert_string_equal(words[0], "HGETALL");
	assert_string_equal(words[1], KEYS_KEY);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_never_known),
		TEST(test_a_store_without_keys_tells),
		TEST(test_either_store_is_enough),
		TEST(test_a_key_that_is_revoked),
		TEST(test_a_key_of_some_coupons),
		TEST(test_for_how_long_keys_are_judged),
		TEST(test_redis_is_read_when_it_has_changed),
		TEST(test_a_redis_that_cannot_tell),
		TEST(test_a_postgresql_that_cannot_tell),
		TEST(test_rows_that_are_newer_than_replies),
		TEST(test_replies_that_are_newer_than_rows),
		TEST(test_a_redis_that_has_lost_its_data),
		TEST(test_a_postgresql_that_was_put_back),
		TEST(test_a_postgresql_that_was_put_back_and_redis_knows_more),
		TEST(test_pages),
		TEST(test_looks_side_by_side),
		TEST(test_records_that_cannot_be_read),
		TEST(test_stores_of_different_installations),
		TEST(test_a_question_asks_redis_first),
		TEST(test_a_question_to_postgresql),
		TEST(test_a_question_to_a_redis_that_was_put_back),
		TEST(test_a_look_at_both_stores),
		TEST(test_those_who_ask_share_a_question),
		TEST(test_when_a_look_is_due),
		TEST(test_when_a_question_is_due),
		TEST(test_strangers_ask_less_often),
		TEST(test_commands),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}

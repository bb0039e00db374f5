/*
 * The table of API keys: which records it takes, which of two it believes, whose a text is, and how
 * long a grant lasts.
 */
#include "common/api_keys.h"

#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ID "0a1b2c3d4e"
#define OTHER_ID "zzzzzzzzzz"
#define NOW 1700000000000
#define A "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

/* Texts of keys, by what is behind the id. */
#define FIRST "cmq_" ID "_" A "1"
#define SECOND "cmq_" ID "_" A "2"
#define THIRD "cmq_" ID "_" A "3"

static struct keys *keys;

static int setup(void **state)
{
	(void)state;
	keys = keys_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	keys_free(keys);
	return 0;
}

static const char *hex(const char *text, char out[2 * KEY_HASH_SIZE + 1])
{
	unsigned char hash[KEY_HASH_SIZE];

	SHA256((const unsigned char *)text, strlen(text), hash);
	for (int i = 0; i < KEY_HASH_SIZE; i++)
		snprintf(out + 2 * i, 3, "%02x", hash[i]);
	return out;
}

/* A record, as PostgreSQL makes it. Members are in JSON; NULL: as usual. */
struct record {
	const char *id, *name, *version, *roles, *coupons, *expires_ms, *rate, *sha256, *previous;
	const char *budgets, *revoked;
};

static const char * or (const char *text, const char *usual)
{
	return text ? text : usual;
}

static const char *text_of(const struct record *record)
{
	static char text[40000];
	char usual[2 * KEY_HASH_SIZE + 1], quoted[2 * KEY_HASH_SIZE + 3];

	snprintf(quoted, sizeof(quoted), "\"%s\"", hex(FIRST, usual));
	snprintf(text, sizeof(text),
		 "{\"id\":%s,\"name\":%s,\"version\":%s,\"roles\":%s,\"coupons\":%s,"
		 "\"budgets\":%s,\"expires_ms\":%s,\"rate\":%s,\"sha256\":%s,\"previous\":%s,"
		 "\"revoked\":%s}",
		 or (record->id, "\"" ID "\""), or (record->name, "\"shop\""),
		 or (record->version, "1"), or (record->roles, "[\"issue\"]"),
		 or (record->coupons, "null"), or (record->budgets, "null"),
		 or (record->expires_ms, "null"), or (record->rate, "null"),
		 or (record->sha256, quoted), or (record->previous, "null"),
		 or (record->revoked, "false"));
	return text;
}

#define MERGE(...) merge(&(struct record){ __VA_ARGS__ })
static enum keys_merged merge(const struct record *record)
{
	const char *text = text_of(record);

	return keys_merge(keys, text, strlen(text));
}

static enum key_verdict find_at(const char *text, int64_t now_ms, struct key_grant *grant)
{
	enum key_verdict verdict = keys_find(keys, text, strlen(text), now_ms, grant);

	assert_int_equal(verdict == KEY_GOOD, grant->key != NULL);
	return verdict;
}

static enum key_verdict find(const char *text)
{
	return find_at(text, NOW, &(struct key_grant){ .key = NULL });
}

static const struct api_key *known(void)
{
	const struct api_key *key = keys_get(keys, ID, KEY_ID_LEN);

	assert_non_null(key);
	return key;
}

/* "sha256" and "previous" of a record that was rotated. */
static const char *sha256_of(const char *text)
{
	static char quoted[2 * KEY_HASH_SIZE + 3];
	char digits[2 * KEY_HASH_SIZE + 1];

	snprintf(quoted, sizeof(quoted), "\"%s\"", hex(text, digits));
	return quoted;
}

static const char *previous_of(const char *text, int64_t until_ms)
{
	static char object[160];
	char digits[2 * KEY_HASH_SIZE + 1];

	snprintf(object, sizeof(object), "{\"sha256\" : \"%s\", \"until_ms\" : %lld}",
		 hex(text, digits), (long long)until_ms);
	return object;
}

static void test_all_members(void **state)
{
	const struct api_key *key;

	(void)state;
	assert_int_equal(MERGE(.name = "\"shop.eu-1_a\"", .version = "17",
			       .roles = "[\"issue\",\"read\",\"monitor\",\"admin\"]",
			       .coupons = "[\"9223372036854775807\",\"1001\",\"7\",\"1001\"]",
			       .expires_ms = "1700000000001", .rate = "500", .revoked = "false"),
			 KEYS_CHANGED);
	key = known();
	assert_string_equal(key->id, ID);
	assert_string_equal(key->name, "shop.eu-1_a");
	assert_int_equal(key->version, 17);
	assert_int_equal(key->roles,
			 KEY_ROLE_ISSUE | KEY_ROLE_READ | KEY_ROLE_MONITOR | KEY_ROLE_ADMIN);
	assert_int_equal(key->coupons_n, 3);
	assert_int_equal(key->coupons[0], 7);
	assert_int_equal(key->coupons[1], 1001);
	assert_int_equal(key->coupons[2], INT64_MAX);
	assert_int_equal(key->expires_ms, NOW + 1);
	assert_int_equal(key->rate, 500);
	assert_false(key->is_revoked);
	assert_true(key_has_coupon(key, 7) && key_has_coupon(key, INT64_MAX));
	assert_false(key_has_coupon(key, 8));
}

static void test_members_that_are_null(void **state)
{
	(void)state;
	assert_int_equal(MERGE(.roles = "[\"read\"]"), KEYS_CHANGED);
	assert_null(known()->coupons);
	assert_true(key_has_coupon(known(), 8));
	assert_int_equal(known()->expires_ms, INT64_MAX);
	assert_int_equal(known()->rate, 0);
	assert_int_equal(known()->roles, KEY_ROLE_READ);
}

static void test_budgets(void **state)
{
	(void)state;
	assert_int_equal(MERGE(.version = "1"), KEYS_CHANGED);
	assert_true(key_has_budget(known(), "spring"));
	assert_int_equal(MERGE(.version = "2", .coupons = "[\"7\"]"), KEYS_CHANGED);
	assert_false(key_has_budget(known(), "spring"));
	assert_int_equal(MERGE(.version = "3", .coupons = "[\"7\"]",
			       .budgets = "[\"spring\",\"A-1\"]"),
			 KEYS_CHANGED);
	assert_true(key_has_budget(known(), "spring") && key_has_budget(known(), "A-1"));
	assert_false(key_has_budget(known(), "sprin") || key_has_budget(known(), "none"));
	assert_int_equal(MERGE(.version = "4", .revoked = "true"), KEYS_CHANGED);
	assert_false(key_has_budget(known(), "spring"));
}

static void test_malformed_records(void **state)
{
	static const struct record wrong[] = {
		{ .id = "\"0a1b2c3d4\"" },
		{ .id = "\"0a1b2c3d4e5\"" },
		{ .id = "\"0a1b2c3d4u\"" }, /* no digit of Crockford's base32 */
		{ .id = "\"0A1B2C3D4E\"" },
		{ .name = "\"\"" },
		{ .name = "\"a b\"" },
		{ .name = "null" },
		{ .version = "0" },
		{ .version = "1.5" },
		{ .version = "\"1\"" },
		{ .version = "9007199254740992" },
		{ .roles = "[]" },
		{ .roles = "\"issue\"" },
		{ .roles = "[\"issue\",\"root\"]" },
		{ .coupons = "[]" },
		{ .coupons = "[1001]" },
		{ .coupons = "[\"1001\",\"x\"]" },
		{ .coupons = "[\"0\"]" },
		{ .budgets = "[\"b\"]" }, /* of a key of every coupon */
		{ .coupons = "[\"1\"]", .budgets = "[]" },
		{ .coupons = "[\"1\"]", .budgets = "\"b\"" },
		{ .coupons = "[\"1\"]", .budgets = "[\"b\",1]" },
		{ .coupons = "[\"1\"]", .budgets = "[\"a b\"]" },
		{ .expires_ms = "-1" },
		{ .rate = "0" },
		{ .rate = "1000001" },
		{ .sha256 = "\"ab\"" },
		{ .previous = "[]" },
		{ .previous = "{\"sha256\":null,\"until_ms\":1}" },
		{ .revoked = "null" },
		{ .revoked = "\"false\"" },
		{ .revoked = "false,\"revoked\":true" }
	};
	static const char *const no_records[] = { "", "{", "null", "[]", "17", "{}" };
	size_t n = sizeof(wrong) / sizeof(wrong[0]),
	       others = sizeof(no_records) / sizeof(no_records[0]);
	char digits[2 * KEY_HASH_SIZE + 3] = "\"";

	(void)state;
	for (size_t i = 0; i < n; i++)
		if (merge(&wrong[i]) != KEYS_MALFORMED)
			fail_msg("%s", text_of(&wrong[i]));
	for (size_t i = 0; i < others; i++)
		assert_int_equal(keys_merge(keys, no_records[i], strlen(no_records[i])),
				 KEYS_MALFORMED);
	memset(digits + 1, 'G', 2 * KEY_HASH_SIZE);
	strcat(digits, "\"");
	assert_int_equal(MERGE(.sha256 = digits), KEYS_MALFORMED);
	assert_int_equal(MERGE(.previous = "{\"sha256\":\"ab\",\"until_ms\":1}"), KEYS_MALFORMED);
	assert_null(keys_get(keys, ID, KEY_ID_LEN));
}

static void test_too_many_coupons(void **state)
{
	char list[KEY_COUPONS_MAX * 8] = "[\"1\"";

	(void)state;
	for (int i = 2; i <= KEY_COUPONS_MAX; i++)
		sprintf(list + strlen(list), ",\"%d\"", i);
	strcat(list, "]");
	assert_int_equal(MERGE(.coupons = list), KEYS_CHANGED);
	assert_int_equal(known()->coupons_n, KEY_COUPONS_MAX);
	strcpy(strchr(list, ']'), ",\"1\"]");
	assert_int_equal(MERGE(.coupons = list, .version = "2"), KEYS_MALFORMED);
}

static void test_too_long(void **state)
{
	static char text[20000];
	size_t len;

	(void)state;
	strcpy(text, text_of(&(struct record){ .id = NULL }));
	len = strlen(text);
	memset(text + len, ' ', sizeof(text) - len);
	assert_int_equal(keys_merge(keys, text, 16384), KEYS_CHANGED);
	assert_int_equal(keys_merge(keys, text, 16385), KEYS_MALFORMED);
}

/* An older gateway works on when records have got another member. */
static void test_unknown_members(void **state)
{
	(void)state;
	assert_int_equal(MERGE(.revoked = "false,\"later\":{}"), KEYS_CHANGED);
}

static void test_the_higher_version_replaces(void **state)
{
	const struct api_key *key;
	uint64_t generation;

	(void)state;
	MERGE(.version = "5", .rate = "5");
	key = known();
	generation = key->generation;
	assert_int_equal(MERGE(.version = "5", .rate = "9"), KEYS_KNOWN);
	assert_int_equal(MERGE(.version = "4", .rate = "4", .coupons = "[\"1\"]"), KEYS_KNOWN);
	assert_int_equal(key->rate, 5);
	assert_int_equal(key->generation, generation);
	assert_int_equal(MERGE(.version = "6", .rate = "6", .coupons = "[\"1\"]"), KEYS_CHANGED);
	assert_ptr_equal(known(), key);
	assert_int_equal(key->rate, 6);
	assert_int_equal(key->version, 6);
	assert_int_not_equal(key->generation, generation);
}

static void test_revoked_stays_revoked(void **state)
{
	(void)state;
	MERGE(.version = "5", .coupons = "[\"1\"]");
	assert_int_equal(find(FIRST), KEY_GOOD);
	assert_int_equal(MERGE(.version = "6", .revoked = "true"), KEYS_CHANGED);
	assert_int_equal(find(FIRST), KEY_REVOKED);
	assert_int_equal(MERGE(.version = "7"), KEYS_KNOWN);
	assert_true(known()->is_revoked);
	assert_int_equal(find(FIRST), KEY_REVOKED);
	assert_int_equal(known()->roles, 0);
	assert_false(key_has_coupon(known(), 1));
	assert_int_equal(MERGE(.version = "9", .revoked = "true"), KEYS_CHANGED);
	assert_int_equal(known()->version, 9);
}

/* A PostgreSQL that was put back has taken the numbers after that anew. */
static void test_revoked_by_a_lower_version(void **state)
{
	(void)state;
	MERGE(.version = "9");
	assert_int_equal(MERGE(.version = "6", .revoked = "true"), KEYS_CHANGED);
	assert_int_equal(find(FIRST), KEY_REVOKED);
	assert_int_equal(MERGE(.version = "9"), KEYS_KNOWN);
	assert_int_equal(find(FIRST), KEY_REVOKED);
}

static void test_texts_of_another_form(void **state)
{
	static const char *const texts[] = { "",
					     "cmq_",
					     "cmq_" ID,
					     "cmq_" ID "_",
					     "cmq_" ID "_" A,
					     "cmq_" ID "_" A "11",
					     "CMQ_" ID "_" A "1",
					     "cmq-" ID "_" A "1",
					     "cmq_" ID "-" A "1",
					     "cmq_0a1b2c3d4u_" A "1",
					     "cmq_0A1B2C3D4E_" A "1",
					     "cmq_" ID "_" A "=",
					     "cmq_" ID "_" A "+",
					     " cmq_" ID "_" A };

	(void)state;
	MERGE(.version = "1");
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (find(texts[i]) != KEY_FORM)
			fail_msg("%s", texts[i]);
	/* A NUL is no byte of a key. */
	assert_int_equal(keys_find(keys, "cmq_" ID "_" A "\0", KEY_TEXT_LEN, NOW,
				   &(struct key_grant){ .key = NULL }),
			 KEY_FORM);
}

static void test_whose_a_text_is(void **state)
{
	struct key_grant grant;

	(void)state;
	MERGE(.version = "1");
	MERGE(.id = "\"" OTHER_ID "\"", .version = "2",
	      .sha256 = sha256_of("cmq_" OTHER_ID "_" A "1"));
	assert_int_equal(find_at(FIRST, NOW, &grant), KEY_GOOD);
	assert_ptr_equal(grant.key, known());
	assert_int_equal(find_at("cmq_" OTHER_ID "_" A "1", NOW, &grant), KEY_GOOD);
	assert_string_equal(grant.key->id, OTHER_ID);
	assert_int_equal(find(SECOND), KEY_WRONG);
	/* The secret of one key with the id of the other. */
	assert_int_equal(find("cmq_" OTHER_ID "_" A "2"), KEY_WRONG);
	assert_int_equal(find("cmq_0000000000_" A "1"), KEY_UNKNOWN);
}

static void test_expiry(void **state)
{
	struct key_grant grant;

	(void)state;
	MERGE(.expires_ms = "1700000000000");
	assert_int_equal(find_at(FIRST, NOW - 1, &grant), KEY_GOOD);
	assert_int_equal(grant.until_ms, NOW);
	assert_int_equal(find_at(FIRST, NOW, &grant), KEY_EXPIRED);
	assert_int_equal(find_at(SECOND, NOW, &grant), KEY_WRONG);
	/* Before an overlap ends. */
	MERGE(.version = "2", .expires_ms = "1700000000000", .sha256 = sha256_of(SECOND),
	      .previous = previous_of(FIRST, NOW + 1000));
	assert_int_equal(find_at(FIRST, NOW - 1, &grant), KEY_GOOD);
	assert_int_equal(grant.until_ms, NOW);
	assert_int_equal(find_at(FIRST, NOW, &grant), KEY_EXPIRED);
}

static void test_the_previous_secret(void **state)
{
	struct key_grant grant;

	(void)state;
	MERGE(.version = "1");
	MERGE(.version = "2", .sha256 = sha256_of(SECOND), .previous = previous_of(FIRST, NOW));
	assert_int_equal(find_at(SECOND, NOW + 1000, &grant), KEY_GOOD);
	assert_int_equal(grant.until_ms, INT64_MAX);
	assert_int_equal(find_at(FIRST, NOW - 1, &grant), KEY_GOOD);
	assert_int_equal(grant.until_ms, NOW);
	assert_int_equal(find_at(FIRST, NOW, &grant), KEY_WRONG);
	/* A second rotation ends the first overlap at once. */
	MERGE(.version = "3", .sha256 = sha256_of(THIRD), .previous = previous_of(SECOND, NOW));
	assert_int_equal(find_at(FIRST, NOW - 1, &grant), KEY_WRONG);
	assert_int_equal(find_at(SECOND, NOW - 1, &grant), KEY_GOOD);
	/* Without an overlap. */
	MERGE(.version = "4", .sha256 = sha256_of(FIRST));
	assert_int_equal(find_at(SECOND, NOW - 1, &grant), KEY_WRONG);
	assert_int_equal(find_at(THIRD, NOW - 1, &grant), KEY_WRONG);
	assert_int_equal(find_at(FIRST, NOW - 1, &grant), KEY_GOOD);
}

/* Where there is no previous secret, that of a key of zeros must not be one. */
static void test_no_previous_secret(void **state)
{
	char zeros[2 * KEY_HASH_SIZE + 3] = "\"";

	(void)state;
	memset(zeros + 1, '0', 2 * KEY_HASH_SIZE);
	strcat(zeros, "\"");
	MERGE(.sha256 = zeros);
	assert_int_equal(find(FIRST), KEY_WRONG);
}

static void test_a_grant_lasts_until_its_time(void **state)
{
	struct key_grant grant;

	(void)state;
	MERGE(.version = "2", .expires_ms = "1700000001000", .sha256 = sha256_of(SECOND),
	      .previous = previous_of(FIRST, NOW));
	find_at(FIRST, NOW - 2, &grant);
	assert_int_equal(key_grant_check(&grant, NOW - 1), KEY_GOOD);
	assert_int_equal(key_grant_check(&grant, NOW), KEY_WRONG);
	find_at(SECOND, NOW, &grant);
	assert_int_equal(key_grant_check(&grant, NOW + 999), KEY_GOOD);
	assert_int_equal(key_grant_check(&grant, NOW + 1000), KEY_EXPIRED);
}

static void test_a_grant_notices_changes(void **state)
{
	struct key_grant grant;
	uint64_t before;

	(void)state;
	MERGE(.version = "1");
	find_at(FIRST, NOW, &grant);
	before = grant.generation;
	/* Another key does not matter. */
	MERGE(.id = "\"" OTHER_ID "\"", .version = "2");
	assert_int_equal(key_grant_check(&grant, NOW), KEY_GOOD);
	assert_int_equal(grant.generation, before);
	/* Rotated: what was presented is the previous secret now. */
	MERGE(.version = "3", .sha256 = sha256_of(SECOND), .previous = previous_of(FIRST, NOW + 5));
	assert_int_equal(key_grant_check(&grant, NOW), KEY_GOOD);
	assert_int_not_equal(grant.generation, before);
	assert_int_equal(grant.until_ms, NOW + 5);
	assert_int_equal(key_grant_check(&grant, NOW + 5), KEY_WRONG);
	find_at(SECOND, NOW, &grant);
	MERGE(.version = "4", .sha256 = sha256_of(SECOND), .revoked = "true");
	assert_int_equal(key_grant_check(&grant, NOW), KEY_REVOKED);
	/* It stays ended. */
	assert_int_equal(key_grant_check(&grant, NOW), KEY_REVOKED);
}

/* By a certificate or a user of the machine. It lasts over a rotation. */
static void test_found_by_its_id(void **state)
{
	struct key_grant grant;

	(void)state;
	MERGE(.version = "1", .expires_ms = "1700000001000");
	assert_int_equal(keys_find_by_id(keys, OTHER_ID, KEY_ID_LEN, NOW, &grant), KEY_UNKNOWN);
	assert_int_equal(keys_find_by_id(keys, ID, KEY_ID_LEN - 1, NOW, &grant), KEY_UNKNOWN);
	assert_int_equal(keys_find_by_id(keys, ID, KEY_ID_LEN, NOW + 1000, &grant), KEY_EXPIRED);
	assert_null(grant.key);
	assert_int_equal(keys_find_by_id(keys, ID, KEY_ID_LEN, NOW, &grant), KEY_GOOD);
	assert_ptr_equal(grant.key, known());
	MERGE(.version = "2", .expires_ms = "1700000002000", .sha256 = sha256_of(SECOND));
	assert_int_equal(key_grant_check(&grant, NOW + 1999), KEY_GOOD);
	assert_int_equal(key_grant_check(&grant, NOW + 2000), KEY_EXPIRED);
	MERGE(.version = "3", .revoked = "true");
	assert_int_equal(key_grant_check(&grant, NOW), KEY_REVOKED);
	assert_int_equal(keys_find_by_id(keys, ID, KEY_ID_LEN, NOW, &grant), KEY_REVOKED);
}

static enum keys_merged numbered_merge(int number, int is_revoked)
{
	char id[24], version[16];

	snprintf(id, sizeof(id), "\"%010d\"", number);
	snprintf(version, sizeof(version), "%d", number + 1);
	return MERGE(.id = id, .version = version, .revoked = is_revoked ? "true" : "false");
}

/* Revoked keys never take the room of other keys, nor the other way round. */
static void test_bounds(void **state)
{
	int n = 0;

	(void)state;
	for (; n < KEYS_LIVE_MAX; n++)
		assert_int_equal(numbered_merge(n, 0), KEYS_CHANGED);
	assert_int_equal(numbered_merge(n, 0), KEYS_FULL);
	assert_int_equal(numbered_merge(0, 1), KEYS_CHANGED);
	assert_int_equal(numbered_merge(n, 0), KEYS_CHANGED);
	assert_int_equal(numbered_merge(n + 1, 0), KEYS_FULL);
	for (int i = 1; i < KEYS_REVOKED_MAX; i++)
		assert_int_equal(numbered_merge(n + i, 1), KEYS_CHANGED);
	assert_int_equal(numbered_merge(n + KEYS_REVOKED_MAX, 1), KEYS_FULL);
	/* What is known can always be revoked. */
	assert_int_equal(numbered_merge(2, 1), KEYS_CHANGED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_all_members),
		TEST(test_members_that_are_null),
		TEST(test_budgets),
		TEST(test_malformed_records),
		TEST(test_too_many_coupons),
		TEST(test_too_long),
		TEST(test_unknown_members),
		TEST(test_the_higher_version_replaces),
		TEST(test_revoked_stays_revoked),
		TEST(test_revoked_by_a_lower_version),
		TEST(test_texts_of_another_form),
		TEST(test_whose_a_text_is),
		TEST(test_expiry),
		TEST(test_the_previous_secret),
		TEST(test_no_previous_secret),
		TEST(test_a_grant_lasts_until_its_time),
		TEST(test_a_grant_notices_changes),
		TEST(test_found_by_its_id),
		TEST(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

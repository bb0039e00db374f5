/* The names of keys in Redis, and the meaning of its replies and errors. */
#include "common/redis/redis_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_key_names(void **state)
{
	char key[COUPON_KEY_SIZE];

	(void)state;
	assert_string_equal(coupon_key(1001, COUPON_KEY_COUPON, key), "coupon:{1001}");
	assert_string_equal(coupon_key(1001, COUPON_KEY_USERS, key), "coupon:{1001}:users");
	assert_string_equal(coupon_key(1001, COUPON_KEY_OUTBOX, key), "coupon:{1001}:outbox");
	assert_string_equal(coupon_key(1001, COUPON_KEY_KNOWN, key), "coupon:{1001}:known");
	assert_string_equal(coupon_key(INT64_MAX, COUPON_KEY_SEEN, key),
			    "coupon:{9223372036854775807}:seen");
	assert_string_equal(coupon_key(1001, COUPON_KEY_DEAD, key), "coupon:{1001}:dead");
	assert_string_equal(coupon_key_filling(1001, 3, COUPON_KEY_USERS, key),
			    "coupon:{1001}:fill:3:users");
	/* The longest one fits. */
	coupon_key_filling(INT64_MAX, INT64_MAX, COUPON_KEY_KNOWN, key);
	assert_string_equal(key + strlen(key) - 6, ":known");
}

static void test_key_sets_are_in_the_order_of_scripts(void **state)
{
	struct coupon_keys keys;

	(void)state;
	coupon_keys_make(&keys, 7, COUPON_KEYS_ALL);
	assert_int_equal(keys.n, 10);
	assert_string_equal(keys.names[0], "coupon:{7}");
	assert_string_equal(keys.names[1], "coupon:{7}:users");
	assert_string_equal(keys.names[2], "coupon:{7}:outbox");
	assert_string_equal(keys.names[3], "coupon:{7}:known");
	assert_string_equal(keys.names[4], "coupon:{7}:seen");
	assert_string_equal(keys.names[5], "coupon:{7}:dead");
	assert_string_equal(keys.names[6], "coupon:{7}:settled");
	assert_string_equal(keys.names[7], "coupon:{7}:rejected");
	assert_string_equal(keys.names[8], "coupon:{7}:terms");
	assert_string_equal(keys.names[9], "coupon:{7}:codes");
	coupon_keys_make(&keys, 7, COUPON_KEYS_PLACE);
	assert_int_equal(keys.n, 6);
	assert_string_equal(keys.names[4], "coupon:{7}:seen");
	assert_string_equal(keys.names[5], "coupon:{7}:codes");
	coupon_keys_make(&keys, 7, COUPON_KEYS_CLAIM);
	assert_int_equal(keys.n, 4);
	assert_string_equal(keys.names[3], "coupon:{7}:codes");
	coupon_keys_make(&keys, 7, COUPON_KEY_COUPON | COUPON_KEY_SEEN);
	assert_int_equal(keys.n, 2);
	assert_string_equal(keys.names[1], "coupon:{7}:seen");
}

static void test_errors_of_the_server(void **state)
{
	static const char *const errors[] = {
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script.",
		"READONLY You can't write against a read only replica.",
		"MISCONF Redis is configured to save RDB snapshots",
		"NOAUTH Authentication required.",
		"NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"ERR max number of clients reached",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		assert_true(redis_error_is_of_server(errors[i]));
		assert_true(redis_error_means_not_run(errors[i]));
	}
}

static void test_errors_of_a_command(void **state)
{
	static const struct {
		const char *error;
		int not_run;
	} errors[] = {
		{ "WRONGTYPE Operation against a key holding the wrong kind of value", 0 },
		{ "ERR couponmq: coupon:{1}: not a hash", 1 },
		{ "ERR user_script:7: Script attempted to access nonexistent global variable", 0 },
		{ "OOM command not allowed when used memory > 'maxmemory'.", 1 },
		{ "NOSCRIPT No matching script.", 1 },
		{ "NOPERM this user has no permissions to run the 'eval' command", 1 },
		{ "MOVED 3999 127.0.0.1:6381", 1 },
		{ "ASK 3999 127.0.0.1:6381", 1 },
		{ "TRYAGAIN Multiple keys request during rehashing of slot", 1 },
		{ "BUSYGROUP Consumer Group name already exists", 0 },
		{ "", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		assert_false(redis_error_is_of_server(errors[i].error));
		assert_int_equal(redis_error_means_not_run(errors[i].error), errors[i].not_run);
	}
}

/* As the server sends it. */
static redisReply *reply_of(const char *wire)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;

	assert_int_equal(redisReaderFeed(reader, wire, strlen(wire)), REDIS_OK);
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	assert_non_null(reply);
	redisReaderFree(reader);
	return reply;
}

static int64_t number_of(const char *wire)
{
	redisReply *reply = reply_of(wire);
	int64_t number = redis_reply_number(reply);

	freeReplyObject(reply);
	return number;
}

static void test_numbers_and_words(void **state)
{
	char word[REDIS_WORD_SIZE];

	(void)state;
	assert_int_equal(number_of(":7\r\n"), 7);
	assert_int_equal(number_of("$2\r\n42\r\n"), 42);
	assert_int_equal(number_of("$-1\r\n"), 0);
	redis_word_take(reply_of("$6\r\nfenced\r\n"), word);
	assert_string_equal(word, "fenced");
	redis_word_take(reply_of("*2\r\n$2\r\nok\r\n:1\r\n"), word);
	assert_string_equal(word, "ok");
	redis_word_take(reply_of(":1\r\n"), word);
	assert_string_equal(word, "");
	redis_word_take(NULL, word);
	assert_string_equal(word, "");
}

#define RUN_ID "0123456789abcdef0123456789abcdef01234567"
#define HISTORY "fedcba9876543210fedcba9876543210fedcba98"
#define NONE "0000000000000000000000000000000000000000"

static struct redis_url url;
static struct redis_handshake handshake;

static void handshake_make(const char *address, enum redis_step first, enum redis_step last)
{
	redis_url_fini(&url);
	assert_int_equal(redis_url_parse(&url, address), 0);
	handshake = (struct redis_handshake){ .url = &url, .script = "return 1" };
	redis_handshake_begin(&handshake, first, last);
}

/* Passes on a reply, NULL for none; expects this command, or NULL for the end. */
static int handshake_expect(const char *bytes, const char *command)
{
	redisReply *reply = bytes ? reply_of(bytes) : NULL;
	const char *words[REDIS_HANDSHAKE_WORDS];
	int n = redis_handshake_next(&handshake, reply, words);
	char text[256] = "";

	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), i ? " %s" : "%s",
			 words[i]);
	assert_string_equal(text, command ? command : "");
	freeReplyObject(reply);
	return n;
}

static int process_of(const char *info)
{
	char bytes[1024];

	snprintf(bytes, sizeof(bytes), "$%zu\r\n%s\r\n", strlen(info), info);
	return handshake_expect(bytes, NULL);
}

#define INFO(role, before)                                                                     \
	"# Server\r\nrun_id:" RUN_ID "\r\nuptime_in_seconds:17\r\n# Replication\r\nrole:" role \
	"\r\nmaster_replid:" HISTORY "\r\nmaster_replid2:" before "\r\n"

static void test_process(void **state)
{
	static const char *const wrong[] = {
		INFO("slave", NONE),
		"# Server\r\nrun_id:" RUN_ID "\r\nuptime_in_seconds:17\r\n",
		INFO("master", "12"),
		"# Server\r\nrun_id:12\r\nuptime_in_seconds:17\r\nmaster_replid:" HISTORY
		"\r\nmaster_replid2:" NONE "\r\n",
	};

	(void)state;
	handshake_make("redis://host", REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
	handshake_expect(NULL, "INFO server replication");
	assert_int_equal(process_of(INFO("master", NONE)), 0);
	assert_string_equal(handshake.run_id, "0123456789abcdef"
					      "fedcba9876543210"
					      "00000000");
	assert_string_equal(handshake.lease_argument, handshake.run_id);
	assert_true(handshake.lease_holds);
	assert_int_equal(handshake.uptime_s, 17);
	/* It may have been promoted a moment ago. */
	redis_handshake_begin(&handshake, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
	handshake_expect(NULL, "INFO server replication");
	assert_int_equal(process_of(INFO("master", RUN_ID)), 0);
	assert_int_equal(handshake.uptime_s, 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		redis_handshake_begin(&handshake, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
		handshake_expect(NULL, "INFO server replication");
		assert_int_equal(process_of(wrong[i]), -1);
		assert_int_equal(handshake.is_replica, i == 0);
		/* What is known stays. */
		assert_string_equal(handshake.run_id + 32, "00000000");
	}
}

#define UNDER_SENTINELS "redis+sentinel://host/main"
#define LEASE_COMMAND "HMGET couponmq:lease process term from until"
#define LEASE                                                                              \
	"*4\r\n$32\r\n0123456789abcdeffedcba9876543210\r\n$3\r\n258\r\n$2\r\n70\r\n$2\r\n" \
	"90\r\n"
#define NO_LEASE "*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n"

/* The process with that lease, or another one, at that time of its clock. */
static void lease_read(const char *lease, char first_digit, const char *time)
{
	char info[512];

	redis_handshake_begin(&handshake, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
	handshake_expect(NULL, LEASE_COMMAND);
	handshake_expect(lease, "INFO server replication");
	snprintf(info, sizeof(info), INFO("master", NONE) "%s\r\n", time);
	*(strstr(info, RUN_ID)) = first_digit;
	assert_int_equal(process_of(info), 0);
}

static void test_a_lease_holds_by_the_clock_of_its_master(void **state)
{
	(void)state;
	handshake_make(UNDER_SENTINELS, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
	lease_read(LEASE, '0', "server_time_usec:69999");
	assert_false(handshake.lease_holds);
	lease_read(LEASE, '0', "server_time_usec:70000");
	assert_true(handshake.lease_holds);
	lease_read(LEASE, '0', "server_time_usec:89999");
	assert_true(handshake.lease_holds);
	lease_read(LEASE, '0', "server_time_usec:90000");
	assert_false(handshake.lease_holds);
	lease_read(LEASE, '0', "other_time_usec:80000");
	assert_false(handshake.lease_holds);
	lease_read(LEASE, '1', "server_time_usec:80000");
	assert_false(handshake.lease_holds);
	/* One that cannot be read does not hold; a busy or lost Redis says nothing of it. */
	lease_read(LEASE, '0', "server_time_usec:80000");
	for (int i = 0; i < 3; i++) {
		static const char *const replies[] = { NULL, "-BUSY x\r\n", "-NOPERM x\r\n" };

		redis_handshake_begin(&handshake, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
		handshake_expect(NULL, LEASE_COMMAND);
		assert_int_equal(handshake_expect(replies[i], NULL), -1);
		assert_int_equal(handshake.lease_holds, i < 2);
	}
}

static void test_the_run_id_has_the_term_of_its_lease(void **state)
{
	(void)state;
	handshake_make(UNDER_SENTINELS, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
	lease_read(LEASE, '0', "server_time_usec:0");
	assert_string_equal(handshake.run_id, "0123456789abcdeffedcba987654321000000102");
	assert_string_equal(handshake.lease_argument,
			    "0123456789abcdeffedcba987654321000000102:70:90");
	/* Another process, to which the record was copied, has no lease. */
	lease_read(LEASE, '1', "server_time_usec:0");
	assert_string_equal(handshake.run_id + 32, "00000000");
	assert_string_equal(handshake.lease_argument,
			    "1123456789abcdeffedcba987654321000000000:0:0");
	lease_read(NO_LEASE, '1', "server_time_usec:0");
	assert_string_equal(handshake.lease_argument,
			    "1123456789abcdeffedcba987654321000000000:0:0");
}

#define SHA "$40\r\n" RUN_ID "\r\n"
#define OK "+OK\r\n"
#define MASTER "$222\r\n" INFO("master", NONE) "\r\n"
#define REPLICA "$221\r\n" INFO("slave", NONE) "\r\n"

/* Each command with its reply, and how it ends. */
static void test_handshake(void **state)
{
	static const struct {
		const char *url;
		enum redis_step last;
		struct {
			const char *command, *reply; /* NULL: none is received */
		} steps[7];
		const char *why; /* NULL: it succeeds */
		int is_refused;
	} cases[] = {
		{ "redis://host", REDIS_STEP_SELECT, { { "SELECT 0", OK } }, NULL, 0 },
		{ "redis://:p@host/3",
		  REDIS_STEP_SELECT,
		  { { "AUTH p", OK }, { "SELECT 3", OK } },
		  NULL,
		  0 },
		{ "redis://u:p@host",
		  REDIS_STEP_SELECT,
		  { { "AUTH u p", OK }, { "SELECT 0", OK } },
		  NULL,
		  0 },
		{ "redis://u:p@host",
		  REDIS_STEP_PROBE,
		  { { "AUTH u p", "-WRONGPASS no\r\n" } },
		  "AUTH: WRONGPASS no",
		  1 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", "-NOAUTH no\r\n" } },
		  "SELECT: NOAUTH no",
		  0 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", "-LOADING Redis\r\n" } },
		  "SELECT: LOADING Redis",
		  0 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", NULL } },
		  "SELECT: no reply",
		  0 },
		{ "redis://host",
		  REDIS_STEP_PROCESS,
		  { { "SELECT 0", OK }, { "INFO server replication", MASTER } },
		  NULL,
		  0 },
		{ UNDER_SENTINELS,
		  REDIS_STEP_PROCESS,
		  { { "SELECT 0", OK },
		    { LEASE_COMMAND, NO_LEASE },
		    { "INFO server replication", REPLICA } },
		  "it is a replica",
		  0 },
		{ UNDER_SENTINELS,
		  REDIS_STEP_PROCESS,
		  { { "SELECT 0", OK }, { LEASE_COMMAND, "-NOPERM no\r\n" } },
		  "HMGET: NOPERM no",
		  1 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", OK }, { "INFO server replication", OK } },
		  "INFO replied something else",
		  1 },
		{ UNDER_SENTINELS,
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", OK },
		    { LEASE_COMMAND, LEASE },
		    { "INFO server replication", MASTER },
		    { "SCRIPT LOAD return 1", SHA },
		    { "EVALSHA " RUN_ID " 1 coupon:{0}", "-ERR no arguments\r\n" } },
		  NULL,
		  0 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", OK },
		    { "INFO server replication", MASTER },
		    { "SCRIPT LOAD return 1", ":1\r\n" } },
		  "SCRIPT LOAD replied something else",
		  1 },
		{ "redis://host",
		  REDIS_STEP_PROBE,
		  { { "SELECT 0", OK },
		    { "INFO server replication", MASTER },
		    { "SCRIPT LOAD return 1", SHA },
		    { "EVALSHA " RUN_ID " 1 coupon:{0}", "-NOPERM no\r\n" } },
		  "EVALSHA: NOPERM no",
		  1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *reply = NULL;
		int n;

		handshake_make(cases[i].url, REDIS_STEP_AUTH, cases[i].last);
		for (size_t k = 0; cases[i].steps[k].command; k++) {
			assert_true(handshake_expect(reply, cases[i].steps[k].command) > 0);
			reply = cases[i].steps[k].reply;
		}
		n = handshake_expect(reply, NULL);
		assert_int_equal(n, cases[i].why ? -1 : 0);
		assert_string_equal(handshake.why, cases[i].why ? cases[i].why : "");
		assert_int_equal(handshake.is_refused, cases[i].is_refused);
	}
}

static int writes_of(const char *text, int64_t *writes)
{
	redisReply reply = { .type = REDIS_REPLY_STRING, .str = (char *)(uintptr_t)text };

	return redis_reply_writes(&reply, writes);
}

static void test_writes(void **state)
{
	int64_t writes;

	(void)state;
	assert_int_equal(writes_of("# Persistence\r\nloading:0\r\n"
				   "rdb_changes_since_last_save:12345678901\r\nx:1\r\n",
				   &writes),
			 0);
	assert_int_equal(writes, 12345678901);
	assert_int_equal(writes_of("# Persistence\r\nloading:0\r\n", &writes), -1);
}

static void version_check(const char *info, const char *product, const char *version)
{
	redisReply reply = { .type = REDIS_REPLY_STRING, .str = (char *)(uintptr_t)info };
	char found[REDIS_VERSION_SIZE];

	assert_string_equal(redis_reply_version(&reply, found), product);
	assert_string_equal(found, version);
}

static void test_version(void **state)
{
	(void)state;
	version_check("# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:0\r\n", "Redis",
		      "7.0.15");
	version_check("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n"
		      "valkey_version:8.0.1\r\n",
		      "Valkey", "8.0.1");
	version_check("# Server\r\n", "Redis", "");
	version_check("# Server\r\nredis_version:8", "Redis", "8");
}

static void test_time_and_scan(void **state)
{
	redisReply *time = reply_of("*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n");
	redisReply *scan = reply_of("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
	int64_t time_ms;

	(void)state;
	assert_int_equal(redis_reply_time_ms(time, &time_ms), 0);
	assert_int_equal(time_ms, 1700000000123);
	assert_int_equal(redis_reply_time_ms(time->element[0], &time_ms), -1);
	assert_true(redis_reply_is_scan(scan));
	assert_false(redis_reply_is_scan(time));
	freeReplyObject(time);
	freeReplyObject(scan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key_names),
		cmocka_unit_test(test_key_sets_are_in_the_order_of_scripts),
		cmocka_unit_test(test_errors_of_the_server),
		cmocka_unit_test(test_errors_of_a_command),
		cmocka_unit_test(test_numbers_and_words),
		cmocka_unit_test(test_process),
		cmocka_unit_test(test_handshake),
		cmocka_unit_test(test_a_lease_holds_by_the_clock_of_its_master),
		cmocka_unit_test(test_the_run_id_has_the_term_of_its_lease),
		cmocka_unit_test(test_writes),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_time_and_scan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

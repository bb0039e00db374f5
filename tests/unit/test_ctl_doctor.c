/* The lines of couponctl doctor that need no store: what is ok, a warning, wrong or unknown. */
#include "ctl/doctor/doctor.h"

#include "common/check.h"
#include "ctl/doctor/vitals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static struct doctor doctor;
static FILE *own;
static char *text;
static size_t len;

static void begin(int as_json)
{
	doctor = (struct doctor){ .as_json = as_json };
	own = stdout;
	stdout = open_memstream(&text, &len);
	assert_non_null(stdout);
}

/* What was printed since; to be freed. */
static char *end(void)
{
	fclose(stdout);
	stdout = own;
	return text;
}

/* Asserts one printed line, with this state, and with a reason and a mend unless it is ok. */
static void assert_line(const char *state)
{
	char *printed = end();
	cJSON *line = checked(cJSON_Parse(printed));
	int is_ok = strcmp(state, "ok") == 0;

	assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(line, "state")), state);
	assert_int_equal(cJSON_IsNull(cJSON_GetObjectItem(line, "why")), is_ok);
	assert_int_equal(doctor.lines_n[HEALTH_WRONG], strcmp(state, "wrong") == 0);
	if (is_ok)
		assert_true(cJSON_IsNull(cJSON_GetObjectItem(line, "mend")));
	cJSON_Delete(line);
	free(printed);
}

static void test_versions(void **state)
{
	static const struct {
		const char *version, *state;
	} versions[] = {
		{ "Redis 6.2.14", "wrong" },
		{ "Redis 7.0.15", "ok" },
		{ "Redis 7.2.4", "ok" },
		{ "Redis 8.0.2", "ok" },
		{ "Redis 8.2.1", "warning" },
		{ "Valkey 8.1.1", "ok" },
		{ "Valkey 9.0.0", "warning" },
		{ "RabbitMQ 3.9.13", "wrong" },
		{ "RabbitMQ 3.10.8", "ok" },
		{ "RabbitMQ 4.0.5", "ok" },
		{ "RabbitMQ 4.1.0", "warning" },
		{ "PostgreSQL 14.11 (Debian 14.11-1)", "wrong" },
		{ "PostgreSQL 15.14 (Debian 15.14-0+deb12u1)", "ok" },
		{ "PostgreSQL 17.6", "ok" },
		{ "PostgreSQL 18.0", "warning" },
		{ "PostgreSQL 17devel", "ok" },
		{ "KeyDB 6.3.4", "unknown" },
		{ "Redis", "unknown" },
		{ "", "unknown" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		begin(1);
		version_say(&doctor, "redis.version", versions[i].version);
		assert_line(versions[i].state);
	}
}

static void test_clocks(void **state)
{
	static const int64_t aheads[] = { 0, CLOCKS_DIFFER_MS, -CLOCKS_DIFFER_MS,
					  CLOCKS_DIFFER_MS + 1, -CLOCKS_DIFFER_MS - 1 };

	(void)state;
	for (size_t i = 0; i < sizeof(aheads) / sizeof(aheads[0]); i++) {
		begin(1);
		clock_say(&doctor, "redis.clock", aheads[i]);
		assert_line(i < 3 ? "ok" : "wrong");
	}
}

static void test_shares(void **state)
{
	(void)state;
	begin(1);
	share_say(&doctor, "redis.descriptors", 7999, 10000, "why", "mend");
	assert_line("ok");
	begin(1);
	share_say(&doctor, "redis.descriptors", 8000, 10000, "why", "mend");
	assert_line("warning");
	begin(1);
	share_say(&doctor, "postgresql.descriptors", 80, 97, "why", "mend");
	assert_line("warning");
	begin(1);
	share_say(&doctor, "postgresql.descriptors", 77, 97, "why", "mend");
	assert_line("ok");
}

static void test_certificates(void **state)
{
	static const struct {
		long days;
		const char *state;
	} ends[] = {
		{ -1, "wrong" }, { 0, "wrong" }, { 5, "warning" }, { 13, "warning" }, { 15, "ok" }
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		X509 *certificate = checked(X509_new());

		assert_non_null(
			X509_gmtime_adj(X509_getm_notAfter(certificate), ends[i].days * 86400L));
		begin(1);
		certificate_say(&doctor, "certificate.COUPON_TLS_CERT", "cert.pem", certificate);
		assert_line(ends[i].state);
		X509_free(certificate);
	}
}

static void test_disks(void **state)
{
	(void)state;
	begin(1);
	disk_say(&doctor, "redis.disk", "/there/is/no/such/folder");
	assert_line("unknown");
}

static enum health call(struct doctor *one, const void *result, char *why, size_t size)
{
	(void)one;
	snprintf(why, size, "it is not allowed");
	return *(const enum health *)result;
}

static void test_times(void **state)
{
	static const enum health results[] = { HEALTH_OK, HEALTH_WRONG, HEALTH_UNKNOWN };
	static const char *const states[] = { "ok", "wrong", "unknown" };

	(void)state;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		begin(1);
		time_say(&doctor, &(struct timed){ .name = "redis.latency",
						   .what = "what",
						   .mend = "mend",
						   .n = 3,
						   .most_ms = 60000,
						   .once = call,
						   .context = &results[i] });
		assert_line(states[i]);
	}
	begin(1);
	time_say(&doctor, &(struct timed){ .name = "redis.latency",
					   .what = "what",
					   .mend = "mend",
					   .n = 3,
					   .most_ms = -1,
					   .once = call,
					   .context = &results[0] });
	assert_line("warning");
}

/* For people: each part only where there is one, and no control character. */
static void test_text(void **state)
{
	char *printed;

	(void)state;
	begin(0);
	doctor_say(&doctor, &(struct sign){ .name = "a", .wanted = "1", .why = "w", .mend = "m" },
		   "0");
	doctor_say(&doctor,
		   &(struct sign){ .name = "b",
				   .health = HEALTH_WRONG,
				   .wanted = "1",
				   .why = "it is so",
				   .mend = "do" },
		   "0");
	doctor_say(&doctor, &(struct sign){ .name = "c", .health = HEALTH_WARNING, .why = "w" },
		   "%s", "two\x1b[2J");
	doctor_unknown(&doctor, "d", "ask", "%s", "why not");
	printed = end();
	assert_string_equal(printed,
			    "ok       a                                  0\n"
			    "wrong    b                                  0, wanted 1: it is so\n"
			    "         mend: do\n"
			    "warning  c                                  two\\x1b[2J: w\n"
			    "unknown  d                                  why not\n"
			    "         mend: ask\n");
	assert_int_equal(doctor.lines_n[HEALTH_WRONG], 1);
	free(printed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions), cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_shares),   cmocka_unit_test(test_certificates),
		cmocka_unit_test(test_disks),    cmocka_unit_test(test_times),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

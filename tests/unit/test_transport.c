/* Which URLs lead to another machine unprotected. */
#include "common/postgres/postgres_session.h"
#include "common/program/weak_settings.h"
#include "common/resolving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_loopback(void **state)
{
	static const char *const here[] = {
		"localhost",       "LOCALHOST",        "127.0.0.1",       "127.255.0.9", "::1",
		"0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "/run/postgresql", "@abstract"
	};
	static const char *const elsewhere[] = {
		"",          "redis",      "localhost.example", "localhost2",  "10.0.0.1",
		"128.0.0.1", "12.7.0.0",   "0.0.0.0",           "::",          "fe80::1",
		"127.1",     "127.0.0.1.", "::ffff:10.0.0.1",   "::127.0.0.1", "fe80::1%lo",
		"2130706433"
	};

	(void)state;
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (!host_is_loopback(here[i]))
			fail_msg("%s is on this machine", here[i]);
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
		if (host_is_loopback(elsewhere[i]))
			fail_msg("%s may be elsewhere", elsewhere[i]);
}

/* Nothing of the machine that runs the test counts. */
static int environment_clear(void **state)
{
	(void)state;
	unsetenv("PGHOST");
	unsetenv("PGHOSTADDR");
	unsetenv("PGSSLMODE");
	unsetenv("PGSSLROOTCERT");
	unsetenv("PGREQUIRESSL");
	unsetenv("PGGSSENCMODE");
	unsetenv("PGSERVICE");
	setenv("PGSERVICEFILE", "/nonexistent/services", 1);
	setenv("PGSYSCONFDIR", "/nonexistent", 1);
	return 0;
}

/* NULL: it is not weak. */
static void sslmode_expect(const char *url, const char *expected)
{
	char sslmode[POSTGRES_SSLMODE_SIZE] = "";
	int is_weak = postgres_url_is_weak(url, sslmode);

	if (is_weak != (expected != NULL) || (is_weak && strcmp(sslmode, expected) != 0))
		fail_msg("%s: %s, sslmode %s, not %s", url, is_weak ? "weak" : "not weak", sslmode,
			 expected ? expected : "as expected");
}

static void test_sslmode_of_a_url(void **state)
{
	static const char *const fine[] = {
		"postgresql:///couponmq",
		"postgresql://localhost/couponmq",
		"postgresql://u:p@127.0.0.1:7432/couponmq?sslmode=disable",
		"postgresql://[::1]/couponmq",
		"postgresql://%2Frun%2Fpostgresql/couponmq",
		"host=/run/postgresql",
		"host=localhost,/run/postgresql,127.0.0.2",
		"host=localhost,,::1",
		"host=db hostaddr=127.0.0.1",
		"host=db,localhost hostaddr=127.0.0.1,",
		"postgresql://db/couponmq?sslmode=verify-full",
		"postgresql://db,10.0.0.2/couponmq?sslmode=verify-full",
		"host=db gssencmode=require",
	};
	static const struct {
		const char *url, *sslmode;
	} cases[] = {
		{ "postgresql://db/couponmq", "prefer" },
		{ "postgresql://u:p@10.0.0.2:7432/couponmq?sslmode=disable", "disable" },
		{ "host=db sslmode=require", "require" },
		{ "host=db sslmode=verify-ca", "verify-ca" },
		{ "host=localhost hostaddr=10.0.0.2", "prefer" },
		{ "host=localhost,db", "prefer" },
		{ "postgresql://localhost,127.0.0.1,db/couponmq", "prefer" },
		{ "host=localhost,db hostaddr=127.0.0.1,", "prefer" },
		{ "hostaddr=127.0.0.1,10.0.0.2", "prefer" },
		{ "host=db gssencmode=prefer", "prefer" },
		/* libpq cannot find it yet: nobody knows where it leads. */
		{ "service=elsewhere", "unknown" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		sslmode_expect(fine[i], NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		sslmode_expect(cases[i].url, cases[i].sslmode);
}

static void test_sslmode_of_the_environment(void **state)
{
	(void)state;
	setenv("PGSSLMODE", "verify-full", 1);
	sslmode_expect("postgresql://db/couponmq", NULL);
	sslmode_expect("postgresql://db/couponmq?sslmode=require", "require");
	setenv("PGSSLMODE", "allow", 1);
	sslmode_expect("postgresql://db/couponmq", "allow");
	setenv("PGHOST", "db", 1);
	sslmode_expect("postgresql:///couponmq", "allow");
	sslmode_expect("postgresql://localhost/couponmq", NULL);
	setenv("PGHOSTADDR", "10.0.0.2", 1);
	sslmode_expect("postgresql://localhost/couponmq", "allow");
}

static void test_sslmode_of_a_service(void **state)
{
	static const char text[] = "[weak]\nhost=db\n[far]\nhost=db\nsslmode=verify-full\n"
				   "[near]\nhost=/run/postgresql\n";
	char path[] = "/tmp/couponmq-services-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
	close(fd);
	setenv("PGSERVICEFILE", path, 1);
	sslmode_expect("service=weak", "prefer");
	sslmode_expect("postgresql:///couponmq?service=far", NULL);
	sslmode_expect("service=far sslmode=require", "require");
	sslmode_expect("service=near", NULL);
	setenv("PGSERVICE", "weak", 1);
	sslmode_expect("postgresql:///couponmq", "prefer");
	unlink(path);
}

/* libpq 16 and later takes verify-full from it; an earlier one takes it for a file of that name. */
static void test_sslmode_of_the_systems_certificates(void **state)
{
	(void)state;
	sslmode_expect("host=db sslrootcert=system", PQlibVersion() >= 160000 ? NULL : "prefer");
}

static int warnings_n(enum config_program program, const char *redis, const char *amqp,
		      const char *database, const char *read, const char *admin)
{
	char *const texts[] = { strdup(redis), strdup(amqp), strdup(database), strdup(read),
				strdup(admin) };
	const struct config config = { .redis_url = texts[0],
				       .amqp_url = texts[1],
				       .database_url = texts[2],
				       .database_read_url = texts[3],
				       .database_admin_url = texts[4],
				       .insecure = (char *)"no",
				       .auth = (char *)"off",
				       .tls_cert = (char *)"",
				       .listen = (char *)"127.0.0.1:7411",
				       .http_listen = (char *)"[::1]:7480",
				       .worker_http_listen = (char *)"off" };
	cJSON *array = cJSON_CreateArray();
	int n;

	transport_check(&config, program);
	n = transport_warnings(array);
	assert_int_equal(n, cJSON_GetArraySize(array));
	assert_int_equal(n, transport_warnings(NULL));
	for (int i = 0; i < n; i++) {
		const char *text = cJSON_GetArrayItem(array, i)->valuestring;

		assert_null(strstr(text, "secret"));
		if (strstr(amqp, "m1,m2") && strstr(text, "rabbitmq:"))
			assert_non_null(strstr(text, "AMQP_URL is amqp://m1,m2, wanted amqps://"));
	}
	for (int i = 0; i < 5; i++)
		free(texts[i]);
	cJSON_Delete(array);
	return n;
}

static void test_warnings(void **state)
{
	const char *redis = "redis://u:secret@localhost", *amqp = "amqp://u:secret@127.0.0.1",
		   *database = "postgresql://u:secret@localhost/c",
		   *far = "postgresql://u:secret@db/c";

	(void)state;
	assert_int_equal(warnings_n(CONFIG_GATEWAY, redis, amqp, database, "", ""), 0);
	assert_int_equal(warnings_n(CONFIG_GATEWAY, "redis://u:secret@r", "amqp://u:secret@[::2]",
				    far, far, far),
			 4);
	assert_int_equal(warnings_n(CONFIG_WORKER, "redis://u:secret@r", "amqp://u:secret@m", far,
				    far, far),
			 3);
	assert_int_equal(warnings_n(CONFIG_WORKER, "rediss://u:secret@r", "amqps://u:secret@m",
				    database, "", ""),
			 0);
	assert_int_equal(warnings_n(CONFIG_GATEWAY, redis, amqp, database, far, ""), 1);
	assert_int_equal(warnings_n(CONFIG_GATEWAY, redis,
				    "amqp://u:secret@localhost,127.0.0.1:5673,[::1]", database, "",
				    ""),
			 0);
	assert_int_equal(warnings_n(CONFIG_GATEWAY, redis, "amqp://u:secret@localhost,m1,m2:5673",
				    database, "", ""),
			 1);
	assert_int_equal(warnings_n(CONFIG_GATEWAY, redis, "amqps://u:secret@m1,m2", database, "",
				    ""),
			 0);
	assert_int_equal(warnings_n(CONFIG_CTL, "redis://r", "amqp://m", far, far, database), 0);
	assert_int_equal(warnings_n(CONFIG_CTL, redis, amqp, far, "", ""), 1);
	assert_int_equal(warnings_n(CONFIG_CTL, redis, amqp, database, "", far), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loopback),
		cmocka_unit_test_setup(test_sslmode_of_a_url, environment_clear),
		cmocka_unit_test_setup(test_sslmode_of_the_environment, environment_clear),
		cmocka_unit_test_setup(test_sslmode_of_a_service, environment_clear),
		cmocka_unit_test_setup(test_sslmode_of_the_systems_certificates, environment_clear),
		cmocka_unit_test_setup(test_warnings, environment_clear),
	};

	return cmocka_run_group_tests_name("transport", tests, NULL, NULL);
}

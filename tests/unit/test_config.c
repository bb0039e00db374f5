/*
 * Settings: flags before environment before defaults, and a wrong value ends the start with a
 * sentence.
 */
#include "common/program/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const names[] = {
#define SETTING_TEXT(field, env, flag, programs, fallback, help) env, env "_FILE",
#define SETTING_NUMBER(field, env, flag, programs, fallback, least, most, help) env,
#include "common/program/setting_table.h"
#undef SETTING_TEXT
#undef SETTING_NUMBER
};

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	return 0;
}

#define ARGV(...) ((char *[]){ (char *)(uintptr_t) "prog", __VA_ARGS__, NULL })
#define ARG(text) ((char *)(uintptr_t)(text))

static int argv_count(char **argv)
{
	int n = 0;

	while (argv[n])
		n++;
	return n;
}

static void test_defaults(void **state)
{
	char *argv[] = { ARG("prog"), NULL };
	struct config config;

	(void)state;
	assert_int_equal(config_read(&config, CONFIG_GATEWAY, 1, argv, NULL), 1);
#define SETTING_TEXT(field, env, flag, programs, fallback, help) \
	assert_string_equal(config.field, fallback);
#define SETTING_NUMBER(field, env, flag, programs, fallback, least, most, help) \
	assert_true(config.field == (fallback) && (fallback) >= (least) && (fallback) <= (most));
#include "common/program/setting_table.h"
#undef SETTING_TEXT
#undef SETTING_NUMBER
	config_free(&config);
}

static void test_environment_and_flags(void **state)
{
	char **argv = ARGV(ARG("--listen=0.0.0.0:1"), ARG("create"), ARG("--memory-ms"), ARG("7"),
			   ARG("--name"), ARG("--listen-x"), ARG("--unix-socket="), ARG("--"),
			   ARG("-v"), ARG("--listen=0.0.0.0:9"));
	struct config config;

	(void)state;
	setenv("COUPON_LISTEN", "127.0.0.1:2", 1);
	setenv("COUPON_MEMORY_MS", "50", 1);
	setenv("COUPON_PROCESSES", "3", 1);
	setenv("REDIS_URL", "redis://h", 1);
	setenv("COUPON_UNIX_SOCKET", "/x", 1);
	setenv("COUPON_HTTP_LISTEN", "", 1); /* an empty value counts as not set */
	assert_int_equal(config_read(&config, CONFIG_GATEWAY, argv_count(argv), argv, NULL), 7);
	assert_string_equal(config.listen, "0.0.0.0:1");
	assert_true(config.memory_ms == 7);
	assert_true(config.processes == 3);
	assert_string_equal(config.redis_url, "redis://h");
	assert_string_equal(config.unix_socket, "");
	assert_string_equal(config.http_listen, "127.0.0.1:7480");
	/* Unknown arguments are left, in order, and all from -- on. */
	assert_string_equal(argv[1], "create");
	assert_string_equal(argv[2], "--name");
	assert_string_equal(argv[3], "--listen-x");
	assert_string_equal(argv[4], "--");
	assert_string_equal(argv[5], "-v");
	assert_string_equal(argv[6], "--listen=0.0.0.0:9");
	assert_null(argv[7]);
	config_free(&config);
}

/* A program reads neither the flags nor the environment of another. */
static void test_programs(void **state)
{
	char **argv = ARGV(ARG("--http-listen=off"), ARG("--prefetch=5"));
	struct config config;

	(void)state;
	setenv("COUPON_MEMORY_MS", "not a number", 1);
	assert_int_equal(config_read(&config, CONFIG_WORKER, 3, argv, NULL), 2);
	assert_string_equal(argv[1], "--http-listen=off");
	assert_true(config.prefetch == 5);
	assert_true(config.memory_ms == 100);
	config_free(&config);
}

static void file_make(char path[32], const char *text)
{
	int fd;

	strcpy(path, "/tmp/couponmq-config-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_file(void **state)
{
	char *argv[] = { ARG("prog"), NULL };
	struct config config;
	char path[32];

	(void)state;
	file_make(path, "postgresql://u:secret@h/d\r\nsecond line\n");
	setenv("DATABASE_URL_FILE", path, 1);
	config_read(&config, CONFIG_WORKER, 1, argv, NULL);
	assert_string_equal(config.database_url, "postgresql://u:secret@h/d");
	config_free(&config);
	setenv("DATABASE_URL", "postgresql://plain", 1); /* is nearer */
	config_read(&config, CONFIG_WORKER, 1, argv, NULL);
	assert_string_equal(config.database_url, "postgresql://plain");
	config_free(&config);
	unlink(path);
}

/* Runs it in a child: checks its message and exit status 1. */
static void fatal_expect(char **argv, const char *sentence)
{
	char said[1024];
	int fds[2], status;
	ssize_t n, len = 0;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		struct config config;

		dup2(fds[1], STDERR_FILENO);
		config_read(&config, CONFIG_GATEWAY, argv_count(argv), argv, NULL);
		config_log(&config, "prog");
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + len, sizeof(said) - 1 - (size_t)len)) > 0)
		len += n;
	said[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
		fail_msg("it ended with %d: %s", status, said);
	if (!strstr(said, sentence))
		fail_msg("it printed %s, wanted: %s", said, sentence);
}

static void test_wrong_values(void **state)
{
	static const char *const numbers[] = {
		"-1", "101", "x", "", "1x", "1.5", "99999999999999999999", "0x10"
	};
	char flag[64], sentence[160], path[32];

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		snprintf(flag, sizeof(flag), "--memory-ms=%s", numbers[i]);
		snprintf(sentence, sizeof(sentence),
			 "%s is \"%s\": allowed is an integer from 0 to 100", flag, numbers[i]);
		fatal_expect(ARGV(flag), sentence);
	}
	fatal_expect(ARGV(ARG("--memory-ms")), "--memory-ms needs a value");
	fatal_expect(ARGV(ARG("--listen")), "--listen needs a value");
	fatal_expect(ARGV(ARG("--log-format=xml")), "\"xml\": allowed are text and json");
	fatal_expect(ARGV(ARG("--log-level=loud")),
		     "\"loud\": allowed are debug, info, warn and error");
	setenv("COUPON_MEMORY_MS", "many", 1);
	fatal_expect(ARGV(ARG("--listen=off")),
		     "COUPON_MEMORY_MS is \"many\": allowed is an integer from 0 to 100");
	unsetenv("COUPON_MEMORY_MS");
	setenv("REDIS_URL_FILE", "/nonexistent/file", 1);
	fatal_expect(ARGV(ARG("--listen=off")),
		     "REDIS_URL_FILE is \"/nonexistent/file\": the file cannot be read");
	file_make(path, "");
	setenv("REDIS_URL_FILE", path, 1);
	fatal_expect(ARGV(ARG("--listen=off")), "the first line of the file is empty");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	fatal_expect(ARGV(ARG("--listen=off")), "the file cannot be read: it is a named pipe");
	unlink(path);
	setenv("REDIS_URL_FILE", "/tmp", 1);
	fatal_expect(ARGV(ARG("--listen=off")), "the file cannot be read: it is a folder");
	setenv("REDIS_URL_FILE", "/dev/zero", 1);
	fatal_expect(ARGV(ARG("--listen=off")), "the file cannot be read: it is a device");
}

static void test_address(void **state)
{
	static const struct {
		const char *text, *host;
		int port;
	} good[] = {
		{ "127.0.0.1:7411", "127.0.0.1", 7411 },
		{ "localhost:1", "localhost", 1 },
		{ "[::1]:65535", "::1", 65535 },
		{ "*:80", "*", 80 },
	};
	static const char *const bad[] = {
		"",     ":",   "h",    "h:",    ":80",   "h:0",   "h:65536",
		"h:-1", "h:x", "h:8x", "h: 80", "h:+80", "[]:80", "h:99999999999999999999",
	};
	char text[64], *host;
	int port;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		strcpy(text, good[i].text);
		assert_int_equal(config_address(text, &host, &port), 0);
		assert_string_equal(host, good[i].host);
		assert_int_equal(port, good[i].port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(text, bad[i]);
		if (config_address(text, &host, &port) == 0)
			fail_msg("%s was taken", bad[i]);
	}
}

/* The help text lists every setting of the program, and no other. */
static void test_help(void **state)
{
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	config_help(CONFIG_WORKER, out);
	fclose(out);
	assert_non_null(strstr(text, "--prefetch, COUPON_PREFETCH\n"));
	assert_non_null(strstr(text, "default: redis://127.0.0.1:6379/0\n"));
	assert_non_null(strstr(text, ", from 1 to 2000\n"));
	assert_non_null(strstr(text, "--redis-url, REDIS_URL\n"));
	assert_null(strstr(text, "--http-listen"));
	free(text);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_defaults), TEST(test_environment_and_flags), TEST(test_programs),
		TEST(test_file),     TEST(test_wrong_values),          TEST(test_address),
		TEST(test_help),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}

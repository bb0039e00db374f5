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

#define SECRET "s3cret"
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

#define GATEWAY CONFIG_GATEWAY
#define WORKER CONFIG_WORKER
#define CTL CONFIG_CTL
#define RUSH CONFIG_RUSH
#define ADMIN CONFIG_ADMIN
#define ALL CONFIG_GATEWAY

static const struct {
	const char *env;
	int programs;
	size_t offset;
} texts[] = {
#define SETTING_TEXT(field, env, flag, programs, fallback, help) \
	{ env, programs, offsetof(struct config, field) },
#define SETTING_NUMBER(field, env, flag, programs, fallback, least, most, help)
#include "common/program/setting_table.h"
#undef SETTING_TEXT
#undef SETTING_NUMBER
};

/* Each text may be in a file, whichever of them are secrets. */
static void test_each_text_from_a_file(void **state)
{
	char *argv[] = { ARG("prog"), NULL }, name[80], path[32];

	(void)state;
	file_make(path, SECRET "\n");
	setenv("COUPON_CONFIG_DIR", "", 1);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct config config;

		if (strcmp(texts[i].env, "COUPON_CONFIG_DIR") == 0)
			continue; /* it must be a folder */
		snprintf(name, sizeof(name), "%s_FILE", texts[i].env);
		setenv(name, path, 1);
		config_read(&config, (enum config_program)(texts[i].programs & -texts[i].programs),
			    1, argv, NULL);
		assert_string_equal(*(char **)(void *)((char *)&config + texts[i].offset), SECRET);
		config_free(&config);
		unsetenv(name);
	}
	unlink(path);
}

/* Runs it in a child: checks its message and exit status 1. No message has a secret. */
static void fatal_of(enum config_program program, char **argv, const char *sentence)
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
		config_read(&config, program, argv_count(argv), argv, NULL);
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
	assert_null(strstr(said, SECRET));
}

static void fatal_expect(char **argv, const char *sentence)
{
	fatal_of(CONFIG_GATEWAY, argv, sentence);
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

/* ---- the files of COUPON_CONFIG_DIR */

static char folder[32];

static int folder_setup(void **state)
{
	setup(state);
	strcpy(folder, "/tmp/couponmq-config-XXXXXX");
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0755), 0);
	setenv("COUPON_CONFIG_DIR", folder, 1);
	return 0;
}

static const char *folder_path(const char *name)
{
	static char path[80];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void folder_put(const char *name, const char *text)
{
	FILE *file = fopen(folder_path(name), "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int folder_teardown(void **state)
{
	(void)state;
	unlink(folder_path("couponmq.conf"));
	unlink(folder_path("couponctl.conf"));
	unlink(folder_path("secret"));
	assert_int_equal(rmdir(folder), 0);
	unsetenv("PGAPPNAME");
	unsetenv("PGTZ");
	return 0;
}

/* What a file has for its own stores is not sent to others, which a flag or a variable names. */
static void test_secrets_of_a_file_stay_with_its_urls(void **state)
{
	struct config config;

	(void)state;
	folder_put("couponctl.conf", "");
	folder_put("couponmq.conf", "REDIS_SENTINEL_PASSWORD=" SECRET "\nPGPASSWORD=" SECRET
				    "\nPGHOSTADDR=192.0.2.1\nPGSERVICE=ours\nPGTZ=UTC\n"
				    "COUPON_WORKER_PASSWORD=" SECRET "\n");
	config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
	assert_string_equal(config.redis_sentinel_password, SECRET);
	assert_string_equal(config.worker_password, SECRET);
	assert_string_equal(getenv("PGPASSWORD"), SECRET);
	assert_string_equal(getenv("PGHOSTADDR"), "192.0.2.1");
	assert_string_equal(getenv("PGSERVICE"), "ours");
	config_free(&config);
	unsetenv("PGPASSWORD");
	unsetenv("PGHOSTADDR");
	unsetenv("PGSERVICE");

	config_read(&config, CONFIG_CTL, 3,
		    ARGV(ARG("--redis-url=redis+sentinel://other/m"),
			 ARG("--database-url=postgresql://other/x")),
		    NULL);
	assert_string_equal(config.redis_sentinel_password, "");
	assert_null(getenv("PGPASSWORD"));
	assert_null(getenv("PGHOSTADDR"));
	assert_null(getenv("PGSERVICE"));
	assert_string_equal(config.worker_password, "");
	assert_string_equal(getenv("PGTZ"), "UTC");
	config_free(&config);
	setenv("DATABASE_ADMIN_URL", "postgresql://other/x", 1);
	config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
	assert_null(getenv("PGPASSWORD"));
	assert_string_equal(config.worker_password, "");
	config_free(&config);
	setenv("COUPON_WORKER_PASSWORD", "given", 1);
	config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
	assert_string_equal(config.worker_password, "given");
	config_free(&config);
	unsetenv("COUPON_WORKER_PASSWORD");
	unsetenv("DATABASE_ADMIN_URL");

	/* migrate still goes to the PostgreSQL of the file. */
	folder_put("couponctl.conf", "DATABASE_ADMIN_URL=postgresql://owner@own/x\n");
	config_read(&config, CONFIG_CTL, 2, ARGV(ARG("--database-url=postgresql://other/x")), NULL);
	assert_string_equal(config.worker_password, SECRET);
	config_free(&config);
}

/* Flag before environment before couponctl.conf before couponmq.conf before default. */
static void test_files(void **state)
{
	char **argv = ARGV(ARG("--log-level=error"));
	char text[512];
	struct config config;

	(void)state;
	folder_put("couponmq.conf", "REDIS_URL=redis://general\n"
				    "COUPON_LISTEN=general:1\n"
				    "COUPON_TLS_CA=/general\n"
				    "COUPON_LOG_FORMAT=json\n"
				    "COUPON_LOG_LEVEL=debug\n"
				    "COUPON_CODE_KEYS=/general\n"
				    "COUPON_PREFETCH=of another program\n"
				    "COUPON_EVENT_LOG_MAX=7\n"
				    "PGAPPNAME=first\n"
				    "PGAPPNAME=from a file\n"
				    "PGTZ=from a file\n");
	folder_put("secret", SECRET "\n");
	snprintf(text, sizeof(text),
		 "REDIS_URL=redis://first\nREDIS_URL=redis://own\nCOUPON_TLS_CA_FILE=%s\n"
		 "COUPON_LOG_FORMAT=\nCOUPON_LOG_LEVEL=warn\nCOUPON_GATEWAY_KEY_FILE=%s\n"
		 "COUPON_CODE_KEYS=/own\n",
		 folder_path("secret"), folder_path("secret"));
	folder_put("couponctl.conf", text);
	setenv("COUPON_LISTEN", "environment:1", 1);
	setenv("COUPON_CODE_KEYS_FILE", folder_path("secret"), 1);
	setenv("PGTZ", "from the environment", 1);
	config_read(&config, CONFIG_CTL, argv_count(argv), argv, NULL);
	assert_string_equal(config.redis_url, "redis://own"); /* the later line */
	assert_string_equal(config.listen, "environment:1");
	assert_string_equal(config.tls_ca, SECRET);      /* NAME_FILE, nearer than NAME */
	assert_string_equal(config.code_keys, SECRET);   /* the same in the environment */
	assert_string_equal(config.gateway_key, SECRET); /* NAME_FILE alone */
	assert_string_equal(config.log_format, "text");  /* emptied: the default */
	assert_string_equal(config.log_level, "error");
	assert_true(config.event_log_max == 7);
	assert_string_equal(getenv("PGAPPNAME"), "from a file");
	assert_string_equal(getenv("PGTZ"), "from the environment");
	config_free(&config);

	/* Services have their environment alone. */
	argv = ARGV(ARG("-n"));
	config_read(&config, CONFIG_GATEWAY, 2, argv, NULL);
	assert_string_equal(config.redis_url, "redis://127.0.0.1:6379/0");
	config_free(&config);

	/* An empty folder is none, as a flag too; coupon-rush reads the same files. */
	config_read(&config, CONFIG_RUSH, 2, ARGV(ARG("--config-dir=")), NULL);
	assert_string_equal(config.redis_url, "redis://127.0.0.1:6379/0");
	config_free(&config);
	setenv("COUPON_CONFIG_DIR", "", 1);
	config_read(&config, CONFIG_RUSH, 1, ARGV(NULL), NULL);
	assert_string_equal(config.redis_url, "redis://127.0.0.1:6379/0");
	config_free(&config);
	config_read(&config, CONFIG_RUSH, 3, ARGV(ARG("--config-dir"), folder), NULL);
	assert_string_equal(config.redis_url, "redis://own");
	config_free(&config);
}

/* As systemd's parse_env_file() reads them. */
static void test_file_forms(void **state)
{
	static const struct {
		const char *line, *value;
	} good[] = {
		{ "REDIS_URL=a", "a" },
		{ "  REDIS_URL = a b \t", "a b" },
		{ "REDIS_URL=a # b", "a # b" },
		{ "REDIS_URL=a\"b'", "a\"b'" },
		{ "REDIS_URL=a\r", "a" },
		{ "REDIS_URL='a \\ \" $b '", "a \\ \" $b " },
		{ "REDIS_URL=\"a ' \\\" \\\\ \\$b \\` \"", "a ' \" \\ $b ` " },
		{ "# REDIS_URL=a", "redis://127.0.0.1:6379/0" },
		{ " ; REDIS_URL=a", "redis://127.0.0.1:6379/0" },
		{ "REDIS_URL=''", "redis://127.0.0.1:6379/0" },
		{ "", "redis://127.0.0.1:6379/0" },
	};
	static const struct {
		const char *text, *sentence;
	} bad[] = {
		{ "\n\n" SECRET "\n", ", line 3: allowed are NAME=value, an empty line, and a "
				      "comment that begins with # or ;" },
		{ "export REDIS_URL=" SECRET, ", line 1: the name before = has other characters" },
		{ "REDIS_URL=a\r" SECRET, ", line 1: it has a control character" },
		{ "# a\rREDIS_URL=" SECRET, ", line 1: it has a control character" },
		{ "=" SECRET, ", line 1: the name before = has other" },
		{ "1A=" SECRET, ", line 1: the name before = has other" },
		{ "\nREDIS_URL='" SECRET, ", line 2: the closing quote is missing" },
		{ "REDIS_URL=\"" SECRET "\n\"", ", line 1: the closing quote is missing" },
		{ "REDIS_URL='" SECRET "' # x", ", line 1: nothing is allowed behind" },
		{ "\n# " SECRET "\\\n", ", line 2: a comment does not end with a backslash" },
		{ "REDIS_URL=" SECRET "\\",
		  ", line 1: a value with a backslash is written in single" },
		{ "REDIS_URL=\"" SECRET "\\n\"", ", line 1: in double quotes a backslash is only" },
		{ "COUPON_EVENT_LOG_MAX=\nCOUPON_EVENT_LOG_MAX=0", "COUPON_EVENT_LOG_MAX in " },
		{ "\nREDIS_URL_FILE=/nonexistent",
		  "couponmq.conf, line 2, is \"/nonexistent\": the "
		  "file cannot be read: No such file" },
	};
	struct config config;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		folder_put("couponmq.conf", good[i].line);
		config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
		assert_string_equal(config.redis_url, good[i].value);
		config_free(&config);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		folder_put("couponmq.conf", bad[i].text);
		fatal_of(CONFIG_CTL, ARGV(NULL), bad[i].sentence);
		fatal_of(CONFIG_CTL, ARGV(NULL), folder_path("couponmq.conf"));
	}
	fatal_of(CONFIG_CTL, ARGV(ARG("--config-dir=/nonexistent")),
		 "COUPON_CONFIG_DIR is \"/nonexistent\": allowed is a folder, or nothing");
}

static void test_file_unreadable(void **state)
{
	(void)state;
	folder_put("couponmq.conf", "REDIS_URL=" SECRET);
	unlink(folder_path("couponctl.conf"));
	assert_int_equal(mkfifo(folder_path("couponctl.conf"), 0600), 0);
	fatal_of(CONFIG_CTL, ARGV(NULL), "couponctl.conf cannot be read: it is a named pipe");
	unlink(folder_path("couponctl.conf"));
	assert_int_equal(chmod(folder_path("couponmq.conf"), 0), 0);
	if (geteuid() == 0) { /* who may read all */
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			if (setgid(65534) || setuid(65534))
				_exit(2);
			fatal_of(CONFIG_CTL, ARGV(NULL),
				 "couponmq.conf cannot be read: Permission denied; use an account "
				 "that may read them, or COUPON_CONFIG_DIR= for no file");
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	} else {
		fatal_of(CONFIG_CTL, ARGV(NULL),
			 "couponmq.conf cannot be read: Permission denied; use an account that may "
			 "read them, or COUPON_CONFIG_DIR= for no file");
	}
}

/* ---- passwords apart from URLs */

static void test_passwords(void **state)
{
	static const struct {
		const char *url_name, *url, *password_name, *password, *wanted;
	} cases[] = {
		{ "REDIS_URL", "redis://h:1/2", "REDIS_PASSWORD", "p@:/%",
		  "redis://:p%40%3A%2F%25@h:1/2" },
		{ "REDIS_URL", "redis://u@h", "REDIS_PASSWORD", "p", "redis://u:p@h" },
		{ "REDIS_URL", "redis://u:own@h", "REDIS_PASSWORD", "p", "redis://u:own@h" },
		{ "REDIS_URL", "redis://:own@h", "REDIS_PASSWORD", "p", "redis://:own@h" },
		{ "REDIS_URL", "rediss+sentinel://u@a,b:2/name/1", "REDIS_PASSWORD", "p",
		  "rediss+sentinel://u:p@a,b:2/name/1" },
		{ "REDIS_URL", "redis", "REDIS_PASSWORD", "p", "redis" },
		{ "AMQP_URL", "", "AMQP_PASSWORD", "p", "amqp://guest:p@127.0.0.1:5672/%2f" },
		{ "AMQP_URL", "amqps://u@a,b:2/v", "AMQP_PASSWORD", "ä",
		  "amqps://u:%C3%A4@a,b:2/v" },
		{ "AMQP_URL", "amqp://u:own@a/v", "AMQP_PASSWORD", "p", "amqp://u:own@a/v" },
		{ "COUPON_RABBITMQ_API", "http://u@a:1", "COUPON_RABBITMQ_API_PASSWORD", "p",
		  "http://u:p@a:1" },
		{ "DATABASE_URL", "postgresql:///d", "DATABASE_PASSWORD", "p&q'",
		  "postgresql:///d?password=p%26q%27" },
		{ "DATABASE_URL", "postgres://u@h/d?sslmode=require", "DATABASE_PASSWORD", "p",
		  "postgres://u@h/d?sslmode=require&password=p" },
		{ "DATABASE_URL", "postgresql://u:own@h/d", "DATABASE_PASSWORD", "p",
		  "postgresql://u:own@h/d" },
		{ "DATABASE_URL", "postgresql:///d?password=own", "DATABASE_PASSWORD", "p",
		  "postgresql:///d?password=own" },
		{ "DATABASE_URL", "host=h user='u'", "DATABASE_PASSWORD", "a 'b\\",
		  "host=h user='u' password='a \\'b\\\\'" },
		{ "DATABASE_URL", "host=h password=own", "DATABASE_PASSWORD", "p",
		  "host=h password=own" },
		{ "DATABASE_ADMIN_URL", "host=h", "DATABASE_ADMIN_PASSWORD", "p",
		  "host=h password='p'" },
		{ "DATABASE_ADMIN_URL", "", "DATABASE_ADMIN_PASSWORD", "p", "" },
	};
	struct config config;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *url;

		setup(state);
		setenv("COUPON_CONFIG_DIR", "", 1);
		setenv(cases[i].url_name, cases[i].url, 1);
		setenv(cases[i].password_name, cases[i].password, 1);
		config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
		url = strcmp(cases[i].url_name, "REDIS_URL") == 0             ? config.redis_url
		      : strcmp(cases[i].url_name, "AMQP_URL") == 0            ? config.amqp_url
		      : strcmp(cases[i].url_name, "COUPON_RABBITMQ_API") == 0 ? config.rabbitmq_api
		      : strcmp(cases[i].url_name, "DATABASE_URL") == 0        ? config.database_url
								       : config.database_admin_url;
		assert_string_equal(url, cases[i].wanted);
		config_free(&config);
	}
	setup(state);
	setenv("DATABASE_READ_URL", "host=replica", 1);
	setenv("DATABASE_PASSWORD", "p", 1);
	config_read(&config, CONFIG_GATEWAY, 1, ARGV(NULL), NULL);
	assert_string_equal(config.database_read_url, "host=replica password='p'");
	config_free(&config);
	setenv("AMQP_PASSWORD", SECRET, 1);
	fatal_expect(ARGV(ARG("--amqp-url=amqp://h/v")),
		     "AMQP_PASSWORD is given, but AMQP_URL has no user");
}

/* It is not sent to where a flag or the environment leads. */
static void test_password_of_a_file(void **state)
{
	struct config config;

	(void)state;
	folder_put("couponmq.conf", "REDIS_URL=redis://a\nREDIS_PASSWORD=" SECRET "\n");
	config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
	assert_string_equal(config.redis_url, "redis://:" SECRET "@a");
	config_free(&config);
	config_read(&config, CONFIG_CTL, 2, ARGV(ARG("--redis-url=redis://b")), NULL);
	assert_string_equal(config.redis_url, "redis://b");
	config_free(&config);
	setenv("REDIS_URL", "redis://c", 1);
	config_read(&config, CONFIG_CTL, 1, ARGV(NULL), NULL);
	assert_string_equal(config.redis_url, "redis://c");
	config_free(&config);
	config_read(&config, CONFIG_CTL, 2, ARGV(ARG("--redis-password=d")), NULL);
	assert_string_equal(config.redis_url, "redis://:d@c");
	config_free(&config);
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
#define TEST_FILES(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_defaults),
		TEST(test_environment_and_flags),
		TEST(test_programs),
		TEST(test_file),
		TEST(test_wrong_values),
		TEST(test_address),
		TEST(test_help),
		TEST(test_each_text_from_a_file),
		TEST_FILES(test_files),
		TEST_FILES(test_secrets_of_a_file_stay_with_its_urls),
		TEST_FILES(test_file_forms),
		TEST_FILES(test_file_unreadable),
		TEST(test_passwords),
		TEST_FILES(test_password_of_a_file),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}

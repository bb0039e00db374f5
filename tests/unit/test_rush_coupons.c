/* Which coupon rush asks for next. */
#include "rush/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct option options[] = {
	OPTION("coupon", "ID", ""),
	OPTION("coupons-from", "FILE", ""),
	OPTIONS_END,
};
static const struct command command = { .name = "rush", .options = options };

static void args_make(struct args *args, const char *coupon, const char *file)
{
	*args = (struct args){ .command = &command, .values = { coupon, file } };
}

/* The ids that are read, as "ID ID …". */
static const char *ids_of(const char *coupon, const char *file)
{
	static char text[200];
	struct rush_coupons coupons;
	struct args args;
	size_t len = 0;

	args_make(&args, coupon, file);
	rush_coupons_read(&coupons, &args);
	for (uint32_t i = 0; i < coupons.n; i++) {
		assert_int_equal(rush_coupons_find(&coupons, coupons.list[i]), i);
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%lld", i ? " " : "",
					(long long)coupons.list[i]);
	}
	assert_int_equal(rush_coupons_find(&coupons, 4), -1);
	free(coupons.list);
	return text;
}

/* The name of a file with this content, of `len` bytes. */
static const char *file_make(const char *content, size_t len)
{
	static char name[] = "/tmp/test_rush_coupons.XXXXXX";
	int fd;

	strcpy(name + sizeof(name) - 7, "XXXXXX");
	fd = mkstemp(name);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, len), len);
	close(fd);
	return name;
}

static void test_reads(void **state)
{
	static const char lines[] = "1003\n\n  \n1001 \r\n9223372036854775807";
	const char *file = file_make(lines, sizeof(lines) - 1);

	(void)state;
	assert_string_equal(ids_of("1001", NULL), "1001");
	assert_string_equal(ids_of("1003,1,9223372036854775807,1001", NULL),
			    "1 1001 1003 9223372036854775807");
	assert_string_equal(ids_of(NULL, file), "1001 1003 9223372036854775807");
	unlink(file);
}

/* What a process writes that these options end. */
static const char *error_of(const char *coupon, const char *file)
{
	static char text[400];
	int pipes[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	fflush(NULL); /* or the child writes it too */
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		ids_of(coupon, file);
		_exit(0);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == CTL_INVALID);
	return text;
}

static void fails(const char *coupon, const char *file, const char *part)
{
	const char *error = error_of(coupon, file);

	if (!strstr(error, part))
		fail_msg("%s lacks: %s", error, part);
}

static void content_fails(const char *content, size_t len, const char *part)
{
	const char *file = file_make(content, len);

	fails(NULL, file, part);
	unlink(file);
}

#define CONTENT_FAILS(content, part) content_fails(content, sizeof(content) - 1, part)

static void test_refuses(void **state)
{
	(void)state;
	fails(NULL, NULL, "rush needs --coupon");
	fails("1", "x", "--coupon and --coupons-from are both given");
	fails("01", NULL,
	      "--coupon is \"01\": allowed is an integer from 1 to 9223372036854775807");
	fails("", NULL, "--coupon is \"\":");
	fails("1,", NULL, "an id of --coupon is \"\":");
	fails("1,,2", NULL, "an id of --coupon is \"\":");
	fails("1,2,9223372036854775808", NULL, "--coupon is \"9223372036854775808\":");
	fails("1, 2", NULL, "an id of --coupon is \" 2\":");
	fails("5,3,5", NULL, "coupon 5 is given twice");
	fails(NULL, "/nowhere/coupons",
	      "/nowhere/coupons cannot be read: No such file or directory");
	fails(NULL, "/", "/ cannot be read: Is a directory");
	CONTENT_FAILS("", "has no coupon");
	CONTENT_FAILS("\n \n", "has no coupon");
	CONTENT_FAILS("1\n\n2,3\n", "is \"2,3\": allowed is an integer");
	CONTENT_FAILS("1\n\n2,3\n", "--coupons-from: line 3 of /tmp/");
	CONTENT_FAILS("1\n2\n1\n", "coupon 1 is given twice");
	CONTENT_FAILS("1\0\n", "line 1 of");
}

static void test_too_many(void **state)
{
	size_t room = RUSH_COUPONS_MAX * 8, len = 0;
	char *content = malloc(room);

	(void)state;
	assert_non_null(content);
	for (int i = 0; i <= RUSH_COUPONS_MAX; i++)
		len += (size_t)snprintf(content + len, room - len, "%d\n", i + 1);
	content_fails(content, len, "is one coupon too many: allowed are 100000");
	free(content);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Standard error that nobody reads: a line does not wait for it, lines arrive whole and in order
 * once it is read, and the last line of a process is not lost.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_MAX (4 << 20)

static char text[TEXT_MAX + 1];
static size_t text_len;
static int saved_stderr, reader;

/* Standard error becomes the first end of a pipe or of a socket pair; `reader` is the other. */
static void stderr_replace(int as_socket)
{
	int ends[2];

	if (as_socket)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	else
		assert_int_equal(pipe(ends), 0);
	saved_stderr = dup(STDERR_FILENO);
	reader = ends[0];
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	text_len = 0;
	fcntl(reader, F_SETFL, O_NONBLOCK);
}

static void stderr_restore(void)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(reader);
}

/* Reads for up to 5 s until the text contains `end`; returns whether it does. */
static int text_read(const char *end)
{
	int64_t until_ms = clock_monotonic_ms() + 5000;

	while (clock_monotonic_ms() < until_ms) {
		struct pollfd pollfd = { .fd = reader, .events = POLLIN };
		ssize_t n;

		poll(&pollfd, 1, 20);
		n = read(reader, text + text_len, TEXT_MAX - text_len);
		if (n > 0)
			text_len += (size_t)n;
		text[text_len] = '\0';
		if (strstr(text, end))
			return 1;
	}
	return 0;
}

static void line_log(const char *event, int number)
{
	log_each(LOG_LEVEL_INFO, event,
		 (struct log_field[]){ LOG_I("number", number),
				       LOG_S("pad", "0123456789012345678901234567890123"),
				       { 0 } });
}

/* The number of lines of the event, which must be whole and in order. */
static int lines_check(const char *event)
{
	char want[64];
	int lines = 0, last = -1;

	snprintf(want, sizeof(want), "event=%s number=", event);
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		char *at;

		*end = '\0';
		assert_memory_equal(line, "time=", 5);
		at = strstr(line, want);
		if (!at)
			continue;
		assert_true(atoi(at + strlen(want)) > last);
		assert_non_null(strstr(at, " pad=0123456789012345678901234567890123"));
		last = atoi(at + strlen(want));
		lines++;
	}
	return lines;
}

static void stalled(int as_socket)
{
	int64_t began_ms = clock_monotonic_ms();
	char *dropped;
	int n;

	log_init("prog", LOG_LEVEL_INFO, 0);
	stderr_replace(as_socket);
	for (int i = 0; i < 10000; i++)
		line_log("stalled", i);
	assert_true(clock_monotonic_ms() - began_ms < 3000);
	assert_true(text_read("event=log_dropped lines="));
	dropped = strstr(text, "event=log_dropped lines=");
	n = atoi(dropped + strlen("event=log_dropped lines="));
	line_log("after", 0);
	assert_true(text_read("event=after"));
	assert_int_equal(lines_check("stalled") + n, 10000);
	assert_true(n > 0);
	stderr_restore();
}

static void test_stalled_pipe(void **state)
{
	(void)state;
	stalled(0);
}

static void test_stalled_socket(void **state)
{
	(void)state;
	stalled(1);
}

/* What waits is written without another line. */
static void test_nothing_dropped(void **state)
{
	(void)state;
	stderr_replace(0);
	for (int i = 0; i < 1000; i++)
		line_log("kept", i);
	assert_true(text_read("number=999 "));
	assert_null(strstr(text, "log_dropped"));
	assert_true(text_read("456789012345678901234567890123\n"));
	line_log("kept", 1000);
	assert_true(text_read("number=1000 pad=0123456789012345678901234567890123\n"));
	assert_int_equal(lines_check("kept"), 1001);
	stderr_restore();
}

enum end { END_EXIT, END_ABORT, END_FATAL };

/* A process with a full pipe and a last line ends; the reader comes `late`, or never. */
static void process_end(enum end end, int late)
{
	int status;
	pid_t pid;

	stderr_replace(0);
	pid = fork();
	if (pid == 0) {
		alarm(60); /* one that waits for a reader ends by this */
		for (int i = 0; i < 1000; i++)
			line_log("before", i);
		if (end == END_ABORT)
			check_failed("file.c", 7, "x > 0");
		if (end == END_FATAL)
			log_fatal("the last sentence");
		line_log("last", 0);
		exit(0);
	}
	if (late) {
		usleep(100000);
		assert_true(text_read(end == END_EXIT    ? "event=last number=0"
				      : end == END_ABORT ? "event=bug file=file.c line=7"
							 : "prog: the last sentence\n"));
		assert_non_null(strstr(text, "event=before number=999 "));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(end == END_ABORT ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
				     : WIFEXITED(status));
	stderr_restore();
}

static void test_ends(void **state)
{
	(void)state;
	for (enum end end = END_EXIT; end <= END_FATAL; end++) {
		process_end(end, 1);
		process_end(end, 0);
	}
}

/* The pipe belongs to another user, so that it cannot be opened once more. */
static void test_foreign_pipe(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (getuid() != 0)
		skip();
	stderr_replace(0);
	pid = fork();
	if (pid == 0) {
		if (setuid(65534))
			_exit(2);
		for (int i = 0; i < 1000; i++)
			line_log("foreign", i);
		exit(0);
	}
	usleep(100000);
	assert_true(text_read("event=foreign number=999 "));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	stderr_restore();
}

/* A child writes nothing of what its parent has still to write. */
static void test_fork(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	stderr_replace(0);
	for (int i = 0; i < 1000; i++)
		line_log("parent", i);
	pid = fork();
	if (pid == 0) {
		line_log("child", 0);
		log_flush();
		_exit(0); /* without the leak check, which would write to the pipe */
	}
	assert_true(text_read("event=parent number=999 "));
	assert_true(text_read("event=child number=0 "));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(lines_check("parent"), 1000);
	stderr_restore();
}

static void test_without_reader(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	stderr_replace(0);
	for (int i = 0; i < 1000; i++)
		line_log("full", i);
	close(reader);
	for (int i = 0; i < 1000; i++)
		line_log("gone", i);
	reader = dup(STDERR_FILENO);
	stderr_restore();
	stderr_replace(0);
	line_log("back", 0);
	assert_true(text_read("event=back"));
	stderr_restore();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stalled_pipe),
		cmocka_unit_test(test_stalled_socket),
		cmocka_unit_test(test_nothing_dropped),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_foreign_pipe),
		cmocka_unit_test(test_without_reader),
	};

	return cmocka_run_group_tests_name("log_output", tests, NULL, NULL);
}

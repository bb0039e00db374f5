/* What systemd gives and is told, without systemd. */
#include "common/program/service_manager.h"

#include "common/serve/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_SIZE 64

enum { LINES, LINES_UNIX, HTTP, LISTENERS };

struct given {
	struct service_listener listeners[LISTENERS];
	char *addresses[LISTENERS];
	char error[SERVICE_ERROR_SIZE];
};

static void given_init(struct given *given, const char *http)
{
	memset(given, 0, sizeof(*given));
	given->addresses[LINES] = strdup("127.0.0.1:7411");
	given->addresses[LINES_UNIX] = strdup("");
	given->addresses[HTTP] = strdup(http);
	given->listeners[LINES] = (struct service_listener){ .name = "lines", .setting = "LISTEN" };
	given->listeners[LINES_UNIX] = (struct service_listener){ .name = "lines",
								  .setting = "UNIX_SOCKET",
								  .is_unix = 1 };
	given->listeners[HTTP] = (struct service_listener){ .name = "http",
							    .setting = "HTTP_LISTEN" };
	for (size_t i = 0; i < LISTENERS; i++)
		given->listeners[i].address = &given->addresses[i];
}

static void given_fini(struct given *given)
{
	for (size_t i = 0; i < LISTENERS; i++)
		free(given->addresses[i]);
}

static int match(struct given *given, const int *fds, const char *const names[], size_t n)
{
	char *copies[8];
	int rc;

	for (size_t i = 0; i < n; i++)
		copies[i] = strdup(names[i]);
	rc = service_listeners_match(given->listeners, LISTENERS, fds, copies, n, given->error);
	for (size_t i = 0; i < n; i++)
		free(copies[i]);
	return rc;
}

/* A socket that listens on a port that the kernel chooses. */
static int tcp_new(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && listen(fd, 1) == 0);
	return fd;
}

static int unix_new(char path[PATH_SIZE])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(path, PATH_SIZE, "/tmp/couponmq-test-%d.sock", (int)getpid());
	strcpy(address.sun_path, path);
	unlink(path);
	assert_true(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
		    listen(fd, 1) == 0);
	return fd;
}

/* Names and families find the listener; the address is what clients connect to. */
static void test_sockets_find_their_listeners(void **state)
{
	static const char *const names[] = { "http", "lines", "lines" };
	char path[PATH_SIZE];
	int fds[] = { tcp_new(AF_INET6), unix_new(path), tcp_new(AF_INET) };
	struct given given;

	(void)state;
	given_init(&given, "127.0.0.1:7480");
	assert_int_equal(match(&given, fds, names, 3), 0);
	assert_int_equal(given.listeners[HTTP].fd, fds[0]);
	assert_int_equal(given.listeners[LINES_UNIX].fd, fds[1]);
	assert_int_equal(given.listeners[LINES].fd, fds[2]);
	assert_string_equal(given.addresses[LINES_UNIX], path);
	assert_int_equal(strncmp(given.addresses[LINES], "0.0.0.0:", 8), 0);
	assert_int_equal(strncmp(given.addresses[HTTP], "[::]:", 5), 0);
	bind_check("LISTEN", given.addresses[LINES]); /* settings have this form, too */
	bind_check("HTTP_LISTEN", given.addresses[HTTP]);
	for (size_t i = 0; i < 3; i++)
		close(fds[i]);
	unlink(path);
	given_fini(&given);
}

static void test_without_sockets_the_settings_stay(void **state)
{
	struct given given;

	(void)state;
	given_init(&given, "127.0.0.1:7480");
	assert_int_equal(match(&given, NULL, NULL, 0), 0);
	for (size_t i = 0; i < LISTENERS; i++)
		assert_int_equal(given.listeners[i].fd, -1);
	assert_string_equal(given.addresses[LINES], "127.0.0.1:7411");
	given_fini(&given);
}

static void refused(int fd, const char *name, const char *http, const char *sentence)
{
	const char *const names[] = { name };
	struct given given;

	given_init(&given, http);
	assert_int_equal(match(&given, &fd, names, 1), -1);
	assert_non_null(strstr(given.error, sentence));
	assert_non_null(strstr(given.error, name));
	close(fd);
	given_fini(&given);
}

static void test_what_no_listener_takes_is_refused(void **state)
{
	char path[PATH_SIZE];

	(void)state;
	refused(tcp_new(AF_INET), "admin", "off", "takes no socket of that name");
	refused(tcp_new(AF_INET), "http", "off", "HTTP_LISTEN is \"off\"");
	refused(unix_new(path), "http", "127.0.0.1:7480", "not the kind of address");
	unlink(path);
	refused(socket(AF_INET, SOCK_STREAM, 0), "lines", "off", "is not a socket that listens");
	refused(socket(AF_INET, SOCK_DGRAM, 0), "lines", "off", "is not a socket that listens");
	refused(dup(STDIN_FILENO), "lines", "off", "is not a socket that listens");
}

static void test_two_for_one_listener_are_refused(void **state)
{
	static const char *const names[] = { "lines", "lines" };
	int fds[] = { tcp_new(AF_INET), tcp_new(AF_INET) };
	struct given given;

	(void)state;
	given_init(&given, "off");
	assert_int_equal(match(&given, fds, names, 2), -1);
	assert_non_null(strstr(given.error, "one of them is allowed"));
	assert_non_null(strstr(given.error, given.addresses[LINES]));
	close(fds[0]);
	close(fds[1]);
	given_fini(&given);
}

/* What is told at this time, if it can be sent. */
static const char *tell(struct service_told *told, int64_t now_ms, int is_ready, int is_alive,
			const char *status)
{
	static char text[SERVICE_TEXT_SIZE];
	struct service_told next;
	size_t len = service_text(told, now_ms, is_ready, is_alive, status, text, &next);

	assert_int_equal(len, strlen(text));
	*told = next;
	return text;
}

static void test_ready_is_told_once(void **state)
{
	struct service_told told = { .begun_ms = 1000 };

	(void)state;
	assert_string_equal(tell(&told, 1000, 0, 1, "a"), "STATUS=a\n");
	assert_string_equal(tell(&told, 1250, 0, 1, "a"), "");
	assert_string_equal(tell(&told, 1500, 1, 1, "b"), "STATUS=b\nREADY=1\n");
	assert_string_equal(tell(&told, 1750, 1, 1, "b"), "");
	assert_string_equal(tell(&told, 2000, 0, 1, "a"), "STATUS=a\n");
	assert_string_equal(tell(&told, 2250, 1, 1, "b"), "STATUS=b\n");
}

/* A program that lacks a store is not ended for it. */
static void test_ready_is_told_in_the_end(void **state)
{
	struct service_told told = { .begun_ms = 1000 };
	int64_t end_ms = 1000 + SERVICE_READY_WAIT_MS;

	(void)state;
	assert_string_equal(tell(&told, end_ms - 1, 0, 1, "no Redis"), "STATUS=no Redis\n");
	assert_string_equal(tell(&told, end_ms, 0, 1, "no Redis"), "READY=1\n");
	assert_string_equal(tell(&told, end_ms + 1, 0, 1, "no Redis"), "");
}

static void test_the_watchdog_is_told_while_loops_turn(void **state)
{
	struct service_told told = { .begun_ms = 0, .watchdog_ms = 1000, .is_ready = 1 };
	int n = 0;

	(void)state;
	for (int64_t now_ms = 250; now_ms <= 10000; now_ms += 250)
		n += strcmp(tell(&told, now_ms, 1, 1, ""), "WATCHDOG=1\n") == 0;
	assert_int_equal(n, 10);
	for (int64_t now_ms = 10250; now_ms <= 20000; now_ms += 250)
		assert_string_equal(tell(&told, now_ms, 1, 0, ""), "");
	assert_string_equal(tell(&told, 20250, 1, 1, ""), "WATCHDOG=1\n");
	assert_string_equal(tell(&told, 20500, 1, 1, ""), "");
}

/* What was not sent is told again. */
static void test_what_was_not_sent_is_told_again(void **state)
{
	struct service_told told = { .watchdog_ms = 1000 }, next;
	char text[SERVICE_TEXT_SIZE];

	(void)state;
	assert_true(service_text(&told, 1000, 1, 1, "a", text, &next) > 0);
	assert_string_equal(tell(&told, 1250, 1, 1, "a"), "STATUS=a\nREADY=1\nWATCHDOG=1\n");
}

/* A status is one assignment, however long it is, and whatever a store said. */
static void test_a_status_is_one_line(void **state)
{
	struct service_told told = { .begun_ms = 0, .watchdog_ms = 1 };
	char status[2 * SERVICE_STATUS_SIZE] = "redis:\nREADY=1\n";
	const char *text;

	(void)state;
	assert_string_equal(tell(&told, 0, 0, 0, status), "STATUS=redis: READY=1 \n");
	memset(status, 'x', sizeof(status) - 1);
	text = tell(&told, 1, 1, 1, status);
	assert_int_equal(strspn(text + strlen("STATUS="), "x"), SERVICE_STATUS_SIZE - 1);
	assert_string_equal(strchr(text, '\n'), "\nREADY=1\nWATCHDOG=1\n");
}

static void test_another_loop_turns(void **state)
{
	(void)state;
	service_begin(2);
	assert_int_equal(service_loop_has_turned(1), 0);
	service_turned(1, 1);
	assert_int_equal(service_loop_has_turned(0), 0);
	assert_int_equal(service_loop_has_turned(1), 1);
	assert_int_equal(service_loop_has_turned(1), 0);
	assert_int_equal(service_loop_is_ready(1), 1);
	assert_int_equal(service_loop_is_ready(0), 0);
	service_loop_reloaded(0);
	assert_int_equal(service_loop_reloads(0), 1);
	assert_int_equal(service_loop_reloads(1), 0);
	/* There is no systemd. */
	assert_true(service_every_ms() == INT64_MAX);
	assert_int_equal(service_is_due(INT64_MAX), 0);
}

/* The texts of all messages that the socket has, each with a | at its end. */
static const char *heard(int fd)
{
	static char all[4096];
	size_t len = 0;
	ssize_t n;

	while ((n = recv(fd, all + len, sizeof(all) - len - 2, MSG_DONTWAIT)) > 0) {
		len += (size_t)n;
		if (all[len - 1] == '-') /* that filled it */
			len -= (size_t)n;
		else
			all[len++] = '|';
	}
	all[len] = '\0';
	return all;
}

static void fill(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	while (sendto(fd, "-", 1, MSG_DONTWAIT, (const struct sockaddr *)address,
		      sizeof(*address)) > 0) {
	}
	close(fd);
}

/* A systemd that reads nothing for a while gets it then, each state in a message of its own. */
static void test_what_is_told_once_is_not_lost(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	const char *text;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/couponmq-notify-%d",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", getpid());
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	service_begin(0);
	service_tell(1000, 1, 1, "a");
	assert_string_equal(heard(fd), "STATUS=a\nREADY=1\n|");

	/* of two reloads the last one */
	fill(&address);
	service_reloading();
	service_reloaded();
	service_reloading();
	service_reloaded();
	service_tell(2000, 1, 1, "b");
	assert_string_equal(heard(fd), "");
	service_tell(3000, 1, 1, "b");
	text = heard(fd);
	assert_memory_equal(text, "RELOADING=1\nMONOTONIC_USEC=", 27);
	assert_string_equal(strchr(text, '|'), "|READY=1\n|STATUS=b\n|");

	/* the end, whatever was before it */
	fill(&address);
	service_reloading();
	service_stopping(7, "c");
	service_reloaded();
	service_tell(4000, 1, 1, "b");
	assert_string_equal(heard(fd), "");
	service_tell(5000, 1, 1, "b");
	assert_string_equal(heard(fd),
			    "READY=1\n|STOPPING=1\nSTATUS=c\nEXTEND_TIMEOUT_USEC=7000\n|");
	service_tell(6000, 1, 1, "b");
	assert_string_equal(heard(fd), "");

	service_leave();
	unlink(address.sun_path);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sockets_find_their_listeners),
		cmocka_unit_test(test_without_sockets_the_settings_stay),
		cmocka_unit_test(test_what_no_listener_takes_is_refused),
		cmocka_unit_test(test_two_for_one_listener_are_refused),
		cmocka_unit_test(test_ready_is_told_once),
		cmocka_unit_test(test_ready_is_told_in_the_end),
		cmocka_unit_test(test_the_watchdog_is_told_while_loops_turn),
		cmocka_unit_test(test_what_was_not_sent_is_told_again),
		cmocka_unit_test(test_a_status_is_one_line),
		cmocka_unit_test(test_another_loop_turns),
		cmocka_unit_test(test_what_is_told_once_is_not_lost),
	};

	unsetenv("NOTIFY_SOCKET");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The watchdog of calls into librabbitmq: it ends those that hang, and leaves all others. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rabbit/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NEVER_S 60 /* only a call that nobody ends takes so long */

/* The clocks of common/clock.c, which are not linked: the monotonic one may be moved on. */
static atomic_llong moved_ms;

int64_t clock_monotonic_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 + moved_ms;
}

int64_t clock_monotonic_us(void)
{
	return clock_monotonic_ms() * 1000;
}

int64_t clock_wall_ms(void)
{
	return (int64_t)time(NULL) * 1000;
}

char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	(void)wall_ms;
	out[0] = '\0';
	return out;
}

struct pair {
	int fds[2];
	struct watch *watch;
};

static void pair_open(struct pair *pair)
{
	const struct timeval never = { .tv_sec = NEVER_S };

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair->fds), 0);
	setsockopt(pair->fds[0], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
	pair->watch = watch_new(pair->fds[0]);
}

static void pair_close(struct pair *pair)
{
	watch_free(pair->watch);
	close(pair->fds[0]);
	close(pair->fds[1]);
}

static void test_only_a_call_that_hangs_is_ended(void **state)
{
	struct pair hangs, rests;
	char byte = 0;

	(void)state;
	pair_open(&hangs);
	pair_open(&rests);
	watch_begin(rests.watch);
	assert_int_equal(watch_end(rests.watch), 0);
	watch_begin(hangs.watch);
	moved_ms += WATCHDOG_CALL_MS;
	assert_int_equal(read(hangs.fds[0], &byte, 1), 0); /* the end: not a time-out */
	assert_int_equal(watch_end(hangs.watch), 1);
	watch_begin(rests.watch);
	assert_int_equal(write(rests.fds[1], &byte, 1), 1);
	assert_int_equal(read(rests.fds[0], &byte, 1), 1);
	assert_int_equal(watch_end(rests.watch), 0);
	pair_close(&hangs);
	pair_close(&rests);
}

static void test_all_are_cut(void **state)
{
	struct pair pairs[2];
	char byte;

	(void)state;
	for (int i = 0; i < 2; i++)
		pair_open(&pairs[i]);
	watch_cut_all();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(read(pairs[i].fds[0], &byte, 1), 0);
		pair_close(&pairs[i]);
	}
	watch_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_a_call_that_hangs_is_ended),
		cmocka_unit_test(test_all_are_cut),
	};

	log_init("test", LOG_LEVEL_ERROR, 0);
	return cmocka_run_group_tests_name("watchdog", tests, NULL, NULL);
}

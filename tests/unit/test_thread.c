/* Threads that pause until they are woken, stopped, or have something to read. */
#include "common/thread.h"

#include "common/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 600000 /* longer than a test may take */

static struct {
	struct thread thread;
	pthread_mutex_t mutex;
	int asked, done; /* under the mutex */
	int told;        /* a wake-up for the test: `done` has changed */
} rig = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static int64_t later_ms(void)
{
	return clock_monotonic_ms() + LONG_MS;
}

/* Does what it is asked for, and nothing else wakes it. */
static void *serve(void *context)
{
	assert_ptr_equal(context, &rig);
	while (!rig.thread.stops) {
		pthread_mutex_lock(&rig.mutex);
		rig.done = rig.asked;
		pthread_mutex_unlock(&rig.mutex);
		wake_send(rig.told);
		thread_pause(&rig.thread, later_ms(), NULL, 0);
	}
	return NULL;
}

static void ask(int n)
{
	struct pollfd told = { .fd = rig.told, .events = POLLIN };
	int done = 0;

	pthread_mutex_lock(&rig.mutex);
	rig.asked = n;
	pthread_mutex_unlock(&rig.mutex);
	thread_wake(&rig.thread);
	while (done != n) {
		assert_int_equal(poll(&told, 1, LONG_MS), 1);
		wake_take(rig.told);
		pthread_mutex_lock(&rig.mutex);
		done = rig.done;
		pthread_mutex_unlock(&rig.mutex);
	}
}

/* Whether it works at that moment or pauses. */
static void test_no_wake_up_is_lost(void **state)
{
	(void)state;
	rig.told = wake_new();
	thread_start(&rig.thread, serve, &rig);
	for (int i = 1; i <= 1000; i++)
		ask(i);
	thread_stop(&rig.thread);
	close(rig.told);
}

static void test_what_ends_a_pause(void **state)
{
	struct thread thread = { .fd = wake_new() }; /* this one */
	int other = wake_new(), writable = wake_new();
	struct pollfd fds[] = { { .fd = -1, .events = POLLIN }, { .fd = other, .events = POLLIN } };
	int64_t begin_ms = clock_monotonic_ms();

	(void)state;
	assert_false(thread_pause(&thread, begin_ms - 1, fds, 2));
	assert_false(thread_pause(&thread, begin_ms + 30, fds, 2));
	assert_true(clock_monotonic_ms() >= begin_ms + 30);
	thread_wake(&thread);
	thread_wake(&thread);
	assert_true(thread_pause(&thread, INT64_MAX, fds, 2));
	assert_false(thread_pause(&thread, 0, fds, 2)); /* it is taken */
	wake_send(other);
	assert_false(thread_pause(&thread, INT64_MAX, fds, 2));
	assert_true(wake_take(other));
	assert_false(wake_take(other));
	fds[0] = (struct pollfd){ .fd = writable, .events = POLLOUT };
	assert_false(thread_pause(&thread, INT64_MAX, fds, 2));
	thread_wake(&thread);
	assert_true(thread_pause(&thread, 0, NULL, 0)); /* though the time is over */
	close(thread.fd);
	close(other);
	close(writable);
}

static void *signals_read(void *signals)
{
	pthread_sigmask(SIG_SETMASK, NULL, signals);
	wake_send(rig.told);
	return NULL;
}

/* A thread of each kind blocks them. */
static void test_signals_are_for_the_thread_of_main(void **state)
{
	struct pollfd told = { .fd = rig.told = wake_new(), .events = POLLIN };
	sigset_t signals[2], before, after;
	struct thread thread;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	thread_start(&thread, signals_read, &signals[0]);
	thread_join(&thread);
	assert_true(wake_take(rig.told));
	assert_int_equal(thread_detach(signals_read, &signals[1]), 0);
	assert_int_equal(poll(&told, 1, LONG_MS), 1);
	assert_true(wake_take(rig.told));
	for (int i = 0; i < 2; i++) {
		assert_true(sigismember(&signals[i], SIGTERM));
		assert_true(sigismember(&signals[i], SIGUSR1));
		assert_false(sigismember(&signals[i], SIGSEGV));
	}
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
	close(rig.told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_wake_up_is_lost),
		cmocka_unit_test(test_what_ends_a_pause),
		cmocka_unit_test(test_signals_are_for_the_thread_of_main),
	};

	return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}

/*
 * Threads. All begin with signals blocked, so that the thread of main() gets them.
 *
 *	owner ── thread_start ──▶ the thread: work, thread_pause(), work, …
 *	any   ── thread_wake ───▶   ends its pause
 *	owner ── thread_stop ───▶   `stops` is set, its pause ends, and it is waited for
 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct thread {
	pthread_t id;
	int fd; /* a wake-up: for threads that wait in poll() or an event loop themselves */
	atomic_int stops; /* the thread is to end */
};

void thread_start(struct thread *thread, void *(*run)(void *context), void *context);
/* Ends the pause of the thread, or its next one if it works at present. Any thread. */
void thread_wake(struct thread *thread);
/* Waits until the thread has ended by itself, and frees. */
void thread_join(struct thread *thread);
/* Tells the thread to end, wakes it, waits until it has ended, and frees. */
void thread_stop(struct thread *thread);

/*
 * For the thread itself: waits until it is woken, one of the files is ready, or the monotonic clock
 * says `until_ms`; for an hour at most. Returns whether it was woken.
 */
int thread_pause(struct thread *thread, int64_t until_ms, const struct pollfd *fds, size_t n);

/* Starts a thread that ends by itself, or never, and is not waited for. 0, or an errno. */
int thread_detach(void *(*run)(void *context), void *context);

/* A wake-up: a file that is readable from wake_send() until wake_take(), which tells if it was. */
int wake_new(void);
void wake_send(int fd);
int wake_take(int fd);

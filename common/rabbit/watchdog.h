/*
 * Ends library calls that hang. librabbitmq may block in a write for as long as the peer leaves the
 * socket full; the watchdog's thread then shuts the socket down, and the call returns with an
 * error. One thread watches all connections of the process.
 */
#ifndef COMMON_RABBIT_WATCHDOG_H
#define COMMON_RABBIT_WATCHDOG_H

#define WATCHDOG_CALL_MS 8000 /* no call may take longer */

struct watch;

/*
 * Any thread. Watches the socket `fd` until watch_free(); the first watch starts the thread.
 */
struct watch *watch_new(int fd);
void watch_free(struct watch *watch); /* NULL is allowed */

/* Around each library call that may block; by the thread that owns the watch. */
void watch_begin(struct watch *watch);
int watch_end(struct watch *watch); /* 1 when the watchdog has ended this call */

/*
 * Any thread. Shuts every watched socket down, so that calls in progress return. For a process that
 * stops without waiting for the broker.
 */
void watch_cut_all(void);

#endif

/*
 * What event loops have in common: listening sockets, accepting, some connections in each turn, and
 * periodic timers. Accepting pauses for a moment when file descriptors run out, instead of
 * spinning; the last ones are reserved for connections of the process to the services.
 */
#pragma once

#include <event2/event.h>
#include <event2/listener.h>
#include <stdint.h>

/* Non-blocking sockets, as named by settings. One that cannot be bound ends the process. */

/* Ends the process with a sentence unless `address` is host:port or off; binds nothing. */
void bind_check(const char *setting, const char *address);
int bind_tcp(const char *setting, const char *address); /* -1 for off */
/*
 * Replaces the socket file of a process that is gone. Anything else at the path, for instance a
 * file, or a socket that a process listens on, stays, and ends this process with a sentence.
 */
int bind_unix(const char *setting, const char *path);
/* Closes the socket, and removes its file unless another process listens there by now. */
void bind_unix_end(int fd, const char *path);

/*
 * So many descriptors more are reserved: the process opens them while it runs. Before the first
 * listener.
 */
void listener_keep(unsigned more);

/* `paused` is called at each pause, for a metric. Before the first listener. */
void listener_on_pause(void (*paused)(void));

/*
 * Accepts on a copy of `fd`, which processes may share, and calls `accepted`; NULL: the caller sets
 * it later (evhttp does).
 */
struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted,
				    void *context);

/* Accepts nothing more; the copy is closed with the listener. */
void listener_end(struct evconnlistener *listener);
/* Accepts nothing more, and closes the copy. With the last of them connections are refused. */
void listener_close(struct evconnlistener *listener);

/*
 * To be called for each connection: pauses accepting when the next descriptor would be a reserved
 * one, and lets the loop look at its other sockets when many were accepted at once.
 */
void listener_accepted(struct evconnlistener *listener);

/* A periodic timer of an event loop that runs only while something waits. Its thread only. */

struct ticker;

/* Returns whether something still waits; 0 stops the timer. */
typedef int ticker_fn(void *context);

/* It does not run yet. */
struct ticker *ticker_new(struct event_base *base, int64_t every_ms, ticker_fn *tick,
			  void *context);
void ticker_free(struct ticker *ticker);

/* Something waits from now on: the first tick is a period later, or earlier if it runs already. */
void ticker_start(struct ticker *ticker);

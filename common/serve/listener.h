/*
 * Accepts connections in an event loop, some in each of its turns. It pauses for a moment when file
 * descriptors run out, instead of spinning, and reserves the last ones for connections of the
 * process to the services.
 */
#ifndef COMMON_SERVE_LISTENER_H
#define COMMON_SERVE_LISTENER_H

#include <event2/listener.h>

/* `paused` is called at each pause, for a metric. Before the first listener. */
void listener_on_pause(void (*paused)(void));

/*
 * Accepts on a copy of `fd`, which processes may share, and calls `accepted`; NULL: the caller sets
 * it later (evhttp does).
 */
struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted,
				    void *context);

/*
 * To be called for each connection: pauses accepting when the next descriptor would be a reserved
 * one, and lets the loop look at its other sockets when many were accepted at once.
 */
void listener_accepted(struct evconnlistener *listener);

#endif

/*
 * Accepting connections in an event loop. It pauses for a moment when file descriptors run out,
 * instead of spinning, and keeps the last ones for the process' own connections to the services.
 */
#ifndef COMMON_SERVE_LISTENER_H
#define COMMON_SERVE_LISTENER_H

#include <event2/listener.h>

/* `paused` is called at each pause from then on, for a metric. Before the first listener. */
void listener_on_pause(void (*paused)(void));

/*
 * Accepts on a copy of `fd`, which processes may share, with `accepted`; NULL `accepted`: the
 * caller sets it later (evhttp does).
 */
struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted,
				    void *context);

/*
 * Called for each connection: pauses accepting when the next descriptor would be one of the last,
 * which are kept.
 */
void listener_spare_descriptors(struct evconnlistener *listener);

#endif

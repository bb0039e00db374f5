/*
 * Listening sockets. They are bound before the gateway forks, so that its processes share them;
 * each process then accepts on them in its own event loop. Accepting pauses for a moment when file
 * descriptors run out, instead of spinning.
 */
#ifndef GATEWAY_LISTEN_LISTENER_H
#define GATEWAY_LISTEN_LISTENER_H

#include <event2/listener.h>

/*
 * A bound, listening, non-blocking Unix socket; a stale socket file is replaced. What cannot be
 * bound ends the process with a sentence. (TCP: common/bind.h)
 */
int listener_bind_unix(const char *setting, const char *path);

/*
 * Accepts on a copy of `fd` with `accepted`; NULL `accepted`: the caller sets it later (evhttp
 * does).
 */
struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted,
				    void *context);

/*
 * Called for each connection: pauses accepting when the last descriptors, kept for our own
 * connections, would be next.
 */
void listener_spare_descriptors(struct evconnlistener *listener);

#endif

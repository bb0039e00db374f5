#include "common/serve/listener.h"

#include "common/check.h"
#include "common/log/log.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* for Redis, RabbitMQ and PostgreSQL; a quarter of the limit where that is less */
#define DESCRIPTORS_KEPT 64
#define PAUSE_MS 100
/*
 * Then the loop looks at its other sockets. libevent accepts as long as there are connections, so
 * clients that open and close them as fast as they can would keep it from everything else.
 */
#define ACCEPTED_AT_ONCE 64

static void (*on_pause)(void);

void listener_on_pause(void (*paused)(void))
{
	on_pause = paused;
}

/* Whether the next descriptor would be one of the reserved ones. */
static int descriptors_are_short(void)
{
	int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct rlimit limit;
	rlim_t kept;

	if (lowest < 0)
		return 1;
	close(lowest);
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return 0;
	kept = limit.rlim_cur / 4 < DESCRIPTORS_KEPT ? limit.rlim_cur / 4 : DESCRIPTORS_KEPT;
	return (rlim_t)lowest >= limit.rlim_cur - kept;
}

static void pause_begin(struct evconnlistener *listener);

static void on_pause_end(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	if (descriptors_are_short())
		pause_begin(data);
	else
		evconnlistener_enable(data);
}

static void pause_begin(struct evconnlistener *listener)
{
	struct timeval pause = { .tv_usec = PAUSE_MS * 1000 };

	if (on_pause)
		on_pause();
	evconnlistener_disable(listener);
	event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_pause_end, listener,
			&pause);
}

/* The events of this turn of the loop are handled before the next connection is looked for. */
static void on_turn_end(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	evconnlistener_enable(data);
}

static void turn_end(struct evconnlistener *listener)
{
	static const struct timeval at_once = { 0 };

	evconnlistener_disable(listener);
	event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_turn_end, listener,
			&at_once);
}

void listener_accepted(struct evconnlistener *listener)
{
	static unsigned accepted;

	if (!descriptors_are_short()) {
		if (++accepted % ACCEPTED_AT_ONCE == 0)
			turn_end(listener);
		return;
	}
	log_warn("accept_pause", LOG_S("error", "few file descriptors are left"),
		 LOG_I("ms", PAUSE_MS));
	pause_begin(listener);
}

static void on_accept_error(struct evconnlistener *listener, void *context)
{
	int error = errno;

	(void)context;
	if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM)
		return;
	log_warn("accept_pause", LOG_S("error", strerror(error)), LOG_I("ms", PAUSE_MS));
	pause_begin(listener);
}

struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted,
				    void *context)
{
	struct evconnlistener *listener =
		evconnlistener_new(base, accepted, context,
				   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, dup(fd));

	check(listener != NULL);
	evconnlistener_set_error_cb(listener, on_accept_error);
	return listener;
}

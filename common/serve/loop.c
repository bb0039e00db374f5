#include "common/serve/loop.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/program/kernel_limit.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Splits a copy of the address, which is returned; NULL for off. */
static char *address_split(const char *setting, const char *address, char **host, int *port)
{
	char *text;

	if (strcmp(address, "off") == 0)
		return NULL;
	text = checked(strdup(address));
	if (config_address(text, host, port))
		log_fatal("%s is \"%s\": allowed is host:port with a port from 1 to 65535, or off",
			  setting, address);
	return text;
}

void bind_check(const char *setting, const char *address)
{
	char *host;
	int port;

	free(address_split(setting, address, &host, &port));
}

int bind_tcp(const char *setting, const char *address)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE },
			*list;
	int port, fd, rc, on = 1;
	char *host, service[16], *text = address_split(setting, address, &host, &port);

	if (!text)
		return -1;
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		log_fatal("%s is \"%s\": %s", setting, address, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, LISTEN_BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	freeaddrinfo(list);
	free(text);
	return fd;
}

/* What a path is, for a process that wants to listen there. */
enum unix_path { PATH_FREE, PATH_STALE, PATH_SERVED, PATH_FOREIGN };

static enum unix_path unix_path_inspect(const struct sockaddr_un *address)
{
	struct stat status;
	int fd, rc, error;

	if (lstat(address->sun_path, &status))
		return errno == ENOENT ? PATH_FREE : PATH_FOREIGN;
	if (!S_ISSOCK(status.st_mode))
		return PATH_FOREIGN;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return PATH_FOREIGN;
	rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	error = errno;
	close(fd);
	if (rc == 0 || error == EAGAIN) /* EAGAIN: its backlog is full */
		return PATH_SERVED;
	return error == ECONNREFUSED ? PATH_STALE : PATH_FOREIGN;
}

int bind_unix(const char *setting, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		log_fatal("%s is \"%s\": allowed is a path of at most %zu bytes", setting, path,
			  sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	switch (unix_path_inspect(&address)) {
	case PATH_FREE:
		break;
	case PATH_STALE:
		if (unlink(path) && errno != ENOENT)
			log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
		break;
	case PATH_SERVED:
		log_fatal("%s is \"%s\": another process listens there", setting, path);
	case PATH_FOREIGN:
		log_fatal("%s is \"%s\": the file there is not the socket of a gateway that has "
			  "ended, so it is not replaced; remove it, or choose another path",
			  setting, path);
	}
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, LISTEN_BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
	return fd;
}

/* The file of a socket that is shut down refuses connections, also while copies of it are open. */
void bind_unix_end(int fd, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	shutdown(fd, SHUT_RDWR);
	close(fd);
	strcpy(address.sun_path, path);
	if (unix_path_inspect(&address) == PATH_STALE)
		unlink(path);
}

/* Reserved for Redis, RabbitMQ and PostgreSQL; a quarter of the limit where that is less. */
#define DESCRIPTORS_KEPT 64
#define PAUSE_MS 100
/*
 * After this many the loop looks at its other sockets. libevent accepts as long as there are
 * connections, so clients that open and close them as fast as they can would keep it from
 * everything else.
 */
#define ACCEPTED_AT_ONCE 64

static rlim_t kept_most = DESCRIPTORS_KEPT;
static void (*on_pause)(void);

void listener_keep(unsigned more)
{
	kept_most = DESCRIPTORS_KEPT + more;
}

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
	kept = limit.rlim_cur / 4 < kept_most ? limit.rlim_cur / 4 : kept_most;
	return (rlim_t)lowest >= limit.rlim_cur - kept;
}

static void on_resume(evutil_socket_t fd, short what, void *data);

/* Accepts no more for that time, and until there are descriptors. */
static void pause_begin(struct evconnlistener *listener)
{
	struct timeval time = { .tv_usec = PAUSE_MS * 1000 };

	if (on_pause)
		on_pause();
	evconnlistener_disable(listener);
	event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_resume, listener,
			&time);
}

/* A pause that goes on is logged once. */
static void on_resume(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	if (descriptors_are_short())
		pause_begin(data);
	else
		evconnlistener_enable(data);
}

/* Accepts if there are descriptors. */
static void on_next_turn(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	if (descriptors_are_short()) {
		log_warn("accept_pause", LOG_S("error", "few file descriptors are left"),
			 LOG_I("ms", PAUSE_MS));
		pause_begin(data);
	} else {
		evconnlistener_enable(data);
	}
}

void listener_accepted(struct evconnlistener *listener)
{
	static const struct timeval at_once;
	static unsigned accepted;

	if (descriptors_are_short()) {
		on_next_turn(-1, 0, listener);
	} else if (++accepted % ACCEPTED_AT_ONCE == 0) {
		evconnlistener_disable(listener);
		event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_next_turn,
				listener, &at_once);
	}
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

void listener_end(struct evconnlistener *listener)
{
	evconnlistener_disable(listener);
	evconnlistener_set_cb(listener, NULL, NULL); /* a pause that ends does not enable it */
}

void listener_close(struct evconnlistener *listener)
{
	listener_end(listener);
	close(evconnlistener_get_fd(listener));
}

struct ticker {
	struct event *event;
	struct timeval every;
	ticker_fn *tick;
	void *context;
};

static void on_timeout(evutil_socket_t fd, short what, void *data)
{
	struct ticker *ticker = data;

	(void)fd;
	(void)what;
	if (ticker->tick(ticker->context))
		ticker_start(ticker);
}

struct ticker *ticker_new(struct event_base *base, int64_t every_ms, ticker_fn *tick, void *context)
{
	struct ticker *ticker = checked(calloc(1, sizeof(*ticker)));

	ticker->every.tv_sec = every_ms / 1000;
	ticker->every.tv_usec = every_ms % 1000 * 1000;
	ticker->tick = tick;
	ticker->context = context;
	ticker->event = checked(evtimer_new(base, on_timeout, ticker));
	return ticker;
}

void ticker_free(struct ticker *ticker)
{
	event_free(ticker->event);
	free(ticker);
}

void ticker_start(struct ticker *ticker)
{
	if (!event_pending(ticker->event, EV_TIMEOUT, NULL))
		event_add(ticker->event, &ticker->every);
}

#include "gateway/listener.h"

#include "common/check.h"
#include "common/config.h"
#include "common/log.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define PAUSE_MS 100
#define DESCRIPTORS_KEPT 64 /* for Redis, RabbitMQ and PostgreSQL; a quarter of the limit where that is less */

int listener_bind_tcp(const char *setting, const char *address)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list;
	char *text = strdup(address), *host, service[16];
	int port, fd, rc, on = 1;

	check(text != NULL);
	if (config_address(text, &host, &port))
		log_fatal("%s is \"%s\": allowed is host:port with a port from 1 to 65535, or off", setting, address);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		log_fatal("%s is \"%s\": %s", setting, address, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	freeaddrinfo(list);
	free(text);
	return fd;
}

/* Whether somebody accepts connections on this socket file. */
static int unix_is_alive(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int alive = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;

	if (fd >= 0)
		close(fd);
	return alive;
}

int listener_bind_unix(const char *setting, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		log_fatal("%s is \"%s\": allowed is a path of at most %zu bytes", setting, path, sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	if (unix_is_alive(&address))
		log_fatal("%s is \"%s\": another process listens there", setting, path);
	unlink(path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) || listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
	return fd;
}

/* Whether the next descriptor would be one of those that are kept for our own connections. */
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

	metrics_add(METRIC_ACCEPT_PAUSES, 1);
	evconnlistener_disable(listener);
	event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_pause_end, listener, &pause);
}

void listener_spare_descriptors(struct evconnlistener *listener)
{
	if (!descriptors_are_short())
		return;
	log_warn("accept_pause", LOG_S("error", "few file descriptors are left"), LOG_I("ms", PAUSE_MS));
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

struct evconnlistener *listener_new(struct event_base *base, int fd, evconnlistener_cb accepted, void *context)
{
	struct evconnlistener *listener = evconnlistener_new(
		base, accepted, context, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, dup(fd));

	check(listener != NULL);
	evconnlistener_set_error_cb(listener, on_accept_error);
	return listener;
}

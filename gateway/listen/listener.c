#include "gateway/listen/listener.h"

#include "common/check.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define PAUSE_MS 100

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
		log_fatal("%s is \"%s\": allowed is a path of at most %zu bytes", setting, path,
			  sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	if (unix_is_alive(&address))
		log_fatal("%s is \"%s\": another process listens there", setting, path);
	unlink(path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
	return fd;
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
	event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_pause_end, listener,
			&pause);
}

void listener_spare_descriptors(struct evconnlistener *listener)
{
	if (!descriptors_are_short())
		return;
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

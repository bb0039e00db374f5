#include "gateway/listen/http_connections.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>

#define HEAD_BYTES_MAX 16384
#define TICK_MS 50

struct http_connections {
	struct http_shared shared;
	struct event *tick;
};

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct http_connections *all = data;
	int64_t now_ms = clock_monotonic_ms();
	struct http_connection *connection;

	(void)fd;
	(void)what;
	while ((connection = http_limits_expired(&all->shared.limits, now_ms)))
		http_connection_expire(connection);
}

void http_connections_accept(struct http_connections *all, int fd)
{
	http_connection_open(&all->shared, fd);
}

void http_connections_stop(struct http_connections *all)
{
	all->shared.stopped = 1;
}

size_t http_connections_sending(const struct http_connections *all)
{
	return all->shared.sending;
}

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake, http_handle_fn *handle,
					      void *context)
{
	struct http_connections *all = calloc(1, sizeof(*all));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };

	check(all != NULL);
	all->shared = (struct http_shared){ .base = base, .handle = handle, .context = context };
	http_limits_init(&all->shared.limits, config, intake);
	http_request_head_limit(HEAD_BYTES_MAX);
	all->tick = event_new(base, -1, EV_PERSIST, on_tick, all);
	check(all->tick != NULL);
	event_add(all->tick, &tick);
	return all;
}

void http_connections_free(struct http_connections *all)
{
	struct http_connection *connection;

	while ((connection = http_limits_waiting(&all->shared.limits)))
		http_connection_close(connection);
	check(all->shared.limits.n == 0);
	event_free(all->tick);
	free(all);
}

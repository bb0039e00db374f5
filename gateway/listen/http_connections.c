#include "gateway/listen/http_connections.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/ticker.h"

#include <stdlib.h>

#define HEAD_BYTES_MAX 16384
#define TICK_MIN_MS 50
#define TICK_MAX_MS 250

struct http_connections {
	struct http_shared shared;
	struct ticker *ticker; /* while there is a connection */
};

static int on_tick(void *context)
{
	struct http_connections *all = context;
	int64_t now_ms = clock_monotonic_ms();
	struct http_connection *connection;

	while ((connection = http_limits_expired(&all->shared.limits, now_ms)))
		http_connection_expire(connection);
	return all->shared.limits.n > 0;
}

/* Short time-outs are kept more exactly than long ones. */
static int64_t tick_ms(const struct config *config)
{
	int64_t ms = config->idle_timeout_ms / 20;

	return ms < TICK_MIN_MS ? TICK_MIN_MS : ms > TICK_MAX_MS ? TICK_MAX_MS : ms;
}

void http_connections_accept(struct http_connections *all, int fd)
{
	http_connection_open(&all->shared, fd);
	ticker_start(all->ticker);
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

	check(all != NULL);
	all->shared = (struct http_shared){ .base = base, .handle = handle, .context = context };
	http_limits_init(&all->shared.limits, config, intake);
	http_request_head_limit(HEAD_BYTES_MAX);
	all->ticker = ticker_new(base, tick_ms(config), on_tick, all);
	return all;
}

void http_connections_free(struct http_connections *all)
{
	struct http_connection *connection;

	while ((connection = http_limits_waiting(&all->shared.limits)))
		http_connection_close(connection);
	check(all->shared.limits.n == 0);
	ticker_free(all->ticker);
	free(all);
}

#include "gateway/listen/http_connections.h"

#include "common/check.h"
#include "common/clock.h"
#include "gateway/metrics.h"

#include <stdlib.h>

#define HEAD_BYTES_MAX 16384
#define WAIT_MS 60000 /* for one request to arrive, between two, and for one reply */
#define RESERVE 16    /* connections beyond the limit, for monitoring */
#define RESERVE_MS 5000
#define TICK_MS 50

static struct http_connection_queue *queue_of(struct http_connection *connection)
{
	return connection->is_reserve ? &connection->all->reserve : &connection->all->counted;
}

static int64_t wait_ms(const struct http_connection *connection)
{
	int64_t idle_ms = connection->all->config->idle_timeout_ms;
	int64_t most_ms = connection->is_reserve ? RESERVE_MS : WAIT_MS;

	return idle_ms < most_ms ? idle_ms : most_ms;
}

void http_connections_wait(struct http_connection *connection)
{
	connection->until_ms = clock_monotonic_ms() + wait_ms(connection);
	TAILQ_INSERT_TAIL(queue_of(connection), connection, next);
}

void http_connections_wait_end(struct http_connection *connection)
{
	TAILQ_REMOVE(queue_of(connection), connection, next);
}

static void queue_expire(struct http_connection_queue *queue, int64_t now_ms)
{
	struct http_connection *connection;

	while ((connection = TAILQ_FIRST(queue)) && connection->until_ms <= now_ms)
		http_connection_expire(connection);
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct http_connections *all = data;
	int64_t now_ms = clock_monotonic_ms();

	(void)fd;
	(void)what;
	queue_expire(&all->counted, now_ms);
	queue_expire(&all->reserve, now_ms);
}

static void enter(struct http_connection *connection)
{
	struct http_connections *all = connection->all;

	connection->is_reserve = intake_connection_open(all->intake) != 0;
	all->reserve_n += (size_t)connection->is_reserve;
	all->n++;
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)all->n);
}

void http_connections_leave(struct http_connection *connection)
{
	struct http_connections *all = connection->all;

	all->n--;
	if (connection->is_reserve)
		all->reserve_n--;
	else
		intake_connection_close(all->intake);
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)all->n);
}

void http_connections_accept(struct http_connections *all, int fd)
{
	struct http_connection *connection = http_connection_new(all, fd);

	enter(connection);
	http_connection_receive(connection);
	if (connection->is_reserve && all->reserve_n > RESERVE)
		http_connection_refuse_full(connection);
}

void http_connections_stop(struct http_connections *all)
{
	all->stopped = 1;
}

size_t http_connections_sending(const struct http_connections *all)
{
	return all->sending;
}

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake, http_handle_fn *handle,
					      void *context)
{
	struct http_connections *all = calloc(1, sizeof(*all));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };

	check(all != NULL);
	all->base = base;
	all->config = config;
	all->intake = intake;
	all->handle = handle;
	all->context = context;
	TAILQ_INIT(&all->counted);
	TAILQ_INIT(&all->reserve);
	http_request_head_limit(HEAD_BYTES_MAX);
	all->tick = event_new(base, -1, EV_PERSIST, on_tick, all);
	check(all->tick != NULL);
	event_add(all->tick, &tick);
	return all;
}

void http_connections_free(struct http_connections *all)
{
	struct http_connection *connection;

	while ((connection = TAILQ_FIRST(&all->counted)))
		http_connection_close(connection);
	while ((connection = TAILQ_FIRST(&all->reserve)))
		http_connection_close(connection);
	check(all->n == 0);
	event_free(all->tick);
	free(all);
}

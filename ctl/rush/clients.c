#include "ctl/rush/clients.h"

#include "common/check.h"
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

void clients_init(struct clients *clients, struct rush_book *book,
		  const struct gateway_address *address)
{
	uint32_t n = book->plan->connections_n;

	*clients = (struct clients){
		.book = book,
		.plan = book->plan,
		.address = address,
		.arena = json_arena_new(),
		.list = calloc(n, sizeof(*clients->list)),
		.closed_n = n,
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.begin_us = clock_monotonic_us(),
	};
	check(clients->list != NULL && clients->epoll >= 0);
	for (uint32_t i = 0; i < n; i++)
		rush_connection_init(&clients->list[i],
				     (size_t)clients->plan->pipeline * RUSH_LINE_MAX);
}

void clients_fini(struct clients *clients)
{
	for (uint32_t i = 0; i < clients->plan->connections_n; i++)
		rush_connection_fini(&clients->list[i]);
	free(clients->list);
	close(clients->epoll);
	json_arena_free(clients->arena);
}

void clients_now(struct clients *clients)
{
	clients->now_us = clock_monotonic_us() - clients->begin_us;
}

static void watch(struct clients *clients, struct rush_connection *c, int operation,
		  uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u32 = (uint32_t)(c - clients->list) };

	check(epoll_ctl(clients->epoll, operation, c->fd, &event) == 0);
}

static void connection_closed(struct clients *clients, struct rush_connection *c, const char *why)
{
	if (c->state == RUSH_CONNECTED) {
		clients->open_n--;
		clients->disconnections++;
		rush_book_lost(clients->book, (uint16_t)(c - clients->list));
	}
	if (c->state != RUSH_CLOSED)
		clients->closed_n++;
	snprintf(clients->error, sizeof(clients->error), "%s", why);
	rush_connection_clear(c);
	c->retry_us = clients->now_us + backoff_ms(&c->backoff) * 1000;
}

static void connection_open(struct clients *clients, struct rush_connection *c)
{
	c->fd = gateway_connect(clients->address);
	if (c->fd < 0) {
		connection_closed(clients, c, strerror(errno));
		return;
	}
	c->state = RUSH_CONNECTING;
	clients->closed_n--;
	watch(clients, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void connection_opened(struct clients *clients, struct rush_connection *c)
{
	int error = gateway_connect_error(c->fd);

	if (error) {
		connection_closed(clients, c, strerror(error));
		return;
	}
	c->state = RUSH_CONNECTED;
	clients->open_n++;
	backoff_reset(&c->backoff);
	watch(clients, c, EPOLL_CTL_MOD, EPOLLIN);
}

static void connection_send(struct clients *clients, struct rush_connection *c)
{
	const char *error = rush_connection_send(c);

	if (error) {
		connection_closed(clients, c, error);
		return;
	}
	if (c->want_write != (c->out_len > 0)) {
		c->want_write = c->out_len > 0;
		watch(clients, c, EPOLL_CTL_MOD, c->want_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

static void connection_fill(struct clients *clients, struct rush_connection *c, uint32_t stop)
{
	struct rush_book *book = clients->book;
	const struct rush_plan *plan = clients->plan;

	if (c->state != RUSH_CONNECTED || c->out_len > 0)
		return;
	while (c->open < plan->pipeline && book->next < stop) {
		int64_t due_us = plan->rate ? rush_plan_due_us(plan, book->next) : clients->now_us;
		uint32_t request = rush_book_send(book, (uint16_t)(c - clients->list), due_us,
						  clients->now_us);

		c->out_len += rush_plan_line(plan, request, c->out + c->out_len);
		c->open++;
	}
	if (c->out_len > 0)
		connection_send(clients, c);
}

static void line_take(struct clients *clients, const char *line, size_t len)
{
	struct rush_reply reply;
	int of;

	if (rush_scan(line, len, &reply) && rush_scan_strict(clients->arena, line, len, &reply)) {
		rush_book_strange(clients->book, line, len);
		return;
	}
	of = rush_book_answer(clients->book, &reply, clients->now_us);
	if (of >= 0)
		clients->list[of].open--;
	else if (of == RUSH_WRONG)
		rush_book_strange(clients->book, line, len);
}

static void connection_receive(struct clients *clients, struct rush_connection *c)
{
	const char *error = rush_connection_receive(c), *line;
	size_t len;

	if (error) {
		connection_closed(clients, c, error);
		return;
	}
	clients_now(clients);
	while ((line = rush_connection_line(c, &len)))
		line_take(clients, line, len);
	if (!clients->plan->rate && c->open <= clients->plan->pipeline / 2)
		connection_fill(clients, c, clients->plan->requests_n);
}

void clients_event(struct clients *clients, uint32_t i, uint32_t events)
{
	struct rush_connection *c = &clients->list[i];

	if (c->state == RUSH_CONNECTING) {
		connection_opened(clients, c);
		if (c->state == RUSH_CONNECTED && clients->may_send && !clients->plan->rate)
			connection_fill(clients, c, clients->plan->requests_n);
		return;
	}
	if (c->state == RUSH_CONNECTED && (events & EPOLLOUT)) {
		connection_send(clients, c);
		if (c->state == RUSH_CONNECTED && !clients->plan->rate)
			connection_fill(clients, c, clients->plan->requests_n);
	}
	if (c->state == RUSH_CONNECTED && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(clients, c);
}

void clients_fill(struct clients *clients, uint32_t i, uint32_t stop)
{
	connection_fill(clients, &clients->list[i], stop);
}

/* Without a rate: fills all connections. */
static void clients_fill_all(struct clients *clients)
{
	for (uint32_t i = 0; !clients->plan->rate && i < clients->plan->connections_n; i++)
		connection_fill(clients, &clients->list[i], clients->plan->requests_n);
}

void clients_start(struct clients *clients)
{
	clients->begin_us = clock_monotonic_us();
	clients->now_us = 0;
	clients->may_send = 1;
	/* These times were measured from the former beginning. */
	for (uint32_t i = 0; i < clients->plan->connections_n; i++)
		clients->list[i].retry_us = 0;
	clients_fill_all(clients);
}

void clients_expire(struct clients *clients)
{
	int expired = 0, of;

	while ((of = rush_book_expire(clients->book, clients->now_us)) >= 0) {
		clients->list[of].open--;
		expired = 1;
	}
	if (expired)
		clients_fill_all(clients);
}

void clients_connect(struct clients *clients)
{
	for (uint32_t i = 0; clients->closed_n > 0 && i < clients->plan->connections_n; i++) {
		struct rush_connection *c = &clients->list[i];

		if (c->state == RUSH_CLOSED && c->retry_us <= clients->now_us)
			connection_open(clients, c);
	}
}

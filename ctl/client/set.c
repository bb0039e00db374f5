#include "ctl/client/set.h"

#include "common/check.h"
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 256

void client_set_init(struct client_set *set, const struct client_owner *owner,
		     const struct gateway_address *address, uint32_t n, size_t out_bytes)
{
	*set = (struct client_set){
		.owner = *owner,
		.address = address,
		.list = calloc(n, sizeof(*set->list)),
		.n = n,
		.closed_n = n,
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.begin_us = clock_monotonic_us(),
	};
	check(set->list != NULL && set->epoll >= 0);
	for (uint32_t i = 0; i < n; i++)
		client_connection_init(&set->list[i], out_bytes);
}

void client_set_fini(struct client_set *set)
{
	for (uint32_t i = 0; i < set->n; i++)
		client_connection_fini(&set->list[i]);
	free(set->list);
	close(set->epoll);
}

void client_set_now(struct client_set *set)
{
	set->now_us = clock_monotonic_us() - set->begin_us;
}

void client_set_start(struct client_set *set)
{
	set->begin_us = clock_monotonic_us();
	set->now_us = 0;
	/* These times were measured from the former beginning. */
	for (uint32_t i = 0; i < set->n; i++)
		set->list[i].retry_us = 0;
}

static void watch(struct client_set *set, struct client_connection *c, int operation,
		  uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u32 = (uint32_t)(c - set->list) };

	check(epoll_ctl(set->epoll, operation, c->fd, &event) == 0);
}

static void connection_closed(struct client_set *set, struct client_connection *c, const char *why)
{
	if (c->state == CLIENT_CONNECTED) {
		set->open_n--;
		set->disconnections++;
		set->owner.lost(set->owner.context, (uint32_t)(c - set->list));
	}
	if (c->state != CLIENT_CLOSED)
		set->closed_n++;
	snprintf(set->error, sizeof(set->error), "%s", why);
	client_connection_clear(c);
	c->retry_us = set->now_us + backoff_ms(&c->backoff) * 1000;
}

static void connection_open(struct client_set *set, struct client_connection *c)
{
	c->fd = gateway_connect(set->address);
	if (c->fd < 0) {
		connection_closed(set, c, strerror(errno));
		return;
	}
	c->state = CLIENT_CONNECTING;
	set->closed_n--;
	watch(set, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void connection_opened(struct client_set *set, struct client_connection *c)
{
	int error = gateway_connect_error(c->fd);

	if (error) {
		connection_closed(set, c, strerror(error));
		return;
	}
	c->state = CLIENT_CONNECTED;
	set->open_n++;
	backoff_reset(&c->backoff);
	watch(set, c, EPOLL_CTL_MOD, EPOLLIN);
}

void client_set_send(struct client_set *set, uint32_t i)
{
	struct client_connection *c = &set->list[i];
	const char *error = client_connection_send(c);

	if (error) {
		connection_closed(set, c, error);
		return;
	}
	if (c->want_write != (c->out_len > 0)) {
		c->want_write = c->out_len > 0;
		watch(set, c, EPOLL_CTL_MOD, c->want_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

void client_set_close(struct client_set *set, uint32_t i, const char *why)
{
	connection_closed(set, &set->list[i], why);
}

static void fill(struct client_set *set, struct client_connection *c)
{
	if (c->state == CLIENT_CONNECTED)
		set->owner.fill(set->owner.context, (uint32_t)(c - set->list));
}

static void connection_receive(struct client_set *set, struct client_connection *c)
{
	const char *error = client_connection_receive(c), *line;
	size_t len;

	if (error) {
		connection_closed(set, c, error);
		return;
	}
	client_set_now(set);
	while ((line = client_connection_line(c, &len)))
		set->owner.line(set->owner.context, (uint32_t)(c - set->list), line, len);
	fill(set, c);
}

static void event_take(struct client_set *set, struct client_connection *c, uint32_t events)
{
	if (c->state == CLIENT_CONNECTING) {
		connection_opened(set, c);
		fill(set, c);
		return;
	}
	if (c->state == CLIENT_CONNECTED && (events & EPOLLOUT)) {
		client_set_send(set, (uint32_t)(c - set->list));
		fill(set, c);
	}
	if (c->state == CLIENT_CONNECTED && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(set, c);
}

void client_set_wait(struct client_set *set, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(set->epoll, events, EVENTS_MAX, timeout_ms);

	client_set_now(set);
	for (int i = 0; i < n; i++)
		if (events[i].data.u32 < set->n)
			event_take(set, &set->list[events[i].data.u32], events[i].events);
	client_set_now(set);
}

void client_set_connect(struct client_set *set)
{
	for (uint32_t i = 0; set->closed_n > 0 && i < set->n; i++) {
		struct client_connection *c = &set->list[i];

		if (c->state == CLIENT_CLOSED && c->retry_us <= set->now_us)
			connection_open(set, c);
	}
}

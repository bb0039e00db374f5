#include "ctl/rush/clients.h"

#include "common/check.h"

void clients_fill(struct clients *clients, uint32_t i, uint32_t stop)
{
	struct client_connection *c = &clients->set.list[i];
	struct rush_book *book = clients->book;
	const struct rush_plan *plan = clients->plan;
	int64_t now_us = clients->set.now_us;

	if (c->state != CLIENT_CONNECTED || c->out_len > 0)
		return;
	while (c->open < plan->pipeline && book->next < stop) {
		int64_t due_us = plan->rate ? rush_plan_due_us(plan, book->next) : now_us;
		uint32_t request = rush_book_send(book, (uint16_t)i, due_us, now_us);

		c->out_len += rush_plan_line(plan, request, c->out + c->out_len);
		c->open++;
	}
	if (c->out_len > 0)
		client_set_send(&clients->set, i);
}

static void fill(void *context, uint32_t i)
{
	struct clients *clients = context;

	if (clients->may_send && !clients->plan->rate &&
	    clients->set.list[i].open <= clients->plan->pipeline / 2)
		clients_fill(clients, i, clients->plan->requests_n);
}

static void line_take(void *context, uint32_t i, const char *line, size_t len)
{
	struct clients *clients = context;
	struct client_reply reply;
	int of;

	(void)i;
	if (client_scan(line, len, &reply) &&
	    client_scan_strict(clients->arena, line, len, &reply)) {
		rush_book_strange(clients->book, line, len);
		return;
	}
	of = rush_book_answer(clients->book, &reply, clients->set.now_us);
	if (of >= 0)
		clients->set.list[of].open--;
	else if (of == RUSH_WRONG)
		rush_book_strange(clients->book, line, len);
}

static void lost(void *context, uint32_t i)
{
	struct clients *clients = context;

	rush_book_lost(clients->book, (uint16_t)i);
}

void clients_init(struct clients *clients, struct rush_book *book,
		  const struct gateway_address *address)
{
	const struct client_owner owner = {
		.context = clients,
		.fill = fill,
		.line = line_take,
		.lost = lost,
	};

	*clients = (struct clients){
		.book = book,
		.plan = book->plan,
		.arena = json_arena_new(),
	};
	client_set_init(&clients->set, &owner, address, book->plan->connections_n,
			(size_t)book->plan->pipeline * RUSH_LINE_MAX);
}

void clients_fini(struct clients *clients)
{
	client_set_fini(&clients->set);
	json_arena_free(clients->arena);
}

/* Without a rate: fills all connections. */
static void clients_fill_all(struct clients *clients)
{
	for (uint32_t i = 0; clients->may_send && !clients->plan->rate && i < clients->set.n; i++)
		clients_fill(clients, i, clients->plan->requests_n);
}

void clients_start(struct clients *clients)
{
	client_set_start(&clients->set);
	clients->may_send = 1;
	clients_fill_all(clients);
}

void clients_expire(struct clients *clients)
{
	int expired = 0, of;

	while ((of = rush_book_expire(clients->book, clients->set.now_us)) >= 0) {
		clients->set.list[of].open--;
		expired = 1;
	}
	if (expired)
		clients_fill_all(clients);
}

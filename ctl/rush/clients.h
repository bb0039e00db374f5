/*
 * The connections of a rush to the gateway, in one epoll set:
 *
 *	          ┌─ fill: request lines, as many as fit ─▶ out ─▶ send ─┐
 *	book ─────┤                                                      ├── a connection
 *	          └─ answers ◀─ scan ◀─ in ◀─ recv ──────────────────────┘
 *
 * A connection is filled again when half of its pipeline is answered, so that one send carries many
 * requests. With a rate, the load fills one connection after the other with the requests that are
 * due. A connection that ends is opened again.
 */
#ifndef CTL_RUSH_CLIENTS_H
#define CTL_RUSH_CLIENTS_H

#include "ctl/gateway.h"
#include "ctl/rush/book.h"
#include "ctl/rush/connection.h"

struct clients {
	struct rush_book *book;
	const struct rush_plan *plan;
	const struct gateway_address *address;
	struct json_arena *arena;
	struct rush_connection *list; /* plan->connections_n */
	uint32_t open_n, closed_n;
	uint32_t disconnections;
	char error[160]; /* why the last connection ended or could not be opened; "": none did */
	int epoll;
	int may_send;     /* before, connections are only opened */
	int64_t begin_us; /* on the monotonic clock */
	int64_t now_us;   /* from begin_us */
};

void clients_init(struct clients *clients, struct rush_book *book,
		  const struct gateway_address *address);
void clients_fini(struct clients *clients);

/* Sets the clock to 0 and sends the first requests, unless there is a rate. */
void clients_start(struct clients *clients);

/* Reads the clock. */
void clients_now(struct clients *clients);

/* Opens the closed connections whose time has come. */
void clients_connect(struct clients *clients);

/* Handles an epoll event of connection `i`. */
void clients_event(struct clients *clients, uint32_t i, uint32_t events);

/* Sends requests before number `stop` on connection `i`, as many as its pipeline allows. */
void clients_fill(struct clients *clients, uint32_t i, uint32_t stop);

/* Ends the requests that had no answer in time. */
void clients_expire(struct clients *clients);

#endif

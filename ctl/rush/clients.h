/*
 * The requests of a rush on their connections:
 *
 *	          ┌─ request lines, as many as the pipeline allows ─▶ ┐
 *	book ─────┤                                                   ├── the set of connections
 *	          └─ answers ◀─ scan ◀─ lines ◀───────────────────────┘
 *
 * A connection is filled again when half of its pipeline is answered, so that one send carries many
 * requests. With a rate, the load fills one connection after the other with the requests that are
 * due.
 */
#ifndef CTL_RUSH_CLIENTS_H
#define CTL_RUSH_CLIENTS_H

#include "ctl/client/set.h"
#include "ctl/rush/book.h"

struct clients {
	struct client_set set;
	struct rush_book *book;
	const struct rush_plan *plan;
	struct json_arena *arena;
	int may_send; /* before, connections are only opened */
};

void clients_init(struct clients *clients, struct rush_book *book,
		  const struct gateway_address *address);
void clients_fini(struct clients *clients);

/* Sets the clock to 0 and sends the first requests, unless there is a rate. */
void clients_start(struct clients *clients);

/* Sends requests before number `stop` on connection `i`, as many as its pipeline allows. */
void clients_fill(struct clients *clients, uint32_t i, uint32_t stop);

/* Ends the requests that had no answer in time. */
void clients_expire(struct clients *clients);

#endif

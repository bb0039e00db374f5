/*
 * The I/O of a rush: connections to the gateway, one thread, epoll. What happens is written into
 * the book.
 */
#ifndef CTL_RUSH_LOAD_H
#define CTL_RUSH_LOAD_H

#include "ctl/rush/book.h"
#include "ctl/gateway.h"

struct rush_figures {
	int64_t begin_us;    /* the first request, on the monotonic clock */
	int64_t duration_us; /* from then to the last answer or the last end */
	int64_t cpu_us;      /* of this process meanwhile */
	uint32_t connected;  /* connections that were there at the beginning */
	uint32_t disconnections;
	char error[160]; /* why the last connection ended or could not be made; "": none did */
};

/*
 * Runs until every request of the book has its end, or nothing can be sent any more. 0, or -1 when
 * no connection could be made at all.
 */
int rush_load_run(struct rush_book *book, const struct gateway_address *address, int progress,
		  struct rush_figures *figures);

#endif

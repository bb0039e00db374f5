/*
 * What connections hold in memory for their clients: input that is not served yet, and replies that
 * are not read. All together have a bound; beyond it those that hold most are cut. One thread, no
 * I/O.
 */
#ifndef GATEWAY_LISTEN_HOLDINGS_H
#define GATEWAY_LISTEN_HOLDINGS_H

#include <stddef.h>
#include <sys/queue.h>

#define HOLDINGS_CUT "all connections hold more than COUPON_SOCKET_BUFFER_BYTES"

/* Embedded by its owner. */
struct holding {
	LIST_ENTRY(holding) next; /* while it holds something */
	size_t bytes;
	void (*cut)(void *owner); /* closes the connection, now or soon; logs and counts it */
	void *owner;
};

struct holdings {
	LIST_HEAD(, holding) all;
	size_t n;
	size_t bytes;
	size_t bytes_max;
};

void holdings_init(struct holdings *holdings, size_t bytes_max);
/* From now on it holds so much; 0 before it ends. */
void holdings_set(struct holdings *holdings, struct holding *holding, size_t bytes);
/*
 * Whether so many bytes are more than the share of one that holds anything. There are no shares
 * while all together hold less than half of what is allowed.
 */
int holdings_is_over_share(const struct holdings *holdings, size_t bytes);
/* Cuts those that hold most, while all together hold more than is allowed. */
void holdings_relieve(struct holdings *holdings);

#endif

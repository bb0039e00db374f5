/*
 * Connections as they arrive, until the server of their listener takes them:
 *
 *	accepted ─▶ counted, of all and of its address ─▶ [ TLS handshake ] ─▶ the server
 *
 * A handshake costs as much as a hundred requests, and any stranger may begin one. So handshakes
 * have bounds in number, of all and of an address, and in time, and each takes its turn among the
 * connections that are served, one at a time of an address. What has no room under TLS is closed
 * before the handshake. One event loop.
 */
#pragma once

#include "common/program/config.h"
#include "common/serve/network.h"
#include "common/serve/stream.h"
#include "common/serve/tls.h"
#include "gateway/listen/turns.h"

#include <stdint.h>
#include <sys/socket.h>

struct arrival {
	struct stream stream;
	uint64_t peer;
	struct network from; /* its address; empty for a Unix socket */
	int is_local;        /* from this machine: loopback, or a Unix socket */
	enum room room;      /* by COUPON_CONNECTIONS_MAX, and for its address */
	int is_counted;      /* among those of its address */
};

/*
 * Takes over a new connection, which arrival_end() closes. Without room it is refused, with
 * arrival_refused().
 */
typedef void arrival_fn(void *context, const struct arrival *arrival);

struct arrivals;

/* Ends the program if a setting is malformed. */
void arrivals_check(const struct config *config);

/* `tls` is NULL for plain connections. */
struct arrivals *arrivals_new(struct event_base *base, const struct config *config,
			      struct turns *turns, const struct tls *tls);

struct arrivals_listener {
	int fd;               /* bound; the caller keeps it */
	const char *protocol; /* for ALPN; NULL: without TLS in any case */
	int has_reserve;      /* takes some connections beyond COUPON_CONNECTIONS_MAX */
	arrival_fn *take;
	void *context;
};

void arrivals_listen(struct arrivals *arrivals, const struct arrivals_listener *listener);
void arrivals_close(struct arrivals *arrivals); /* accepts no more */
void arrivals_stop(struct arrivals *arrivals);  /* and takes up nothing that it has accepted */

void arrival_end(struct arrivals *arrivals, struct arrival *arrival);
/* Counts one that is refused, and returns the message for it. */
const char *arrival_refused(enum room room);

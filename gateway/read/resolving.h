/*
 * Looks a host's name up on a thread of its own: getaddrinfo() may take half a minute where a name
 * server is silent, and the event loop is not to wait for it. Whoever begins one asks now and then
 * whether it is done.
 */
#ifndef GATEWAY_READ_RESOLVING_H
#define GATEWAY_READ_RESOLVING_H

#include <netinet/in.h>
#include <stddef.h>

#define RESOLVED_SIZE INET6_ADDRSTRLEN

struct resolving;

/* Whether this is an address already, or the path of a socket: nothing to look up. */
int host_is_address(const char *host);

struct resolving *resolving_begin(const char *host);
int resolving_done(const struct resolving *resolving);

/*
 * When it is done: 0 with the first address in digits (IPv4 before IPv6), or -1 with a sentence in
 * `error`. Frees it.
 */
int resolving_take(struct resolving *resolving, char address[RESOLVED_SIZE], char *error,
		   size_t size);

void resolving_abandon(
	struct resolving *resolving); /* whether it is done or not; NULL is allowed */

#endif

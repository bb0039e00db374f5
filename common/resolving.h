/*
 * Looks up a host name on a thread of its own: getaddrinfo() can take half a minute when a name
 * server does not answer, and an event loop must not wait for it. The caller polls
 * resolving_done().
 */
#ifndef COMMON_RESOLVING_H
#define COMMON_RESOLVING_H

#include <netinet/in.h>
#include <stddef.h>

#define RESOLVED_SIZE INET6_ADDRSTRLEN

struct resolving;

/* Whether `host` is an address already, or the path of a socket: nothing to look up. */
int host_is_address(const char *host);

struct resolving *resolving_begin(const char *host);
int resolving_done(const struct resolving *resolving);

/*
 * Once it is done: 0 with the first address in digits (IPv4 before IPv6), or -1 with a sentence in
 * `error`. Frees it.
 */
int resolving_take(struct resolving *resolving, char address[RESOLVED_SIZE], char *error,
		   size_t size);

/* At any time, done or not; NULL is allowed. Does not wait for the look-up. */
void resolving_abandon(struct resolving *resolving);

#endif

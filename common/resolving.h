/*
 * Looks up a host name on a thread of its own: getaddrinfo() can take half a minute when a name
 * server does not answer, and an event loop must not wait for it.
 */
#pragma once

#include <netinet/in.h>
#include <stddef.h>

#define RESOLVED_SIZE INET6_ADDRSTRLEN

struct resolving;

/* Whether `host` is an address already, or the path of a socket: nothing to look up. */
int host_is_address(const char *host);

/*
 * Whether what is written here is on this machine: localhost, an address of loopback, or the path
 * of a socket. Any other name counts as elsewhere: what it means can change.
 */
int host_is_loopback(const char *host);

/*
 * Begins with `*resolving` NULL, and is to be called again until it has ended, which sets that to
 * NULL: 1 with the first address in digits (IPv4 before IPv6), 0: not yet, or -1. After 0 and -1
 * `error` has a sentence.
 */
int resolving_step(struct resolving **resolving, const char *host, char address[RESOLVED_SIZE],
		   char *error, size_t size);

/* At any time, done or not; NULL is allowed. Does not wait for the look-up. */
void resolving_abandon(struct resolving *resolving);

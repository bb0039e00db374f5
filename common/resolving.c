/*
 * The caller and the thread hold one reference each; the release of the last one frees. The caller
 * may read the result once the thread has released its reference.
 *
 * getaddrinfo_a() is no alternative: a look-up that is running cannot be cancelled, and its memory
 * cannot be freed before it ends, so abandoning one would need these references as well.
 */
#include "common/resolving.h"

#include "common/check.h"
#include "common/thread.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct resolving {
	atomic_int shares;
	int rc; /* of getaddrinfo() */
	char address[RESOLVED_SIZE];
	char host[];
};

int host_is_address(const char *host)
{
	struct in6_addr address;

	return *host == '/' || *host == '@' || inet_pton(AF_INET, host, &address) == 1 ||
	       inet_pton(AF_INET6, host, &address) == 1;
}

int host_is_loopback(const char *host)
{
	struct in_addr ipv4;
	struct in6_addr ipv6;

	if (inet_pton(AF_INET, host, &ipv4) == 1)
		return ntohl(ipv4.s_addr) >> 24 == IN_LOOPBACKNET;
	if (inet_pton(AF_INET6, host, &ipv6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&ipv6) ||
		       (IN6_IS_ADDR_V4MAPPED(&ipv6) && ipv6.s6_addr[12] == IN_LOOPBACKNET);
	return *host == '/' || *host == '@' || strcasecmp(host, "localhost") == 0;
}

void resolving_abandon(struct resolving *resolving)
{
	if (resolving && atomic_fetch_sub(&resolving->shares, 1) == 1)
		free(resolving);
}

static int look_up(struct resolving *resolving, int family)
{
	struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM }, *list;
	int rc = getaddrinfo(resolving->host, NULL, &hints, &list);

	if (rc)
		return rc;
	rc = getnameinfo(list->ai_addr, list->ai_addrlen, resolving->address, RESOLVED_SIZE, NULL,
			 0, NI_NUMERICHOST);
	freeaddrinfo(list);
	return rc;
}

static void *run(void *data)
{
	struct resolving *resolving = data;

	resolving->rc = look_up(resolving, AF_INET);
	if (resolving->rc)
		resolving->rc = look_up(resolving, AF_INET6);
	resolving_abandon(resolving);
	return NULL;
}

int resolving_step(struct resolving **resolving, const char *host, char address[RESOLVED_SIZE],
		   char *error, size_t size)
{
	struct resolving *one = *resolving;
	int rc;

	if (!one) {
		one = *resolving = checked(calloc(1, sizeof(*one) + strlen(host) + 1));
		strcpy(one->host, host);
		one->shares = 2;
		if (thread_detach(run, one)) {
			one->rc = EAI_MEMORY; /* no more threads at present: a failed look-up */
			one->shares = 1;
		}
	}
	if (one->shares > 1) {
		snprintf(error, size, "its host name is being looked up");
		return 0;
	}
	rc = one->rc;
	snprintf(error, size, "%s: %s", host, gai_strerror(rc));
	memcpy(address, one->address, RESOLVED_SIZE);
	resolving_abandon(one);
	*resolving = NULL;
	return rc ? -1 : 1;
}

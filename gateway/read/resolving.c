/*
 * The thread owns the answer until it has set `state` to DONE; then whoever began it does. Each
 * side changes the state once, and the second one frees.
 */
#include "gateway/read/resolving.h"

#include "common/check.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { RUNNING, DONE, ABANDONED };

struct resolving {
	atomic_int state;
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

static void *run(void *data)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *list = NULL;
	struct resolving *resolving = data;
	int expected = RUNNING;

	resolving->rc = getaddrinfo(resolving->host, NULL, &hints, &list);
	if (resolving->rc) {
		hints.ai_family = AF_INET6;
		resolving->rc = getaddrinfo(resolving->host, NULL, &hints, &list);
	}
	if (resolving->rc == 0) {
		resolving->rc = getnameinfo(list->ai_addr, list->ai_addrlen, resolving->address,
					    RESOLVED_SIZE, NULL, 0, NI_NUMERICHOST);
		freeaddrinfo(list);
	}
	if (!atomic_compare_exchange_strong(&resolving->state, &expected, DONE))
		free(resolving);
	return NULL;
}

struct resolving *resolving_begin(const char *host)
{
	struct resolving *resolving = calloc(1, sizeof(*resolving) + strlen(host) + 1);
	pthread_attr_t attributes;
	pthread_t thread;

	check(resolving != NULL);
	strcpy(resolving->host, host);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, run, resolving)) {
		resolving->rc =
			EAI_MEMORY; /* no more threads at present: as a look-up that failed */
		resolving->state = DONE;
	}
	pthread_attr_destroy(&attributes);
	return resolving;
}

int resolving_done(const struct resolving *resolving)
{
	return resolving->state == DONE;
}

int resolving_take(struct resolving *resolving, char address[RESOLVED_SIZE], char *error,
		   size_t size)
{
	int rc = resolving->rc;

	check(resolving->state == DONE);
	snprintf(error, size, "%s: %s", resolving->host, gai_strerror(rc));
	memcpy(address, resolving->address, RESOLVED_SIZE);
	free(resolving);
	return rc ? -1 : 0;
}

void resolving_abandon(struct resolving *resolving)
{
	int expected = RUNNING;

	if (resolving && !atomic_compare_exchange_strong(&resolving->state, &expected, ABANDONED))
		free(resolving);
}

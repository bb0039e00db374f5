/* A connection to couponmq's gateway: lines in, lines out. */
#include "compare/store/client.h"

#include "common/check.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int gateway_connect(const char *address)
{
	char host[256];
	const char *colon = strrchr(address, ':');
	struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
	int fd;

	if (!colon || colon - address >= (long)sizeof(host))
		client_fail("gateway", "COUPON_LISTEN", address);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (getaddrinfo(host, colon + 1, &hints, &found))
		client_fail("gateway", "resolve", address);
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
		client_fail("gateway", "connect", address);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	freeaddrinfo(found);
	return fd;
}

void gateway_open(struct client *client)
{
	int fd = gateway_connect(client->market->gateway);

	client->gateway_in = fdopen(fd, "r");
	client->gateway_out = fdopen(dup(fd), "w");
	check(client->gateway_in && client->gateway_out);
}

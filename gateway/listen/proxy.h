/*
 * The header of the PROXY protocol, versions 1 and 2, with which a balancer begins a connection to
 * tell whose it is: haproxy's doc/proxy-protocol.txt. Pure: it reads bytes that the caller has.
 *
 * Only connections from COUPON_PROXY_FROM have one, and each of them must (section 2: the receiver
 * never guesses whether there is a header): else whoever connects could choose its address.
 */
#pragma once

#include <stddef.h>
#include <sys/socket.h>

/*
 * A longer header is malformed. Both versions are meant to fit into the smallest segment of TCP,
 * 576 - 40 bytes (section 2), so that one segment has all of it. What is longer has large TLVs, as
 * certificates of clients, and could be 64 KiB for each connection that has not even begun.
 */
#define PROXY_HEADER_MAX 536

enum proxy_result {
	PROXY_MORE,     /* all is well so far; more bytes are needed */
	PROXY_HEADER,   /* the header is complete */
	PROXY_MALFORMED /* to be closed, without an answer */
};

struct proxy_header {
	size_t len; /* what follows belongs to the client */
	/* AF_UNSPEC: the balancer asks for itself (a health check), or does not know for whom. */
	struct sockaddr_storage from;
};

/*
 * Reads the first bytes of a connection, all that have come. PROXY_HEADER sets `header`. With
 * PROXY_HEADER_MAX bytes the result is never PROXY_MORE.
 */
enum proxy_result proxy_parse(const void *bytes, size_t len, struct proxy_header *header);

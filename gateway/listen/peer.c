#include "gateway/listen/peer.h"

#include "common/hash.h"

#include <netinet/in.h>

#define NETWORK_BYTES 8 /* of an IPv6 address */

static uint64_t of_ipv6(const struct in6_addr *address)
{
	if (IN6_IS_ADDR_V4MAPPED(address))
		return hash_keyed(address->s6_addr + 12, 4);
	return hash_keyed(address->s6_addr, NETWORK_BYTES);
}

uint64_t peer_of_address(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return hash_keyed(&((const struct sockaddr_in *)(const void *)address)->sin_addr,
				  4);
	if (address->sa_family == AF_INET6)
		return of_ipv6(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
	return hash_keyed("", 0);
}

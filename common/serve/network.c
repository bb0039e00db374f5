#include "common/serve/network.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_BYTES 8 /* of an IPv6 address that count: the /64 */

static int family_bits(int family)
{
	return family == AF_INET ? 32 : 128;
}

int network_has(const struct network *network, const struct network *address)
{
	int whole = network->bits / 8, rest = network->bits % 8;
	unsigned mask = 0xff00U >> rest & 0xff;

	if (network->family != address->family ||
	    memcmp(network->bytes, address->bytes, (size_t)whole) != 0)
		return 0;
	return rest == 0 || ((network->bytes[whole] ^ address->bytes[whole]) & mask) == 0;
}

int network_of_text(struct network *address, const char *text)
{
	address->family = strchr(text, ':') ? AF_INET6 : AF_INET;
	address->bits = family_bits(address->family);
	memset(address->bytes, 0, sizeof(address->bytes));
	return inet_pton(address->family, text, address->bytes) == 1 ? 0 : -1;
}

int network_of_address(struct network *network, const struct sockaddr *address)
{
	*network = (struct network){ .family = address->sa_family };
	switch (address->sa_family) {
	case AF_INET:
		memcpy(network->bytes,
		       &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
		break;
	case AF_INET6:
		memcpy(network->bytes,
		       &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
		break;
	default:
		return -1;
	}
	network->bits = family_bits(network->family);
	return 0;
}

void network_unmap(struct network *address)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (address->family != AF_INET6 || memcmp(address->bytes, mapped, sizeof(mapped)) != 0)
		return;
	*address = (struct network){ .family = AF_INET,
				     .bits = family_bits(AF_INET),
				     .bytes = { address->bytes[12], address->bytes[13],
						address->bytes[14], address->bytes[15] } };
}

int network_parse(struct network *network, const char *text)
{
	char address[INET6_ADDRSTRLEN];
	size_t len = strcspn(text, "/");
	char *end;
	long bits;

	if (len >= sizeof(address))
		return -1;
	memcpy(address, text, len);
	address[len] = '\0';
	if (network_of_text(network, address))
		return -1;
	if (!text[len])
		return 0;
	if (text[len + 1] < '0' || text[len + 1] > '9')
		return -1;
	bits = strtol(text + len + 1, &end, 10);
	if (*end || bits > network->bits)
		return -1;
	network->bits = (int)bits;
	/* No bits beyond the length may be set, as in 10.0.0.1/8. */
	for (int bit = network->bits; bit < family_bits(network->family); bit++)
		if (network->bytes[bit / 8] & 0x80 >> bit % 8)
			return -1;
	return 0;
}

int networks_parse(struct networks *networks, const char *text, char why[NETWORKS_WHY_SIZE])
{
	networks->n = 0;
	while (*text) {
		char one[INET6_ADDRSTRLEN + 8];
		size_t len = strcspn(text, ",");

		if (networks->n == NETWORKS_MAX) {
			snprintf(why, NETWORKS_WHY_SIZE, "allowed are %d networks", NETWORKS_MAX);
			return -1;
		}
		snprintf(one, sizeof(one), "%.*s", (int)len, text);
		if (len >= sizeof(one) || network_parse(&networks->list[networks->n], one)) {
			snprintf(why, NETWORKS_WHY_SIZE,
				 "\"%s\" is not a network: allowed are addresses and networks as "
				 "10.1.0.0/16 or fd00::/8, separated by commas",
				 one);
			return -1;
		}
		networks->n++;
		text += len + (text[len] == ',');
	}
	return 0;
}

int networks_have(const struct networks *networks, const struct network *address)
{
	for (size_t i = 0; i < networks->n; i++)
		if (network_has(&networks->list[i], address))
			return 1;
	return 0;
}

void networks_check(const char *setting, const char *text)
{
	char why[NETWORKS_WHY_SIZE];
	struct networks networks;

	if (networks_parse(&networks, text, why))
		log_fatal("%s is \"%s\": %s", setting, text, why);
}

int networks_have_address(const struct networks *networks, const struct sockaddr *address)
{
	struct network one;

	if (network_of_address(&one, address))
		return 0;
	network_unmap(&one);
	return networks_have(networks, &one);
}

/* ---- room for connections */

uint64_t peer_of_address(const struct sockaddr *address)
{
	struct network network;

	if (network_of_address(&network, address))
		return hash_keyed("", 0);
	network_unmap(&network);
	return hash_keyed(network.bytes, network.family == AF_INET ? 4 : PEER_BYTES);
}

struct room_address *rooms_address(struct rooms *rooms, uint64_t peer)
{
	struct room_address *address;

	HASH_FIND(hh, rooms->addresses, &peer, sizeof(peer), address);
	if (address)
		return address;
	address = checked(calloc(1, rooms->address_size));
	address->peer = peer;
	HASH_ADD(hh, rooms->addresses, peer, sizeof(peer), address);
	return address;
}

enum room rooms_take(struct rooms *rooms, const struct sockaddr *from, int *is_counted)
{
	struct room_address *address;

	*is_counted = 0;
	if (rooms->taken >= rooms->most)
		return ROOM_FULL;
	if (rooms->of_address_max > 0 && from->sa_family != AF_UNIX &&
	    !networks_have_address(&rooms->unlimited, from)) {
		address = rooms_address(rooms, peer_of_address(from));
		if (address->connections >= rooms->of_address_max)
			return ROOM_FULL_OF_ADDRESS;
		address->connections++;
		*is_counted = 1;
	}
	rooms->taken++;
	return ROOM_FREE;
}

void rooms_refused(struct rooms *rooms, enum room room, const struct sockaddr *from)
{
	int is_full = room == ROOM_FULL;
	char address[NI_MAXHOST] = "";

	getnameinfo(from, sizeof(struct sockaddr_storage), address, sizeof(address), NULL, 0,
		    NI_NUMERICHOST);
	if (backoff_tells(&rooms->told[room], address, clock_monotonic_ms()))
		log_warn(is_full ? "connections_full" : "connections_of_address",
			 LOG_S("address", address),
			 LOG_I("most", is_full ? rooms->most : rooms->of_address_max));
}

void rooms_give(struct rooms *rooms, uint64_t peer, int is_counted)
{
	struct room_address *address;

	check(rooms->taken > 0);
	rooms->taken--;
	if (!is_counted)
		return;
	address = rooms_address(rooms, peer);
	check(address->connections > 0);
	if (--address->connections > 0)
		return;
	HASH_DEL(rooms->addresses, address);
	free(address);
}

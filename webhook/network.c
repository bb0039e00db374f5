#include "webhook/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of IPv6 only this is given to the Internet. */
#define GLOBAL "2000::/3"
/* Through a gateway this is the IPv4 address in its last four bytes. */
#define NAT64 "64:ff9b::/96"

/* From the registries of special-purpose addresses of IANA, and one of a cloud. */
static const struct {
	const char *network;
	const char *kind;
} special[] = {
	{ "0.0.0.0/8", "this network" },
	{ "10.0.0.0/8", "private" },
	{ "100.64.0.0/10", "of a carrier's NAT" },
	{ "127.0.0.0/8", "loopback" },
	{ "168.63.129.16/32", "of a cloud's own services" },
	{ "169.254.0.0/16", "link-local" },
	{ "172.16.0.0/12", "private" },
	{ "192.0.0.0/24", "reserved" },
	{ "192.0.2.0/24", "for documentation" },
	{ "192.88.99.0/24", "reserved" },
	{ "192.168.0.0/16", "private" },
	{ "198.18.0.0/15", "for benchmarks" },
	{ "198.51.100.0/24", "for documentation" },
	{ "203.0.113.0/24", "for documentation" },
	{ "224.0.0.0/4", "multicast" },
	{ "240.0.0.0/4", "reserved" },
	{ "::/128", "unspecified" },
	{ "::1/128", "loopback" },
	{ "::ffff:0:0/96", "IPv4 written as IPv6" },
	{ "2001::/23", "reserved" },
	{ "2001:db8::/32", "for documentation" },
	{ "2002::/16", "6to4" },
	{ "3fff::/20", "for documentation" },
	{ "fc00::/7", "private" },
	{ "fe80::/10", "link-local" },
	{ "fec0::/10", "site-local" },
	{ "ff00::/8", "multicast" },
};

static int family_bits(int family)
{
	return family == AF_INET ? 32 : 128;
}

/* Whether the first bits of both are the same. */
static int network_has(const struct network *network, const struct network *address)
{
	int whole = network->bits / 8, rest = network->bits % 8;
	unsigned mask = 0xff00U >> rest & 0xff;

	if (network->family != address->family ||
	    memcmp(network->bytes, address->bytes, (size_t)whole) != 0)
		return 0;
	return rest == 0 || ((network->bytes[whole] ^ address->bytes[whole]) & mask) == 0;
}

/* Whether bits beyond the length are set, as in 10.0.0.1/8. */
static int has_rest(const struct network *network)
{
	for (int bit = network->bits; bit < family_bits(network->family); bit++)
		if (network->bytes[bit / 8] & 0x80 >> bit % 8)
			return 1;
	return 0;
}

static int address_parse(struct network *address, const char *text)
{
	address->family = strchr(text, ':') ? AF_INET6 : AF_INET;
	address->bits = family_bits(address->family);
	memset(address->bytes, 0, sizeof(address->bytes));
	return inet_pton(address->family, text, address->bytes) == 1 ? 0 : -1;
}

/* 0, or -1. */
static int network_parse(struct network *network, const char *text)
{
	char address[INET6_ADDRSTRLEN];
	size_t len = strcspn(text, "/");
	char *end;
	long bits;

	if (len >= sizeof(address))
		return -1;
	memcpy(address, text, len);
	address[len] = '\0';
	if (address_parse(network, address))
		return -1;
	if (!text[len])
		return 0;
	if (text[len + 1] < '0' || text[len + 1] > '9')
		return -1;
	bits = strtol(text + len + 1, &end, 10);
	if (*end || bits > network->bits)
		return -1;
	network->bits = (int)bits;
	return has_rest(network) ? -1 : 0;
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
				 "\"%s\" is no network: allowed are addresses and networks as "
				 "10.1.0.0/16 or fd00::/8, separated by commas",
				 one);
			return -1;
		}
		networks->n++;
		text += len + (text[len] == ',');
	}
	return 0;
}

static int is_in(const char *network, const struct network *address)
{
	struct network parsed;

	return network_parse(&parsed, network) == 0 && network_has(&parsed, address);
}

/* NULL: an address of the Internet. */
static const char *kind_of(const struct network *address)
{
	struct network inner = { .family = AF_INET, .bits = 32 };

	if (is_in(NAT64, address)) {
		memcpy(inner.bytes, address->bytes + 12, 4);
		address = &inner;
	}
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (is_in(special[i].network, address))
			return special[i].kind;
	return address->family == AF_INET6 && !is_in(GLOBAL, address) ? "reserved" : NULL;
}

static const char *refusal(const struct networks *allowed, const struct network *address)
{
	for (size_t i = 0; i < allowed->n; i++)
		if (network_has(&allowed->list[i], address))
			return NULL;
	return kind_of(address);
}

const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address)
{
	struct network one = { .family = address->sa_family };

	switch (address->sa_family) {
	case AF_INET:
		memcpy(one.bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
		       4);
		break;
	case AF_INET6:
		memcpy(one.bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
		       16);
		break;
	default:
		return "not of IP";
	}
	one.bits = family_bits(one.family);
	return refusal(allowed, &one);
}

const char *networks_refusal_text(const struct networks *allowed, const char *text)
{
	struct network one;

	return address_parse(&one, text) ? NULL : refusal(allowed, &one);
}

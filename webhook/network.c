#include "webhook/network.h"

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
	return networks_have(allowed, address) ? NULL : kind_of(address);
}

const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address)
{
	struct network one;

	return network_of_address(&one, address) ? "not of IP" : refusal(allowed, &one);
}

const char *networks_refusal_text(const struct networks *allowed, const char *text)
{
	struct network one;

	return network_of_text(&one, text) ? NULL : refusal(allowed, &one);
}

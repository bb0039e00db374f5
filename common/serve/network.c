#include "common/serve/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether bits beyond the length are set, as in 10.0.0.1/8. */
static int has_rest(const struct network *network)
{
	for (int bit = network->bits; bit < family_bits(network->family); bit++)
		if (network->bytes[bit / 8] & 0x80 >> bit % 8)
			return 1;
	return 0;
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

int networks_have(const struct networks *networks, const struct network *address)
{
	for (size_t i = 0; i < networks->n; i++)
		if (network_has(&networks->list[i], address))
			return 1;
	return 0;
}

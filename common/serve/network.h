/* Networks of IP, as in CIDR notation, and which addresses are in them. */
#pragma once

#include <stddef.h>
#include <sys/socket.h>

#define NETWORKS_MAX 64
#define NETWORKS_WHY_SIZE 256

struct network {
	int family; /* AF_INET or AF_INET6 */
	unsigned char bytes[16];
	int bits;
};

struct networks {
	struct network list[NETWORKS_MAX];
	size_t n;
};

/* Each 0, or -1: "10.1.0.0/16" or an address; an address alone; one that is not of IP. */
int network_parse(struct network *network, const char *text);
int network_of_text(struct network *address, const char *text);
int network_of_address(struct network *network, const struct sockaddr *address);

/* An IPv4 address that is written as IPv6 becomes one of IPv4. */
void network_unmap(struct network *address);

int network_has(const struct network *network, const struct network *address);

/*
 * Reads "10.1.0.0/16,fd00::/8"; an address without bits is a network of one. 0, or -1 with a
 * sentence in `why`. "": none.
 */
int networks_parse(struct networks *networks, const char *text, char why[NETWORKS_WHY_SIZE]);
int networks_have(const struct networks *networks, const struct network *address);

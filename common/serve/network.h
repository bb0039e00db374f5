/*
 * Networks of IP, as in CIDR notation, and which addresses are in them; and the room that a
 * listener has for connections, of all and of each address.
 */
#pragma once

#include "common/backoff.h"
#include "common/hash.h"

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
/* Ends the process with a sentence unless the setting is such a list. */
void networks_check(const char *setting, const char *text);
int networks_have(const struct networks *networks, const struct network *address);
/* Whether the address, one of IP, is in the networks. */
int networks_have_address(const struct networks *networks, const struct sockaddr *address);

/*
 * The key for limits by client, equal in all processes of a gateway: a keyed hash of the IPv4
 * address, or of the /64 of the IPv6 address, because the owner of one address of it has all. All
 * clients of Unix sockets share one.
 */
uint64_t peer_of_address(const struct sockaddr *address);

enum room { ROOM_FREE, ROOM_FULL, ROOM_FULL_OF_ADDRESS };

/* An address with connections that are counted: the first member of what its owner has for each. */
struct room_address {
	uint64_t peer;
	size_t connections;
	UT_hash_handle hh;
};

struct rooms {
	size_t most, of_address_max; /* 0: of an address any number */
	size_t address_size;         /* of what has a struct room_address first; zeroed */
	struct networks unlimited;   /* their addresses may have any number */
	size_t taken;
	struct room_address *addresses;
	struct backoff told[ROOM_FULL_OF_ADDRESS + 1]; /* addresses that there was no room for */
};

/* Takes a place for a connection. `*is_counted`: among those of its address. */
enum room rooms_take(struct rooms *rooms, const struct sockaddr *from, int *is_counted);
/* Logs that there was none, of an address once a minute: strangers may try for hours. */
void rooms_refused(struct rooms *rooms, enum room room, const struct sockaddr *from);
/* Gives it back. */
void rooms_give(struct rooms *rooms, uint64_t peer, int is_counted);
/* The room of the peer's address, which is made if there is none. */
struct room_address *rooms_address(struct rooms *rooms, uint64_t peer);

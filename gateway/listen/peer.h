/*
 * Who sends, as far as a socket tells: the key for limits by client. The same in all processes of a
 * gateway.
 */
#ifndef GATEWAY_LISTEN_PEER_H
#define GATEWAY_LISTEN_PEER_H

#include <stdint.h>
#include <sys/socket.h>

/*
 * A keyed hash of the network: an IPv4 address, or the /64 of an IPv6 address, for who has one
 * address of it has all. All clients of Unix sockets have one.
 */
uint64_t peer_of_address(const struct sockaddr *address);

#endif

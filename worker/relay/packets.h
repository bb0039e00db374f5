/*
 * Packs events into messages: the events of a coupon that follow each other and have one type go
 * together, in the order in which they are added. Messages of one coupon leave in that order. Pure;
 * one thread.
 */
#ifndef WORKER_RELAY_PACKETS_H
#define WORKER_RELAY_PACKETS_H

#include "worker/relay/event.h"

#define PACKET_EVENTS_MAX 256
#define PACKET_BYTES_MAX 131072 /* unless a single event is larger */

struct packet {
	struct packet *next;
	int64_t coupon;
	enum event_type type;
	int events;
	char *body; /* a JSON array, not ended by a NUL until the packet is taken */
	size_t len, room;
};

struct packets;

struct packets *packets_new(void);
void packets_free(struct packets *packets); /* NULL is allowed */

void packets_add(struct packets *packets, const struct event *event);
/* Nothing more is added to the packets that are open. */
void packets_close(struct packets *packets);
/* The next packet that is complete, which the caller then owns; NULL: none. */
struct packet *packets_take(struct packets *packets);
void packets_clear(struct packets *packets);

void packet_free(struct packet *packet);

#endif

/*
 * Events as CloudEvents 1.0 in JSON, and packed into messages; docs/events.md describes the
 * members. Pure.
 */
#pragma once

#include "common/hash.h"
#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum event_type {
#define EVENT(name, text) name,
#include "common/message/event_table.h"
#undef EVENT
	EVENT_TYPES
};

/* Texts are lent. Those of times are in RFC 3339. */
struct event {
	enum event_type type;
	const char *source; /* printable ASCII without quotes and backslashes */
	const char *time;
	struct receive receive; /* of a changed campaign its coupon alone */
	int slot;
	const char *received_at; /* NULL: not told, as below */
	const char *valid_from;
	const char *valid_to;
	const char *key;
	const char *reason; /* of reason_table.h: nothing in it is escaped */
	const char *change; /* of a changed campaign: what tells its changes apart */
	const char *detail; /* a JSON object, whose members are added to `data` */
};

const char *event_type_text(enum event_type type);
int event_type_parse(const char *text, enum event_type *type); /* 0, or -1 */

/* No more than this is written before the NUL. */
size_t event_size_max(const struct event *event);
/* Writes it and a NUL, and returns its length. */
size_t event_write(const struct event *event, char *out);

/*
 * The events of a coupon that follow each other and have one type go together into a packet, the
 * body of a message, in the order in which they are added. Packets of one coupon leave in that
 * order.
 */
#define PACKET_EVENTS_MAX 256
#define PACKET_BYTES_MAX 131072 /* unless a single event is larger */

struct packet {
	STAILQ_ENTRY(packet) next;
	int64_t coupon;
	enum event_type type;
	int events;
	char *body; /* a JSON array, not ended by a NUL until the packet is taken */
	size_t len, room;
	UT_hash_handle hh;
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

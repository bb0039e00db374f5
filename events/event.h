/*
 * Events as CloudEvents 1.0 in JSON, which docs/reference/events.md describes: read from rows of
 * event_log, and packed into messages. One thread.
 */
#pragma once

#include "common/hash.h"

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

enum event_type {
#define EVENT(name, text) name,
#include "common/message/event_table.h"
#undef EVENT
	EVENT_TYPES
};

const char *event_type_text(enum event_type type);
int event_type_parse(const char *text, enum event_type *type); /* 0, or -1 */

/*
 * The events of a coupon that follow each other and have one type go together into a packet, the
 * body of a message, in the order in which they are added. Packets of one coupon are sent in that
 * order.
 */
#define PACKET_EVENTS_MAX 256
#define PACKET_BYTES_MAX 131072 /* unless a single event is larger */

struct event_packet {
	int64_t coupon;
	enum event_type type;
	int events;
	char *body; /* a JSON array, ended by a NUL when the packet is sent */
	size_t len, room;
	UT_hash_handle hh;
};

/* Called for each packet that is complete, which is lent. */
typedef void packet_fn(void *context, const struct event_packet *packet);

struct packets;

/* `source`, which is lent: printable ASCII without quotes and backslashes. */
struct packets *packets_new(const char *source, packet_fn *send, void *context);
void packets_free(struct packets *packets); /* NULL is allowed */

/*
 * Adds the events of a row of sql_query_event_log_read in binary form, and sets the row's id. 0, or
 * -1: it is malformed; the events before that are added.
 */
int packets_add(struct packets *packets, const PGresult *rows, int number, int64_t *id);
void packets_close(struct packets *packets); /* sends those that are not full */
void packets_clear(struct packets *packets); /* drops them */

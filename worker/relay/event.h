/*
 * One event as a CloudEvent 1.0 in JSON; docs/events.md describes the members. Pure; any thread.
 */
#ifndef WORKER_RELAY_EVENT_H
#define WORKER_RELAY_EVENT_H

#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>

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
	const char *reason;
	const char *change; /* of a changed campaign: what tells its changes apart */
	const char *detail; /* a JSON object, whose members are added to `data` */
};

const char *event_type_text(enum event_type type);
int event_type_parse(const char *text, enum event_type *type); /* 0, or -1 */

/* No more than this is written. */
size_t event_size_max(const struct event *event);
/* Writes it without a NUL, and returns its length. */
size_t event_write(const struct event *event, char *out);

#endif

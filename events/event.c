#include "events/event.h"

#include "common/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is written beside the texts that are counted in event_size_max(). */
#define EVENT_FIXED_SIZE 1024

static const char *const types[EVENT_TYPES] = {
#define EVENT(name, text) [name] = text,
#include "common/message/event_table.h"
#undef EVENT
};

const char *event_type_text(enum event_type type)
{
	return types[type];
}

int event_type_parse(const char *text, enum event_type *type)
{
	for (int i = 0; i < EVENT_TYPES; i++)
		if (strcmp(text, types[i]) == 0) {
			*type = (enum event_type)i;
			return 0;
		}
	return -1;
}

static size_t length(const char *text)
{
	return text ? strlen(text) : 0;
}

size_t event_size_max(const struct event *event)
{
	/* The user is written twice, and each of its bytes may need a backslash. */
	return EVENT_FIXED_SIZE + 4 * (size_t)event->receive.user.len + length(event->source) +
	       2 * length(event->key) + length(event->detail);
}

/* Printable ASCII as it is inside a JSON string. Returns `out`. */
static const char *escaped(const char *text, char *out)
{
	char *p = out;

	for (; *text; *p++ = *text++)
		if (*text == '"' || *text == '\\')
			*p++ = '\\';
	*p = '\0';
	return out;
}

/* The id of a receive's event is BATCH.INDEX, by which the receive is unique, and the type. */
size_t event_write(const struct event *event, char *out)
{
	const struct receive *receive = &event->receive;
	char batch[ULID_SIZE], user[2 * USER_ID_SIZE], key[2 * RECEIVE_KEY_MAX + 1];
	const struct {
		const char *name, *text;
	} members[] = {
		{ "received_at", event->received_at },
		{ "valid_from", event->valid_from },
		{ "valid_to", event->valid_to },
		{ "key", event->key ? escaped(event->key, key) : NULL },
		{ "reason", event->reason },
	};
	char *p = out + sprintf(out, "{\"specversion\":\"1.0\",\"id\":\"");

	ulid_format(&receive->batch, batch);
	if (event->type == EVENT_CHANGED)
		p += sprintf(p, "campaign/%" PRId64 "/%s", receive->coupon, event->change);
	else
		p += sprintf(p, "%s.%d/%s", batch, receive->index,
			     strchr(types[event->type], '.') + 1);
	p += sprintf(p,
		     "\",\"source\":\"%s\",\"type\":\"%s\",\"subject\":\"%" PRId64
		     "\",\"time\":\"%s\",\"data\":{\"coupon\":\"%" PRId64 "\"",
		     event->source, types[event->type], receive->coupon, event->time,
		     receive->coupon);
	if (event->type != EVENT_CHANGED) {
		escaped(receive->user.text, user);
		p += sprintf(p, ",\"user\":\"%s\",\"receive\":\"%" PRId64 ".%s.%s.%d\",\"slot\":%d",
			     user, receive->coupon, user, batch, receive->index, event->slot);
	}
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (members[i].text)
			p += sprintf(p, ",\"%s\":\"%s\"", members[i].name, members[i].text);
	if (event->detail) /* with its last brace */
		p += sprintf(p, ",%s}", event->detail + 1);
	else
		p += sprintf(p, "}}");
	return (size_t)(p - out);
}

/*
 *	add ──▶ open: one for each coupon ──full, another type, close──▶ complete ──▶ take
 */
struct packets {
	struct packet *open; /* by coupon */
	STAILQ_HEAD(, packet) complete;
};

struct packets *packets_new(void)
{
	struct packets *packets = checked(calloc(1, sizeof(*packets)));

	STAILQ_INIT(&packets->complete);
	return packets;
}

void packet_free(struct packet *packet)
{
	free(packet->body);
	free(packet);
}

void packets_free(struct packets *packets)
{
	if (!packets)
		return;
	packets_clear(packets);
	free(packets);
}

static struct packet *packet_open(struct packets *packets, const struct event *event)
{
	struct packet *packet = checked(calloc(1, sizeof(*packet)));

	packet->coupon = event->receive.coupon;
	packet->type = event->type;
	HASH_ADD(hh, packets->open, coupon, sizeof(packet->coupon), packet);
	return packet;
}

/* There is always room for what encloses the events, and a NUL. */
static void packet_reserve(struct packet *packet, size_t size)
{
	if (packet->room - packet->len < size + 3) {
		packet->room = 2 * (packet->len + size + 3);
		packet->body = checked(realloc(packet->body, packet->room));
	}
}

static void packet_end(struct packets *packets, struct packet *packet)
{
	HASH_DEL(packets->open, packet);
	packet->body[packet->len++] = ']';
	packet->body[packet->len] = '\0';
	STAILQ_INSERT_TAIL(&packets->complete, packet, next);
}

static int is_full(const struct packet *packet, const struct event *event, size_t size)
{
	return packet->type != event->type || packet->events == PACKET_EVENTS_MAX ||
	       packet->len + size + 2 > PACKET_BYTES_MAX;
}

void packets_add(struct packets *packets, const struct event *event)
{
	size_t size = event_size_max(event);
	struct packet *packet;

	HASH_FIND(hh, packets->open, &event->receive.coupon, sizeof(packet->coupon), packet);
	if (packet && is_full(packet, event, size)) {
		packet_end(packets, packet);
		packet = NULL;
	}
	if (!packet)
		packet = packet_open(packets, event);
	packet_reserve(packet, size);
	packet->body[packet->len++] = packet->events++ ? ',' : '[';
	packet->len += event_write(event, packet->body + packet->len);
}

void packets_close(struct packets *packets)
{
	while (packets->open)
		packet_end(packets, packets->open);
}

struct packet *packets_take(struct packets *packets)
{
	struct packet *packet = STAILQ_FIRST(&packets->complete);

	if (packet)
		STAILQ_REMOVE_HEAD(&packets->complete, next);
	return packet;
}

void packets_clear(struct packets *packets)
{
	struct packet *packet;

	packets_close(packets);
	while ((packet = packets_take(packets)))
		packet_free(packet);
}

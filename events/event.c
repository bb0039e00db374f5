#include "events/event.h"

#include "common/check.h"
#include "common/message/number.h"

#include <stdlib.h>
#include <string.h>

/* What is written beside the texts that are counted in event_size_max(). */
#define EVENT_FIXED_SIZE 1024
#define BODY_FIRST 2048 /* of a packet */

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

static char *put_number(char *p, int64_t number)
{
	char digits[NUMBER_SIZE];

	/* Most are ids and small; this is the quicker way. */
	return number > 0 ? p + id_format(number, p) : text_append(p, number_text(number, digits));
}

/* ,"name":"text" where there is a text. `start` has all of it up to the text. */
static char *put_member(char *p, const char *start, const char *text)
{
	if (!text)
		return p;
	p = text_append(p, start);
	p = escaped_append(p, text, strlen(text));
	*p++ = '"';
	return p;
}

/* BATCH.INDEX, by which a receive is unique. */
static char *put_place(char *p, const struct receive *receive)
{
	p = ulid_format(&receive->batch, p) + ULID_LEN;
	*p++ = '.';
	return put_number(p, receive->index);
}

static char *put_id(char *p, const struct event *event)
{
	if (event->type == EVENT_CHANGED) {
		p = text_append(p, "campaign/");
		p = put_number(p, event->receive.coupon);
		*p++ = '/';
		return text_append(p, event->change);
	}
	p = put_place(p, &event->receive);
	*p++ = '/';
	return text_append(p, strchr(types[event->type], '.') + 1);
}

static char *put_receive(char *p, const struct event *event)
{
	const struct user_id *user = &event->receive.user;

	p = text_append(p, ",\"user\":\"");
	p = escaped_append(p, user->text, user->len);
	p = text_append(p, "\",\"receive\":\"");
	p = put_number(p, event->receive.coupon);
	*p++ = '.';
	p = escaped_append(p, user->text, user->len);
	*p++ = '.';
	p = put_place(p, &event->receive);
	p = text_append(p, "\",\"slot\":");
	return put_number(p, event->slot);
}

static char *put_data(char *p, const struct event *event)
{
	p = text_append(p, "{\"coupon\":\"");
	p = put_number(p, event->receive.coupon);
	*p++ = '"';
	if (event->type != EVENT_CHANGED)
		p = put_receive(p, event);
	p = put_member(p, ",\"received_at\":\"", event->received_at);
	p = put_member(p, ",\"valid_from\":\"", event->valid_from);
	p = put_member(p, ",\"valid_to\":\"", event->valid_to);
	p = put_member(p, ",\"key\":\"", event->key);
	p = put_member(p, ",\"reason\":\"", event->reason);
	if (event->detail) {
		*p++ = ',';
		return text_append(p, event->detail + 1); /* with its last brace */
	}
	*p++ = '}';
	return p;
}

size_t event_write(const struct event *event, char *out)
{
	char *p = text_append(out, "{\"specversion\":\"1.0\",\"id\":\"");

	p = put_id(p, event);
	p = text_append(p, "\",\"source\":\"");
	p = text_append(p, event->source);
	p = text_append(p, "\",\"type\":\"");
	p = text_append(p, types[event->type]);
	p = text_append(p, "\",\"subject\":\"");
	p = put_number(p, event->receive.coupon);
	p = text_append(p, "\",\"time\":\"");
	p = text_append(p, event->time);
	p = text_append(p, "\",\"data\":");
	p = put_data(p, event);
	*p++ = '}';
	return (size_t)(p - out);
}

/*
 *	add ──▶ open: one for each coupon ──full, another type, close──▶ complete ──▶ take
 */
struct packets {
	struct packet *open;          /* by coupon */
	struct packet *first, **last; /* complete */
};

struct packets *packets_new(void)
{
	struct packets *packets = calloc(1, sizeof(*packets));

	check(packets != NULL);
	packets->last = &packets->first;
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
	struct packet *packet = calloc(1, sizeof(*packet));

	check(packet != NULL);
	packet->coupon = event->receive.coupon;
	packet->type = event->type;
	packet->room = BODY_FIRST;
	packet->body = malloc(packet->room);
	check(packet->body != NULL);
	packet->body[packet->len++] = '[';
	HASH_ADD(hh, packets->open, coupon, sizeof(packet->coupon), packet);
	return packet;
}

/* There is always room for the end of the array and a NUL. */
static void packet_reserve(struct packet *packet, size_t size)
{
	while (packet->room - packet->len < size + 3)
		packet->room *= 2;
	packet->body = realloc(packet->body, packet->room);
	check(packet->body != NULL);
}

static void packet_end(struct packets *packets, struct packet *packet)
{
	HASH_DEL(packets->open, packet);
	packet->body[packet->len++] = ']';
	packet->body[packet->len] = '\0';
	*packets->last = packet;
	packets->last = &packet->next;
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
	if (packet->events++ > 0)
		packet->body[packet->len++] = ',';
	packet->len += event_write(event, packet->body + packet->len);
}

void packets_close(struct packets *packets)
{
	while (packets->open)
		packet_end(packets, packets->open);
}

struct packet *packets_take(struct packets *packets)
{
	struct packet *packet = packets->first;

	if (!packet)
		return NULL;
	packets->first = packet->next;
	if (!packets->first)
		packets->last = &packets->first;
	packet->next = NULL;
	return packet;
}

void packets_clear(struct packets *packets)
{
	struct packet *packet;

	packets_close(packets);
	while ((packet = packets_take(packets)))
		packet_free(packet);
}

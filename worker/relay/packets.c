/*
 *	add ──▶ open: one for each coupon ──full, another type, close──▶ complete ──▶ take
 */
#include "worker/relay/packets.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 64 /* a power of 2 */
#define BODY_FIRST 2048

struct packets {
	struct packet **slots; /* by coupon: open addressing, at most half full */
	size_t slots_n, open_n;
	struct packet *first, **last; /* complete */
};

struct packets *packets_new(void)
{
	struct packets *packets = calloc(1, sizeof(*packets));

	check(packets != NULL);
	packets->slots_n = SLOTS_FIRST;
	packets->slots = calloc(SLOTS_FIRST, sizeof(struct packet *));
	check(packets->slots != NULL);
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
	free(packets->slots);
	free(packets);
}

/* The slot of the coupon, or the one where it belongs. */
static struct packet **slot_of(struct packets *packets, int64_t coupon)
{
	size_t mask = packets->slots_n - 1,
	       i = (size_t)((uint64_t)coupon * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;

	while (packets->slots[i] && packets->slots[i]->coupon != coupon)
		i = (i + 1) & mask;
	return &packets->slots[i];
}

static void slots_grow(struct packets *packets)
{
	struct packet **old = packets->slots;
	size_t n = packets->slots_n;

	packets->slots_n = 2 * n;
	packets->slots = calloc(packets->slots_n, sizeof(struct packet *));
	check(packets->slots != NULL);
	for (size_t i = 0; i < n; i++)
		if (old[i])
			*slot_of(packets, old[i]->coupon) = old[i];
	free(old);
}

static struct packet *packet_new(const struct event *event)
{
	struct packet *packet = calloc(1, sizeof(*packet));

	check(packet != NULL);
	packet->coupon = event->receive.coupon;
	packet->type = event->type;
	packet->room = BODY_FIRST;
	packet->body = malloc(packet->room);
	check(packet->body != NULL);
	packet->body[packet->len++] = '[';
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
	struct packet **slot = slot_of(packets, event->receive.coupon);

	if (!*slot && 2 * (packets->open_n + 1) > packets->slots_n) {
		slots_grow(packets);
		slot = slot_of(packets, event->receive.coupon);
	}
	if (!*slot) {
		packets->open_n++;
		*slot = packet_new(event);
	} else if (is_full(*slot, event, size)) {
		packet_end(packets, *slot);
		*slot = packet_new(event);
	}
	packet_reserve(*slot, size);
	if ((*slot)->events++ > 0)
		(*slot)->body[(*slot)->len++] = ',';
	(*slot)->len += event_write(event, (*slot)->body + (*slot)->len);
}

void packets_close(struct packets *packets)
{
	for (size_t i = 0; i < packets->slots_n; i++) {
		if (packets->slots[i])
			packet_end(packets, packets->slots[i]);
		packets->slots[i] = NULL;
	}
	packets->open_n = 0;
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

/*
 * Receives in flight, for a rebuild: their users, slots and keys are in Redis alone. A message in
 * the queue may no longer be in the outbox, but a repeated request must not get a second slot.
 */
#include "keeper/rebuild/fill.h"

#include "coupon/redis_coupon.h"

#include <string.h>

#define USERS_COUNT 256
#define OUTBOX_COUNT 32 /* entries requested at a time; each may be 70 KB */

struct flight {
	struct keeper_context *context;
	struct snapshot *snapshot;
	struct slot_writer *writer;
	struct slots slots; /* of one step of a scan */
};

/* Adds the slots of those receives that are not rejected. 0, or -1. */
static int slots_add_open(struct flight *flight, const struct slots *slots)
{
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];

		if (slot->number >= 1 && slot->number <= RECEIVE_SLOT_MAX &&
		    !snapshot_is_rejected(flight->snapshot, slot) &&
		    slot_writer_add(flight->writer, slot))
			return -1;
	}
	return 0;
}

/* Those that cannot be read will be dead-lettered; their numbers count as in flight. */
static int message_add(void *context, const redisReply *batch, const struct message *message,
		       const char *error)
{
	struct flight *flight = context;
	struct slots slots = { 0 };
	int rc;

	(void)batch;
	if (error)
		return 0;
	snapshot_raise(flight->snapshot, message->generation,
		       message->seq + (int64_t)message->receives_n - 1);
	slots_add_message(&slots, message);
	rc = slots_add_open(flight, &slots);
	slots_fini(&slots);
	return rc;
}

static int entries_add(void *context, const redisReply *entries)
{
	struct flight *flight = context;
	struct snapshot *snapshot = flight->snapshot;
	struct slots batches = { 0 };
	struct slot slot = { 0 };
	int rc;

	for (size_t i = 0; i + 1 < entries->elements; i += 2)
		if (ulid_parse(&slot.batch, entries->element[i]->str, entries->element[i]->len) ==
		    0)
			slots_add(&batches, &slot);
	rc = snapshot_rejected(snapshot, batches.list, batches.n);
	slots_fini(&batches);
	return rc ? -1 : outbox_entries(entries, snapshot->row.id, message_add, flight);
}

/* 0; 1: the writer is full; 2: it failed. Malformed records are skipped. */
static int users_add(void *context, const redisReply *users)
{
	struct flight *flight = context;

	slots_read(&flight->slots, users);
	if (snapshot_rejected(flight->snapshot, flight->slots.list, flight->slots.n) ||
	    slots_add_open(flight, &flight->slots) || keeper_context_goes_on(flight->context))
		return 2;
	return slot_writer_is_full(flight->writer);
}

/*
 * Counts the receives in flight by the numbers of both stores, while the coupon is held. -1: Redis
 * failed.
 */
static int64_t flight_count(struct flight *flight, int64_t redis_generation)
{
	struct snapshot *snapshot = flight->snapshot;
	redisReply *reply = coupon_call(flight->context->redis, snapshot->row.id, "HGET",
					COUPON_KEY_COUPON, "seq", NULL);

	if (!reply)
		return -1;
	snapshot_raise(snapshot, redis_generation, redis_reply_number(reply));
	freeReplyObject(reply);
	return generations_unsettled(&snapshot->generations, 0);
}

static int64_t less(int64_t a, int64_t b)
{
	int64_t least = a < b ? a : b;

	return least > 0 ? least : 0;
}

/* A missing hash, or a key of another type, has none. */
static int users_fill(struct flight *flight)
{
	struct redis_client *redis = flight->context->redis;
	int rc = coupon_scan(redis, flight->snapshot->row.id, COUPON_KEY_USERS, USERS_COUNT,
			     users_add, flight);

	slots_fini(&flight->slots);
	if (rc == 2 || (rc < 0 && !redis_client_is_open(redis)))
		return -1;
	return slot_writer_flush(flight->writer);
}

int64_t flight_fill(struct keeper_context *context, struct snapshot *snapshot,
		    struct slot_writer *writer, int64_t redis_generation)
{
	struct flight flight = { .context = context, .snapshot = snapshot, .writer = writer };
	int64_t room = snapshot->row.total - snapshot->row.issued, in_flight, sent;

	if (slot_writer_begin(writer, FILL_FLIGHT, less(room, room)) ||
	    coupon_scan(context->redis, snapshot->row.id, COUPON_KEY_OUTBOX, OUTBOX_COUNT,
			entries_add, &flight) ||
	    slot_writer_flush(writer))
		return -1;
	in_flight = flight_count(&flight, redis_generation);
	if (in_flight < 0)
		return -1;
	sent = slot_writer_added(writer);
	room = less(room - sent, in_flight - sent);
	if (room == 0)
		return sent;
	if (slot_writer_begin(writer, FILL_FLIGHT, room) || users_fill(&flight))
		return -1;
	return sent + slot_writer_added(writer);
}

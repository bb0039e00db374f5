#include "worker/consume/delivery.h"

#include "common/check.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * After this many refused receives the rest of a message is not tried: it is likely to be
 * refused.
 */
#define BAD_MAX 4

static void *copy_of(const void *list, size_t n, size_t size)
{
	return memcpy(checked(malloc(n * size)), list, n * size);
}

/* Without the rest of the list: thousands of batches may be held. */
static struct message_traces *traces_copy(const struct message_traces *traces)
{
	size_t size = offsetof(struct message_traces, list) + traces->n * sizeof(*traces->list);

	return traces->n > 0 ? copy_of(traces, 1, size) : NULL;
}

static struct delivery_message *message_copy(const struct message *message)
{
	size_t receives_bytes = message->receives_n * sizeof(message->receives[0]);
	struct delivery_message *copy = checked(calloc(1, sizeof(*copy) + receives_bytes));

	copy->batch = message->batch;
	copy->coupon = message->coupon;
	copy->generation = message->generation;
	copy->seq = message->seq;
	copy->at_ms = message->at_ms;
	copy->receives_n = message->receives_n;
	memcpy(copy->receives, message->receives, receives_bytes);
	copy->traces = traces_copy(&message->traces);
	return copy;
}

/* `message` is taken over, and so is `envelope`. */
static struct delivery *delivery_of(uint64_t tag, struct delivery_message *message, void *envelope)
{
	struct delivery *delivery = checked(calloc(1, sizeof(*delivery)));

	check(message->receives_n > 0 && message->receives_n <= MESSAGE_RECEIVES_MAX);
	delivery->state = DELIVERY_WAITING;
	delivery->tag = tag;
	delivery->envelope = envelope;
	delivery->message = message;
	delivery->outcomes = checked(calloc(message->receives_n, sizeof(*delivery->outcomes)));
	delivery->end = message->receives_n;
	return delivery;
}

struct delivery *delivery_new(uint64_t tag, const struct message *message, void *envelope)
{
	return delivery_of(tag, message_copy(message), envelope);
}

struct delivery *delivery_new_uses(const struct use_message *message)
{
	struct delivery_message *copy = checked(calloc(1, sizeof(*copy)));

	copy->batch = message->batch;
	copy->coupon = message->receives[0].coupon;
	copy->receives_n = message->uses_n;
	copy->uses = copy_of(message->uses, message->uses_n, sizeof(*message->uses));
	copy->use_receives = copy_of(message->receives, message->receives_n,
				     sizeof(*message->receives));
	copy->traces = traces_copy(&message->traces);
	return delivery_of(0, copy, NULL);
}

static void reason_set(struct delivery *delivery, const char *reason)
{
	free(delivery->reason);
	delivery->reason = checked(strndup(reason, SETTLEMENT_REASON_SIZE - 1));
}

struct delivery *delivery_new_dead(uint64_t tag, const char *reason, void *envelope)
{
	struct delivery *delivery = checked(calloc(1, sizeof(*delivery)));

	delivery->state = DELIVERY_DEAD;
	delivery->tag = tag;
	delivery->envelope = envelope;
	reason_set(delivery, reason);
	return delivery;
}

void delivery_free(struct delivery *delivery, void (*envelope_free)(void *envelope))
{
	if (delivery->envelope && envelope_free)
		envelope_free(delivery->envelope);
	free(delivery->reason);
	free(delivery->outcomes);
	if (delivery->message) {
		free(delivery->message->traces);
		free(delivery->message->uses);
		free(delivery->message->use_receives);
	}
	free(delivery->message);
	free(delivery);
}

size_t delivery_part_size(const struct delivery *delivery)
{
	return delivery->end - delivery->first;
}

const char *delivery_trace(const struct delivery *delivery, size_t index)
{
	const struct message_traces *traces = delivery->message->traces;

	for (size_t i = 0; traces && i < traces->n; i++)
		if (traces->list[i].index == index)
			return traces->list[i].text;
	return "";
}

void delivery_part_limit(struct delivery *delivery, size_t receives_max)
{
	if (delivery_part_size(delivery) > receives_max)
		delivery->end = delivery->first + receives_max;
}

void delivery_part_begin(struct delivery *delivery)
{
	memset(delivery->outcomes + delivery->first, 0,
	       delivery_part_size(delivery) * sizeof(*delivery->outcomes));
}

enum delivery_state delivery_part_committed(struct delivery *delivery)
{
	if (delivery->end == delivery->message->receives_n)
		return delivery->bad_n ? DELIVERY_DEAD : DELIVERY_DONE;
	delivery->first = delivery->end;
	delivery->end = delivery->message->receives_n;
	return DELIVERY_WAITING;
}

int delivery_is_settled_by_part(const struct delivery *delivery)
{
	return delivery->end == delivery->message->receives_n && delivery->bad_n == 0;
}

static void bad_add(struct delivery *delivery, size_t n, const char *sqlstate)
{
	char reason[SETTLEMENT_REASON_SIZE];
	size_t receives_n = delivery->message->receives_n;

	if (delivery->bad_n == 0)
		delivery->bad_first = delivery->first;
	delivery->bad_n += n;
	if (receives_n == 1)
		snprintf(reason, sizeof(reason), "unstorable: SQLSTATE %s", sqlstate);
	else
		snprintf(reason, sizeof(reason),
			 "unstorable: SQLSTATE %s, %zu of %zu receives from index %zu on", sqlstate,
			 delivery->bad_n, receives_n, delivery->bad_first);
	reason_set(delivery, reason);
}

enum delivery_state delivery_part_refused(struct delivery *delivery, const char *sqlstate)
{
	if (delivery->bad_n >= BAD_MAX)
		delivery->end = delivery->message->receives_n; /* none of the rest is tried */
	if (delivery->bad_n < BAD_MAX && delivery_part_size(delivery) > 1) {
		delivery->end = delivery->first + delivery_part_size(delivery) / 2;
		return DELIVERY_WAITING;
	}
	bad_add(delivery, delivery_part_size(delivery), sqlstate);
	return delivery_part_committed(delivery);
}

int outcome_parse(const char *kind, const char *reason, struct outcome *outcome)
{
	*outcome = (struct outcome){ OUTCOME_REPEATED, REASON_NONE };
	if (strcmp(kind, "repeated") == 0)
		return 0;
	if (strcmp(kind, "rejected") != 0)
		return -1;
	outcome->kind = OUTCOME_REJECTED;
	outcome->reason = (unsigned char)(reason ? reason_find(reason) : REASON_NONE);
	return outcome->reason == REASON_NONE ? -1 : 0;
}

void delivery_reply(const struct delivery *delivery, struct reply *reply)
{
	reply->batch = delivery->message->batch;
	reply->is_to_uses = 0;
	reply->outcomes_n = 0;
	for (size_t i = delivery->first; i < delivery->end; i++) {
		const struct outcome *outcome = &delivery->outcomes[i];

		reply->receives[reply->outcomes_n++] = (struct receive_outcome){
			.index = (int)i,
			.reason = outcome->kind == OUTCOME_REJECTED ? reason_text(outcome->reason)
								    : NULL
		};
	}
}

#include "worker/delivery.h"

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

/* A delivery that can be settled, with room for `places` receives of a message of receives. */
static struct delivery *delivery_make(size_t receives_n, size_t places,
				      const struct message_traces *traces)
{
	struct delivery *delivery = checked(
		calloc(1, sizeof(*delivery) + places * sizeof(delivery->receives[0])));

	check(receives_n > 0 && receives_n <= MESSAGE_RECEIVES_MAX);
	delivery->state = DELIVERY_WAITING;
	delivery->receives_n = delivery->end = receives_n;
	delivery->outcomes = checked(calloc(receives_n, sizeof(*delivery->outcomes)));
	/* Without the rest of their list: thousands of batches may be held. */
	if (traces->n > 0)
		delivery->traces = copy_of(traces, 1,
					   offsetof(struct message_traces, list) +
						   traces->n * sizeof(*traces->list));
	return delivery;
}

struct delivery *delivery_new(uint64_t tag, const struct message *message, void *envelope)
{
	struct delivery *delivery = delivery_make(message->receives_n, message->receives_n,
						  &message->traces);

	delivery->tag = tag;
	delivery->envelope = envelope;
	delivery->batch = message->batch;
	delivery->coupon = message->coupon;
	delivery->generation = message->generation;
	delivery->seq = message->seq;
	delivery->at_ms = message->at_ms;
	memcpy(delivery->receives, message->receives,
	       message->receives_n * sizeof(message->receives[0]));
	return delivery;
}

struct delivery *delivery_new_uses(const struct use_message *message)
{
	struct delivery *delivery = delivery_make(message->uses_n, 0, &message->traces);

	delivery->batch = message->batch;
	delivery->coupon = message->receives[0].coupon;
	delivery->uses = copy_of(message->uses, message->uses_n, sizeof(*message->uses));
	delivery->use_receives = copy_of(message->receives, message->receives_n,
					 sizeof(*message->receives));
	return delivery;
}

struct delivery *delivery_new_dead(uint64_t tag, const char *reason, void *envelope)
{
	struct delivery *delivery = checked(calloc(1, sizeof(*delivery)));

	delivery->state = DELIVERY_DEAD;
	delivery->tag = tag;
	delivery->envelope = envelope;
	delivery->reason = checked(strndup(reason, SETTLEMENT_REASON_SIZE - 1));
	return delivery;
}

void delivery_free(struct delivery *delivery, void (*envelope_free)(void *envelope))
{
	if (delivery->envelope && envelope_free)
		envelope_free(delivery->envelope);
	free(delivery->reason);
	free(delivery->outcomes);
	free(delivery->traces);
	free(delivery->uses);
	free(delivery->use_receives);
	free(delivery);
}

size_t delivery_part_size(const struct delivery *delivery)
{
	return delivery->end - delivery->first;
}

const char *delivery_trace(const struct delivery *delivery, size_t index)
{
	const struct message_traces *traces = delivery->traces;

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

enum delivery_state delivery_part_committed(struct delivery *delivery)
{
	if (delivery->end == delivery->receives_n)
		return delivery->bad_n ? DELIVERY_DEAD : DELIVERY_DONE;
	delivery->first = delivery->end;
	delivery->end = delivery->receives_n;
	return DELIVERY_WAITING;
}

int delivery_is_settled_by_part(const struct delivery *delivery)
{
	return delivery->end == delivery->receives_n && delivery->bad_n == 0;
}

enum delivery_state delivery_part_refused(struct delivery *delivery, const char *sqlstate)
{
	char reason[SETTLEMENT_REASON_SIZE];
	size_t receives_n = delivery->receives_n;

	if (delivery->bad_n >= BAD_MAX) {
		delivery->end = receives_n; /* none of the rest is tried */
	} else if (delivery_part_size(delivery) > 1) {
		delivery->end = delivery->first + delivery_part_size(delivery) / 2;
		return DELIVERY_WAITING;
	}

	if (delivery->bad_n == 0)
		delivery->bad_first = delivery->first;
	delivery->bad_n += delivery_part_size(delivery);
	if (receives_n == 1)
		snprintf(reason, sizeof(reason), "unstorable: SQLSTATE %s", sqlstate);
	else
		snprintf(reason, sizeof(reason),
			 "unstorable: SQLSTATE %s, %zu of %zu receives from index %zu on", sqlstate,
			 delivery->bad_n, receives_n, delivery->bad_first);
	free(delivery->reason);
	delivery->reason = checked(strdup(reason));
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
	reply->batch = delivery->batch;
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

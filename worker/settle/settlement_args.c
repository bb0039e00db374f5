#include "worker/settle/settlement_args.h"

#include <string.h>

static void delivery_put(struct settle_args *args, const struct delivery *delivery)
{
	const struct delivery_message *message = delivery_message(delivery);

	for (size_t i = delivery_first(delivery); i < delivery_end(delivery); i++) {
		const struct message_receive *receive = &message->receives[i];

		settle_args_add(args, &(struct settle_receive){
					      .coupon = message->coupon,
					      .generation = message->generation,
					      .seq = message->seq + (int64_t)i,
					      .batch = &message->batch,
					      .index = (int)i,
					      .user = &receive->user,
					      .slot = receive->slot,
					      .tail = receive->tail,
					      .key_len = receive_tail_key_len(receive->tail),
					      .tail_len = strlen(receive->tail),
					      .at_ms = message->at_ms });
	}
}

void settlement_args_fill(struct settle_args *args, const struct settlement *settlement)
{
	settle_args_clear(args);
	for (size_t i = 0; i < settlement_taken(settlement); i++)
		delivery_put(args, settlement_taken_at(settlement, i));
}

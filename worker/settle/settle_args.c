#include "worker/settle/settle_args.h"

#include <string.h>

enum argument { COUPON, GENERATION, SEQ, BATCH, IDX, USER_ID, SLOT, KEY, CODE, AT_MS };

static const enum postgres_type types[SETTLE_ARGS_N] = {
	[COUPON] = POSTGRES_INT8, [GENERATION] = POSTGRES_INT4, [SEQ] = POSTGRES_INT8,
	[BATCH] = POSTGRES_UUID,  [IDX] = POSTGRES_INT2,        [USER_ID] = POSTGRES_TEXT,
	[SLOT] = POSTGRES_INT2,   [KEY] = POSTGRES_TEXT,        [CODE] = POSTGRES_TEXT,
	[AT_MS] = POSTGRES_INT8,
};

void settle_args_init(struct settle_args *args)
{
	memset(args, 0, sizeof(*args));
}

void settle_args_fini(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		postgres_array_fini(&args->arrays[i]);
}

/* Returns whether it has a code. */
static int tail_put(struct postgres_array *arrays, const char *tail)
{
	size_t len = strlen(tail), key_len = strcspn(tail, "\t"), code_len;
	const char *code = receive_tail_code(tail, len, key_len, &code_len);

	postgres_array_add_text(&arrays[KEY], tail, key_len);
	postgres_array_add_text(&arrays[CODE], code, code_len);
	return code_len > 0;
}

/* Returns whether one of its receives has a code. */
static int delivery_put(struct postgres_array *arrays, const struct delivery *delivery)
{
	const struct delivery_message *message = delivery_message(delivery);
	int has_codes = 0;

	for (size_t i = delivery_first(delivery); i < delivery_end(delivery); i++) {
		const struct message_receive *receive = &message->receives[i];

		postgres_array_add_number(&arrays[COUPON], message->coupon);
		postgres_array_add_number(&arrays[GENERATION], message->generation);
		postgres_array_add_number(&arrays[SEQ], message->seq + (int64_t)i);
		postgres_array_add_uuid(&arrays[BATCH], &message->batch);
		postgres_array_add_number(&arrays[IDX], (int64_t)i);
		postgres_array_add_text(&arrays[USER_ID], receive->user.text, receive->user.len);
		postgres_array_add_number(&arrays[SLOT], receive->slot);
		has_codes |= tail_put(arrays, receive->tail);
		postgres_array_add_number(&arrays[AT_MS], message->at_ms);
	}
	return has_codes;
}

void settle_args_fill(struct settle_args *args, const struct settlement *settlement)
{
	int has_codes = 0;

	for (int i = 0; i < SETTLE_ARGS_N; i++) {
		args->arrays[i].type = types[i];
		postgres_array_clear(&args->arrays[i]);
	}
	for (size_t i = 0; i < settlement_taken(settlement); i++)
		has_codes |= delivery_put(args->arrays, settlement_taken_at(settlement, i));
	if (!has_codes)
		postgres_array_clear(&args->arrays[CODE]);
}

void settle_args_arguments(const struct settle_args *args,
			   struct postgres_argument arguments[SETTLE_ARGS_N])
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		arguments[i] = postgres_array(&args->arrays[i]);
}

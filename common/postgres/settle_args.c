#include "common/postgres/settle_args.h"

enum { COUPON, GENERATION, SEQ, BATCH, IDX, USER_ID, SLOT, KEY, CODE, AT_MS };

static const enum postgres_type types[SETTLE_ARGS_N] = {
	[COUPON] = POSTGRES_INT8, [GENERATION] = POSTGRES_INT4, [SEQ] = POSTGRES_INT8,
	[BATCH] = POSTGRES_UUID,  [IDX] = POSTGRES_INT2,        [USER_ID] = POSTGRES_TEXT,
	[SLOT] = POSTGRES_INT2,   [KEY] = POSTGRES_TEXT,        [CODE] = POSTGRES_TEXT,
	[AT_MS] = POSTGRES_INT8,
};

void settle_args_init(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		postgres_array_init(&args->arrays[i], types[i]);
	args->has_codes = 0;
}

void settle_args_fini(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		postgres_array_fini(&args->arrays[i]);
}

void settle_args_clear(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		postgres_array_clear(&args->arrays[i]);
	args->has_codes = 0;
}

void settle_args_add(struct settle_args *args, const struct settle_receive *receive)
{
	struct postgres_array *arrays = args->arrays;
	size_t code_len;
	const char *code = receive_tail_code(receive->tail, receive->tail_len, receive->key_len,
					     &code_len);

	postgres_array_add_number(&arrays[COUPON], receive->coupon);
	postgres_array_add_number(&arrays[GENERATION], receive->generation);
	postgres_array_add_number(&arrays[SEQ], receive->seq);
	postgres_array_add_uuid(&arrays[BATCH], receive->batch);
	postgres_array_add_number(&arrays[IDX], receive->index);
	postgres_array_add_text(&arrays[USER_ID], receive->user->text, receive->user->len);
	postgres_array_add_number(&arrays[SLOT], receive->slot);
	postgres_array_add_text(&arrays[KEY], receive->tail, receive->key_len);
	postgres_array_add_text(&arrays[CODE], code, code_len);
	postgres_array_add_number(&arrays[AT_MS], receive->at_ms);
	args->has_codes |= code_len > 0;
}

size_t settle_args_receives(const struct settle_args *args)
{
	return args->arrays[COUPON].n;
}

void settle_args_arguments(const struct settle_args *args,
			   struct postgres_argument arguments[SETTLE_ARGS_N])
{
	static const struct postgres_array no_codes = { .type = POSTGRES_TEXT };

	for (int i = 0; i < SETTLE_ARGS_N; i++)
		arguments[i] = postgres_array(&args->arrays[i]);
	if (!args->has_codes)
		arguments[CODE] = postgres_array(&no_codes);
}

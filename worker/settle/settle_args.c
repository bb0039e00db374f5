#include "worker/settle/settle_args.h"

#include "common/check.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum argument { COUPON, GENERATION, SEQ, BATCH, IDX, USER_ID, SLOT, KEY, AT_MS };

/* Object ids of PostgreSQL's built-in types; they never change. */
static const struct {
	uint32_t array;
	uint32_t element;
} types[SETTLE_ARGS_N] = {
	[COUPON] = { 1016, 20 },  [GENERATION] = { 1007, 23 }, [SEQ] = { 1016, 20 },
	[BATCH] = { 2951, 2950 }, [IDX] = { 1005, 21 },        [USER_ID] = { 1016, 20 },
	[SLOT] = { 1005, 21 },    [KEY] = { 1009, 25 },        [AT_MS] = { 1016, 20 },
};

void settle_args_init(struct settle_args *args)
{
	memset(args, 0, sizeof(*args));
}

void settle_args_fini(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		free(args->arrays[i].data);
	memset(args, 0, sizeof(*args));
}

uint32_t settle_args_type(int i)
{
	return types[i].array;
}

static void put(struct settle_array *array, const void *bytes, size_t len)
{
	if (array->room - array->len < len) {
		array->room = 2 * array->room + len + 4096;
		array->data = realloc(array->data, array->room);
		check(array->data != NULL);
	}
	if (len)
		memcpy(array->data + array->len, bytes, len);
	array->len += len;
}

static void put32(struct settle_array *array, uint32_t number)
{
	uint32_t bytes = htonl(number);

	put(array, &bytes, sizeof(bytes));
}

static void put_element(struct settle_array *array, const void *bytes, size_t len)
{
	put32(array, (uint32_t)len);
	put(array, bytes, len);
}

static void put_element64(struct settle_array *array, int64_t number)
{
	uint64_t bytes = htobe64((uint64_t)number);

	put_element(array, &bytes, sizeof(bytes));
}

static void put_element32(struct settle_array *array, int64_t number)
{
	uint32_t bytes = htonl((uint32_t)number);

	put_element(array, &bytes, sizeof(bytes));
}

static void put_element16(struct settle_array *array, size_t number)
{
	uint16_t bytes = htons((uint16_t)number);

	put_element(array, &bytes, sizeof(bytes));
}

/* One dimension, no NULLs, the type, how many, and that the first is number 1. */
static void head_put(struct settle_args *args, int i, size_t elements)
{
	struct settle_array *array = &args->arrays[i];

	array->len = 0;
	put32(array, 1);
	put32(array, 0);
	put32(array, types[i].element);
	put32(array, (uint32_t)elements);
	put32(array, 1);
}

static void delivery_put(struct settle_array *arrays, const struct delivery *delivery)
{
	const struct delivery_message *message = delivery_message(delivery);

	for (size_t i = delivery_first(delivery); i < delivery_end(delivery); i++) {
		const struct message_receive *receive = &message->receives[i];

		put_element64(&arrays[COUPON], message->coupon);
		put_element32(&arrays[GENERATION], message->generation);
		put_element64(&arrays[SEQ], message->seq + (int64_t)i);
		put_element(&arrays[BATCH], message->batch.bytes, sizeof(message->batch.bytes));
		put_element16(&arrays[IDX], i);
		put_element64(&arrays[USER_ID], receive->user);
		put_element16(&arrays[SLOT], (size_t)receive->slot);
		put_element(&arrays[KEY], receive->key, strlen(receive->key));
		put_element64(&arrays[AT_MS], message->at_ms);
	}
}

void settle_args_fill(struct settle_args *args, const struct settlement *settlement)
{
	size_t receives = 0;

	for (size_t i = 0; i < settlement_taken(settlement); i++)
		receives += delivery_end(settlement_taken_at(settlement, i)) -
			    delivery_first(settlement_taken_at(settlement, i));
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		head_put(args, i, receives);
	for (size_t i = 0; i < settlement_taken(settlement); i++)
		delivery_put(args->arrays, settlement_taken_at(settlement, i));
}

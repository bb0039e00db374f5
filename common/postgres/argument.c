/*
 * An array in PostgreSQL's binary form, all numbers big-endian:
 *
 *	int32 1 │ int32 has NULLs │ int32 type │ int32 elements │ int32 1
 *	for each element: int32 length, or -1 for NULL │ its bytes
 */
#include "common/postgres/argument.h"

#include "common/check.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define NULLS_AT 4
#define COUNT_AT 12
#define HEAD_SIZE 20

/* Object ids of PostgreSQL's built-in types; they never change. */
static const uint32_t type_ids[] = { [POSTGRES_INT2] = 21,
				     [POSTGRES_INT4] = 23,
				     [POSTGRES_INT8] = 20,
				     [POSTGRES_TEXT] = 25,
				     [POSTGRES_UUID] = 2950 };

static void put(struct postgres_array *array, const void *bytes, size_t len)
{
	if (array->room - array->len < len) {
		array->room = 2 * array->room + len + 256;
		array->data = checked(realloc(array->data, array->room));
	}
	if (len)
		memcpy(array->data + array->len, bytes, len);
	array->len += len;
}

void postgres_array_init(struct postgres_array *array, enum postgres_type type)
{
	*array = (struct postgres_array){ .type = type };
}

void postgres_array_fini(struct postgres_array *array)
{
	free(array->data);
	*array = (struct postgres_array){ .type = array->type };
}

void postgres_array_clear(struct postgres_array *array)
{
	array->n = 0;
	array->len = 0;
}

static void head_write(const struct postgres_array *array, char head[HEAD_SIZE])
{
	const uint32_t words[] = { htonl(1), 0, htonl(type_ids[array->type]), 0, htonl(1) };

	memcpy(head, words, sizeof(words));
}

/* `len` as it is sent: UINT32_MAX for NULL. */
static void element_begin(struct postgres_array *array, uint32_t len)
{
	uint32_t len_sent = htonl(len), n_sent = htonl((uint32_t)++array->n);
	char head[HEAD_SIZE];

	if (array->len == 0) {
		head_write(array, head);
		put(array, head, sizeof(head));
	}
	put(array, &len_sent, sizeof(len_sent));
	memcpy(array->data + COUNT_AT, &n_sent, sizeof(n_sent));
}

static void element_put(struct postgres_array *array, const void *bytes, size_t len)
{
	element_begin(array, (uint32_t)len);
	put(array, bytes, len);
}

void postgres_array_add_null(struct postgres_array *array)
{
	uint32_t has_nulls = htonl(1);

	element_begin(array, UINT32_MAX);
	memcpy(array->data + NULLS_AT, &has_nulls, sizeof(has_nulls));
}

void postgres_array_add_number(struct postgres_array *array, int64_t number)
{
	uint64_t bytes = htobe64((uint64_t)number);
	size_t len = array->type == POSTGRES_INT8 ? 8 : array->type == POSTGRES_INT4 ? 4 : 2;

	check(array->type <= POSTGRES_INT8);
	check(len == 8 ||
	      (number >= -(INT64_C(1) << (8 * len - 1)) && number < INT64_C(1) << (8 * len - 1)));
	element_put(array, (const char *)&bytes + sizeof(bytes) - len, len);
}

void postgres_array_add_text(struct postgres_array *array, const char *text, size_t len)
{
	check(array->type == POSTGRES_TEXT);
	element_put(array, text, len);
}

void postgres_array_add_uuid(struct postgres_array *array, const struct ulid *ulid)
{
	check(array->type == POSTGRES_UUID);
	element_put(array, ulid->bytes, sizeof(ulid->bytes));
}

struct postgres_argument postgres_number(int64_t number)
{
	return (struct postgres_argument){ .kind = POSTGRES_OF_NUMBER, .number = number };
}

struct postgres_argument postgres_text(const char *text)
{
	return (struct postgres_argument){ .kind = POSTGRES_OF_TEXT, .text = text };
}

struct postgres_argument postgres_array(const struct postgres_array *array)
{
	return (struct postgres_argument){ .kind = POSTGRES_OF_ARRAY, .array = array };
}

const char *postgres_argument_value(const struct postgres_argument *argument,
				    char scratch[NUMBER_SIZE], int *len, int *is_binary)
{
	*len = 0;
	*is_binary = argument->kind == POSTGRES_OF_ARRAY;
	switch (argument->kind) {
	case POSTGRES_OF_NUMBER:
		return number_text(argument->number, scratch);
	case POSTGRES_OF_TEXT:
		return argument->text;
	case POSTGRES_OF_ARRAY:
		*len = (int)argument->array->len;
		if (*len > 0)
			return argument->array->data;
		*len = HEAD_SIZE;
		head_write(argument->array, scratch);
		return scratch;
	}
	return NULL;
}

void receive_args_init(struct receive_args *args)
{
	static const enum postgres_type types[RECEIVE_ARGS_N] = { POSTGRES_INT8, POSTGRES_TEXT,
								  POSTGRES_UUID, POSTGRES_INT2 };

	for (int i = 0; i < RECEIVE_ARGS_N; i++) {
		postgres_array_init(&args->arrays[i], types[i]);
		args->arguments[i] = postgres_array(&args->arrays[i]);
	}
}

void receive_args_fini(struct receive_args *args)
{
	for (int i = 0; i < RECEIVE_ARGS_N; i++)
		postgres_array_fini(&args->arrays[i]);
}

void receive_args_add(struct receive_args *args, const struct receive *receive)
{
	postgres_array_add_number(&args->arrays[0], receive->coupon);
	postgres_array_add_text(&args->arrays[1], receive->user.text, receive->user.len);
	postgres_array_add_uuid(&args->arrays[2], &receive->batch);
	postgres_array_add_number(&args->arrays[3], receive->index);
}

enum { COUPON, GENERATION, SEQ, BATCH, IDX, USER_ID, SLOT, KEY, CODE, AT_MS, TRACE };

static const enum postgres_type types[SETTLE_ARGS_N] = {
	[COUPON] = POSTGRES_INT8, [GENERATION] = POSTGRES_INT4, [SEQ] = POSTGRES_INT8,
	[BATCH] = POSTGRES_UUID,  [IDX] = POSTGRES_INT2,        [USER_ID] = POSTGRES_TEXT,
	[SLOT] = POSTGRES_INT2,   [KEY] = POSTGRES_TEXT,        [CODE] = POSTGRES_TEXT,
	[AT_MS] = POSTGRES_INT8,  [TRACE] = POSTGRES_TEXT,
};

void settle_args_init(struct settle_args *args)
{
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		postgres_array_init(&args->arrays[i], types[i]);
	args->has_codes = args->has_traces = 0;
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
	args->has_codes = args->has_traces = 0;
}

void settle_args_add(struct settle_args *args, const struct settle_receive *receive)
{
	struct postgres_array *arrays = args->arrays;
	const char *trace = receive->trace ? receive->trace : "";
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
	postgres_array_add_text(&arrays[TRACE], trace, strlen(trace));
	args->has_codes |= code_len > 0;
	args->has_traces |= *trace != '\0';
}

size_t settle_args_receives(const struct settle_args *args)
{
	return args->arrays[COUPON].n;
}

void settle_args_arguments(const struct settle_args *args,
			   struct postgres_argument arguments[SETTLE_ARGS_N])
{
	static const struct postgres_array none = { .type = POSTGRES_TEXT };

	for (int i = 0; i < SETTLE_ARGS_N; i++)
		arguments[i] = postgres_array(&args->arrays[i]);
	if (!args->has_codes)
		arguments[CODE] = postgres_array(&none);
	if (!args->has_traces)
		arguments[TRACE] = postgres_array(&none);
}

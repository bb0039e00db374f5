/*
 * A dead letter as couponctl reads and shows it: for any contents, the printed text has no control
 * bytes, and the output of --json is strict JSON.
 */
#include "tests/fuzz/properties.h"

#include "ctl/dead/dead_letter.h"

#include <stdio.h>
#include <stdlib.h>

static struct json_arena *arena;

static void printed_check(const struct dead_letter *letter)
{
	FILE *real = stdout;
	size_t len = 0;
	char *text = NULL;

	stdout = open_memstream(&text, &len);
	check(stdout != NULL);
	dead_letter_print(letter);
	fclose(stdout);
	stdout = real;
	for (size_t i = 0; i < len; i++)
		check((text[i] >= ' ' && text[i] <= '~') || text[i] == '\n' || text[i] == '\t');
	free(text);
}

static void json_check(const struct dead_letter *letter)
{
	cJSON *object = dead_letter_json(letter, 1);
	const char *error;
	char *text = cJSON_PrintUnformatted(object);

	check(text != NULL);
	if (!json_parse(arena, text, strlen(text), &error)) {
		fprintf(stderr, "%s: %s\n", error, text);
		check(strstr(error, "64 members") != NULL); /* any number of headers */
	}
	cJSON_free(text);
	cJSON_Delete(object);
}

static void batch_check(const struct dead_batch *batch)
{
	static struct message message;
	const char *error;

	check(batch->coupon >= 0 && batch->receives_n >= -1);
	check((message_decode(arena, batch->body.bytes, batch->body.len, &message, &error) == 0) ==
	      !batch->unreadable);
	if (batch->unreadable)
		return;
	check(batch->coupon == message.coupon && *batch->ulid);
	check(batch->receives_n == (int64_t)message.receives_n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	static struct dead_letter letter;
	amqp_pool_t pool;

	if (!arena)
		arena = json_arena_new();
	init_amqp_pool(&pool, 4096);
	memset(&letter, 0, sizeof(letter));
	letter.number = 1;
	if (properties_take(&bytes, &pool, &letter.raw.properties) == 0) {
		letter.raw.body = (amqp_bytes_t){ .len = bytes.left,
						  .bytes = (void *)(uintptr_t)bytes.at };
		dead_letter_read(&letter, arena);
		check(strlen(letter.reason) < DEAD_REASON_SIZE);
		check(letter.batches_n >= 1 && letter.batches_n <= PACKED_BATCHES_MAX);
		for (size_t i = 0; i < letter.batches_n; i++)
			batch_check(&letter.batches[i]);
		printed_check(&letter);
		json_check(&letter);
	}
	empty_amqp_pool(&pool);
	return 0;
}

/*
 * The receive message: what message_decode() accepts is within the bounds that settlement relies
 * on, and encoded as issue.lua does it is the same message; settlement and its arguments can hold
 * it. Whatever arrives, packed or not, is acked once when all of it is settled or dead-lettered.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/message.h"
#include "worker/settlement.h"
#include "worker/settler.h"

#include <stdio.h>
#include <stdlib.h>

static struct json_arena *arena;

static char *message_text(const struct message *message)
{
	cJSON *receives = cJSON_CreateArray();
	char batch[ULID_SIZE], id[ID_SIZE], *list, *text;

	for (size_t i = 0; i < message->receives_n; i++) {
		const struct message_receive *receive = &message->receives[i];
		const char *tab = strchr(receive->tail, '\t');
		char key[RECEIVE_KEY_MAX + 1] = "";
		cJSON *item = cJSON_CreateArray();

		memcpy(key, receive->tail,
		       tab ? (size_t)(tab - receive->tail) : strlen(receive->tail));

		cJSON_AddItemToArray(item, cJSON_CreateString(receive->user.text));
		cJSON_AddItemToArray(item, cJSON_CreateNumber(receive->slot));
		cJSON_AddItemToArray(item, cJSON_CreateString(key));
		if (tab)
			cJSON_AddItemToArray(item, cJSON_CreateString(tab + 1));
		cJSON_AddItemToArray(receives, item);
	}
	list = cJSON_PrintUnformatted(receives);
	id_format(message->coupon, id);
	check(list != NULL);
	check(asprintf(&text,
		       "{\"v\":1,\"batch\":\"%s\",\"coupon\":\"%s\",\"generation\":%lld,\"seq\":%"
		       "lld,\"at\":%lld,\"receives\":%s}",
		       ulid_format(&message->batch, batch), id, (long long)message->generation,
		       (long long)message->seq, (long long)message->at_ms, list) > 0);
	cJSON_free(list);
	cJSON_Delete(receives);
	return text;
}

static void bounds_check(const struct message *message)
{
	check(message->coupon > 0 && message->generation >= 0 && message->generation <= INT32_MAX);
	check(message->seq > 0 && message->seq <= JSON_INTEGER_MAX && message->at_ms >= 0);
	check(message->receives_n >= 1 && message->receives_n <= MESSAGE_RECEIVES_MAX);
	for (size_t i = 0; i < message->receives_n; i++) {
		const struct message_receive *receive = &message->receives[i];
		size_t key_len;

		check(receive->user.len > 0 && receive->user.len <= USER_ID_MAX &&
		      strlen(receive->user.text) == receive->user.len);
		check(receive->slot >= 0 && receive->slot <= INT16_MAX);
		check(receive_tail_parse(receive->tail, strlen(receive->tail), &key_len) == 0);
	}
}

static void same_again_check(const struct message *message)
{
	static struct message again;
	char *text = message_text(message);
	const char *error;

	check(message_decode(arena, text, strlen(text), &again, &error) == 0);
	check(memcmp(&again.batch, &message->batch, sizeof(again.batch)) == 0 &&
	      again.coupon == message->coupon);
	check(again.generation == message->generation && again.seq == message->seq &&
	      again.at_ms == message->at_ms);
	check(again.receives_n == message->receives_n);
	for (size_t i = 0; i < again.receives_n; i++) {
		check(user_id_same(&again.receives[i].user, &message->receives[i].user) &&
		      again.receives[i].slot == message->receives[i].slot);
		check(strcmp(again.receives[i].tail, message->receives[i].tail) == 0);
	}
	free(text);
}

static void settlement_check(const struct message *message)
{
	struct settlement *settlement = settlement_new(NULL, NULL, 16, 16);
	struct settle_args args;
	int has_codes = 0;

	settlement_add(settlement, delivery_new(1, message, NULL), 0);
	check(settlement_take(settlement, 1, 0) == message->receives_n);
	settle_args_init(&args);
	settlement_args_fill(&args, settlement);
	for (int i = 0; i < SETTLE_ARGS_N; i++)
		check(args.arrays[i].n == message->receives_n &&
		      args.arrays[i].len <= args.arrays[i].room);
	for (size_t i = 0; i < message->receives_n; i++)
		has_codes |= strchr(message->receives[i].tail, '\t') != NULL;
	check(args.has_codes == has_codes);
	check(args.has_traces == (message->traces.n > 0));
	settle_args_fini(&args);
	settlement_free(settlement);
}

static size_t envelopes; /* not yet freed */

static void envelope_drop(void *envelope)
{
	check(envelope && envelopes > 0);
	envelopes--;
}

static void *batch_envelope(const void *whole, const char *text, size_t len,
			    const struct ulid *batch)
{
	(void)batch;
	check(!memchr(text, '\n', len));
	envelopes++;
	return (void *)(uintptr_t)whole;
}

static void arrival_check(const char *body, size_t len)
{
	struct unpack *unpack = calloc(1, sizeof(*unpack));
	const struct delivery *delivery;
	uint64_t tag;
	int multiple;

	check(unpack != NULL);
	unpack->settlement = settlement_new(envelope_drop, NULL, 16, 16);
	unpack->arena = arena;
	unpack->read = receives_read;
	unpack->batch_envelope = batch_envelope;
	envelopes = 1;
	unpack_add(unpack, 1, body, len, 0, unpack);
	while (settlement_take(unpack->settlement, 100, 0) > 0)
		settlement_commit(unpack->settlement);
	while ((delivery = settlement_forward(unpack->settlement)))
		settlement_forwarded(unpack->settlement, unpack->settlement->epoch, 1,
				     delivery->position, 1);
	check(settlement_ack(unpack->settlement, &tag, &multiple) && tag == 1 && !multiple);
	check(settlement_counts(unpack->settlement).held == 0 && envelopes == 0);
	settlement_free(unpack->settlement);
	free(unpack);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct message message;
	const char *error = NULL;

	if (!arena)
		arena = json_arena_new();
	arrival_check((const char *)data, size);
	if (message_decode(arena, (const char *)data, size, &message, &error)) {
		check(error && *error);
		return 0;
	}
	bounds_check(&message);
	same_again_check(&message);
	settlement_check(&message);
	return 0;
}

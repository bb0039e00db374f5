#include "gateway/admit/bundle.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS_ENOUGH 192 /* with so many a bundle is full, so that few calls are cut to fit */

struct bundle *bundle_new(void)
{
	struct bundle *bundle = calloc(1, sizeof(*bundle));

	check(bundle != NULL);
	STAILQ_INIT(&bundle->calls);
	return bundle;
}

size_t bundle_room(const struct bundle *bundle)
{
	return bundle_is_filled_by(bundle->requests, bundle->calls_n)
		       ? 0
		       : BUNDLE_REQUESTS_MAX - bundle->requests;
}

int bundle_is_filled_by(size_t requests, size_t coupons)
{
	return requests >= REQUESTS_ENOUGH || coupons >= BUNDLE_CALLS_MAX;
}

void bundle_add(struct bundle *bundle, struct call *call)
{
	check(call->requests_n <= bundle_room(bundle));
	STAILQ_INSERT_TAIL(&bundle->calls, call, next);
	bundle->calls_n++;
	bundle->requests += call->requests_n;
}

struct call *bundle_take(struct bundle *bundle)
{
	struct call *call = STAILQ_FIRST(&bundle->calls);

	if (call)
		STAILQ_REMOVE_HEAD(&bundle->calls, next);
	return call;
}

static void word_len_add(struct bundle_command *command, const char *word, size_t len)
{
	command->words[command->n] = word;
	command->lengths[command->n++] = len;
}

static void word_add(struct bundle_command *command, const char *word)
{
	word_len_add(command, word, strlen(word));
}

/* The keys follow their number, which is not known before. */
static void keys_add(struct bundle_command *command, const struct bundle *bundle)
{
	const struct call *call;
	int first = ++command->n;
	size_t i = 0;

	STAILQ_FOREACH (call, &bundle->calls, next) {
		struct coupon_keys *keys = &command->parts[i++].keys;

		coupon_keys_make(keys, call->coupon_id,
				 call->has_codes ? COUPON_KEYS_REDEEM : COUPON_KEYS_ISSUE);
		for (int key = 0; key < keys->n; key++)
			word_add(command, keys->names[key]);
	}
	number_text(command->n - first, command->keys_n);
	command->words[first - 1] = command->keys_n;
	command->lengths[first - 1] = strlen(command->keys_n);
}

/* The arguments of the call that is the part `i`. */
static void part_add(struct bundle_command *command, const struct call *call, size_t i)
{
	id_format(call->coupon_id, command->parts[i].coupon);
	word_add(command, command->parts[i].coupon);
	word_len_add(command, ulid_format(&call->batch, command->parts[i].batch), ULID_LEN);
	word_add(command, number_text(call->seen_generation, command->parts[i].generation));
	word_add(command, number_text(call->seen_seq, command->parts[i].seq));
	number_text((int64_t)call->requests_n, command->parts[i].count);
	strcat(command->parts[i].count, call->has_keys ? "k" : "");
	word_add(command, strcat(command->parts[i].count, call->has_codes ? "c" : ""));
	for (size_t n = 0; n < call->requests_n; n++) {
		const struct request *request = call->requests[n];

		word_len_add(command, request->user.text, request->user.len);
		if (call->has_keys)
			word_len_add(command, request_key(request), request->key_len);
		if (call->has_codes)
			word_len_add(command, request_code(request), request->code_len);
	}
}

void bundle_command_make(struct bundle_command *command, const struct bundle *bundle,
			 const char *script, const char *run_id, const char *unsettled_max)
{
	const struct call *call;
	size_t i = 0;

	command->n = 0;
	word_add(command, "EVALSHA");
	word_add(command, script);
	keys_add(command, bundle);
	word_add(command, run_id);
	word_add(command, unsettled_max);
	STAILQ_FOREACH (call, &bundle->calls, next)
		part_add(command, call, i++);
}

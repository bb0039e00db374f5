/*
 * Messages of uses, and replies of workers to receives and to uses: what is read is within its
 * bounds, and written again it is the same.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/use.h"

static struct json_arena *arena;

static void text_check(const char *text, size_t least, size_t most)
{
	size_t len = strlen(text);

	check(len >= least && len <= most);
	for (size_t i = 0; i < len; i++)
		check(text[i] >= ' ' && text[i] <= '~');
}

static void receive_check(const struct receive *receive)
{
	check(receive->coupon > 0 && receive->user.len > 0);
	check(receive->index == USE_ANY_RECEIVE ||
	      (receive->index >= 0 && receive->index <= RECEIVE_INDEX_MAX));
}

static void use_check(const struct use *use, const struct receive *receives)
{
	text_check(use->order, 1, USE_ORDER_MAX);
	text_check(use->key, 1, RECEIVE_KEY_MAX);
	text_check(use->by, 0, USE_BY_MAX);
	text_check(use->reason, 0, USE_REASON_MAX);
	check(use->action == USE_HOLD ? use->ttl_s >= 1 && use->ttl_s <= USE_TTL_MAX_S
				      : use->ttl_s == 0);
	check(use->amount < 0 ? !*use->currency : currency_valid(use->currency, CURRENCY_LEN));
	check(use_receives_valid(receives, use->receives_n));
	for (size_t i = 0; i < use->receives_n; i++)
		receive_check(&receives[i]);
}

static void message_check(const struct use_message *message)
{
	static char text[USE_MESSAGE_SIZE], text_again[USE_MESSAGE_SIZE];
	static struct use_message again;
	const struct receive *receives = message->receives;
	const char *error;
	size_t len;

	check(message->uses_n >= 1 && message->uses_n <= message->receives_n);
	for (size_t i = 0; i < message->uses_n; i++) {
		use_check(&message->uses[i], receives);
		receives += message->uses[i].receives_n;
	}
	check(receives == message->receives + message->receives_n);
	check(message->traces.n <= MESSAGE_TRACES_MAX);
	for (size_t i = 0; i < message->traces.n; i++)
		check(message->traces.list[i].index < message->uses_n);
	len = use_message_write(message, text);
	check(use_message_decode(arena, text, len, &again, &error) == 0);
	check(use_message_write(&again, text_again) == len && memcmp(text, text_again, len) == 0);
}

static void reply_check(const struct reply *reply)
{
	static char text[REPLY_SIZE], text_again[REPLY_SIZE];
	static struct reply again;
	size_t len = reply_write(reply, text);

	check(reply->outcomes_n >= 1 && reply->outcomes_n <= MESSAGE_RECEIVES_MAX);
	for (size_t i = 0; i < reply->outcomes_n; i++) {
		const struct receive_outcome *of_receive = &reply->receives[i];
		const struct use_outcome *of_use = &reply->uses[i];

		if (!reply->is_to_uses) {
			check(of_receive->index >= 0 && of_receive->index <= RECEIVE_INDEX_MAX);
			check(!of_receive->reason ||
			      of_receive->reason == reason_known(of_receive->reason));
			continue;
		}
		check(of_use->use < MESSAGE_RECEIVES_MAX && of_use->result < USE_RESULTS_N);
		check(of_use->until_ms >= -1 && of_use->amount_off >= -1);
		check(!*of_use->currency || currency_valid(of_use->currency, CURRENCY_LEN));
		receive_check(&of_use->receive);
	}
	check(reply_decode(arena, text, len, &again) == 0);
	check(reply_write(&again, text_again) == len && memcmp(text, text_again, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct use_message message;
	static struct reply reply;
	const char *error = NULL;

	if (!arena)
		arena = json_arena_new();
	if (use_message_decode(arena, (const char *)data, size, &message, &error))
		check(error && *error);
	else
		message_check(&message);
	if (reply_decode(arena, (const char *)data, size, &reply) == 0)
		reply_check(&reply);
	return 0;
}

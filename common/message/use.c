#include "common/message/use.h"

#include "common/check.h"

#include <string.h>

const char *const use_action_names[USE_ACTIONS] = {
	[USE_HOLD] = "hold",
	[USE_USE] = "use",
	[USE_RELEASE] = "release",
	[USE_ROLLBACK] = "rollback",
};

static const char *const results[USE_RESULTS_N] = {
#define RESULT(name, text, answer) [USE_##name] = text,
	USE_RESULTS(RESULT)
#undef RESULT
};

static const char *const nows[NOWS_N] = {
#define RECEIVE_NOW(name, text) [NOW_##name] = text,
	RECEIVE_NOWS(RECEIVE_NOW)
#undef RECEIVE_NOW
};

enum answer use_result_answer(enum use_result result)
{
	static const enum answer answers[USE_RESULTS_N] = {
#define RESULT(name, text, answer) [USE_##name] = answer,
		USE_RESULTS(RESULT)
#undef RESULT
	};

	check(result < USE_RESULTS_N);
	return answers[result];
}

const char *use_result_text(enum use_result result)
{
	check(result < USE_RESULTS_N);
	return results[result];
}

/* The place of the text among `n`; `n`: it is none of them. */
static size_t name_find(const char *const *names, size_t n, const char *text)
{
	size_t place = 0;

	while (place < n && strcmp(names[place], text) != 0)
		place++;
	return place;
}

enum use_result use_result_find(const char *text)
{
	return (enum use_result)name_find(results, USE_RESULTS_N, text);
}

const char *receive_now_text(enum receive_now now)
{
	check(now < NOWS_N);
	return nows[now];
}

enum receive_now receive_now_find(const char *text)
{
	return (enum receive_now)name_find(nows, NOWS_N, text);
}

int use_reason_valid(const char *text, size_t len)
{
	return printable_valid(text, len, USE_REASON_MAX);
}

int currency_valid(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] < 'A' || text[i] > 'Z')
			return 0;
	return len == CURRENCY_LEN;
}

int use_receives_valid(const struct receive *receives, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (receives[i].index == USE_ANY_RECEIVE)
			return n == 1;
		for (size_t k = 0; k < i; k++)
			if (receives[k].coupon == receives[i].coupon &&
			    receives[k].index == receives[i].index &&
			    memcmp(&receives[k].batch, &receives[i].batch, sizeof(struct ulid)) ==
				    0)
				return 0;
	}
	return n > 0 && n <= USE_RECEIVES_MAX;
}

static char *string_append(char *at, const char *text)
{
	*at++ = '"';
	at = escaped_append(at, text, strlen(text));
	*at++ = '"';
	return at;
}

/* A number; null if it is negative. */
static char *known_append(char *at, int64_t number)
{
	return number < 0 ? text_append(at, "null") : number_append(at, number);
}

static char *receive_append(char *at, const struct receive *receive)
{
	char id[ID_SIZE], ulid[ULID_SIZE];

	id_format(receive->coupon, id);
	at = text_append(at, "[");
	at = string_append(at, id);
	at = text_append(at, ",");
	at = string_append(at, receive->user.text);
	if (receive->index != USE_ANY_RECEIVE) {
		at = text_append(at, ",");
		at = string_append(at, ulid_format(&receive->batch, ulid));
		at = text_append(at, ",");
		at = number_append(at, receive->index);
	}
	return text_append(at, "]");
}

size_t use_message_write(const struct use_message *message, char out[USE_MESSAGE_SIZE])
{
	const struct receive *receives = message->receives;
	char ulid[ULID_SIZE], *at = out;

	at = text_append(at, "{\"v\":1,\"batch\":\"");
	at = text_append(at, ulid_format(&message->batch, ulid));
	at = number_append(text_append(at, "\",\"at\":"), message->at_ms);
	at = text_append(at, ",\"uses\":[");
	for (const struct use *use = message->uses; use < message->uses + message->uses_n; use++) {
		const char *const texts[] = { use_action_names[use->action], use->order, use->key,
					      use->by };

		at = text_append(at, use > message->uses ? ",[" : "[");
		for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
			at = text_append(string_append(at, texts[i]), ",");
		at = text_append(number_append(at, use->ttl_s), ",");
		at = text_append(known_append(at, use->amount), ",");
		at = text_append(string_append(at, use->currency), ",");
		at = text_append(string_append(at, use->reason), ",[");
		for (size_t i = 0; i < use->receives_n; i++) {
			at = text_append(at, i > 0 ? "," : "");
			at = receive_append(at, receives++);
		}
		at = text_append(at, "]]");
	}
	at = text_append(at, "]");
	for (size_t i = 0; i < message->traces.n; i++) {
		at = text_append(at, i > 0 ? ",\"" : ",\"traces\":{\"");
		at = text_append(number_append(at, (int64_t)message->traces.list[i].index), "\":");
		at = string_append(at, message->traces.list[i].text);
	}
	at = text_append(at, message->traces.n > 0 ? "}}" : "}");
	check(at - out <= USE_MESSAGE_SIZE && receives == message->receives + message->receives_n);
	return (size_t)(at - out);
}

/* The items of an array of exactly `n`. 0, or -1. */
static int items_take(const cJSON *array, const cJSON *items[], size_t n)
{
	const cJSON *item = cJSON_IsArray(array) ? array->child : NULL;

	for (size_t i = 0; i < n; i++, item = item->next) {
		if (!item)
			return -1;
		items[i] = item;
	}
	return item ? -1 : 0;
}

/* A string of printable ASCII. 0, or -1. */
static int text_take(const cJSON *item, size_t least, size_t most, char *out)
{
	size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

	if (!cJSON_IsString(item) || len < least ||
	    (len > 0 && !printable_valid(item->valuestring, len, most)))
		return -1;
	memcpy(out, item->valuestring, len + 1);
	return 0;
}

/* A number, or -1 for null. 0, or -1. */
static int known_take(const cJSON *item, int64_t *number)
{
	*number = -1;
	return cJSON_IsNull(item) ? 0 : json_integer(item, 0, JSON_INTEGER_MAX, number);
}

/* Three capitals, or an empty string. 0, or -1. */
static int currency_take(const cJSON *item, char out[CURRENCY_LEN + 1])
{
	if (text_take(item, 0, CURRENCY_LEN, out))
		return -1;
	return *out && !currency_valid(out, strlen(out)) ? -1 : 0;
}

static int receive_take(const cJSON *array, struct receive *receive)
{
	const cJSON *items[4];
	int64_t index = USE_ANY_RECEIVE;

	memset(receive, 0, sizeof(*receive));
	if (items_take(array, items, 2) &&
	    (items_take(array, items, 4) || !cJSON_IsString(items[2]) ||
	     ulid_parse(&receive->batch, items[2]->valuestring, strlen(items[2]->valuestring)) ||
	     json_integer(items[3], 0, RECEIVE_INDEX_MAX, &index)))
		return -1;
	receive->index = (int)index;
	if (!cJSON_IsString(items[0]) || !cJSON_IsString(items[1]) ||
	    id_parse(items[0]->valuestring, strlen(items[0]->valuestring), &receive->coupon))
		return -1;
	return user_id_parse(&receive->user, items[1]->valuestring, strlen(items[1]->valuestring));
}

/* Decodes the next use of the message. 0, or -1. */
static int use_take(const cJSON *array, struct use_message *message)
{
	struct use *use = &message->uses[message->uses_n++];
	struct receive *receives = &message->receives[message->receives_n];
	const cJSON *items[9], *item;

	if (items_take(array, items, 9) || !cJSON_IsString(items[0]))
		return -1;
	use->action = (enum use_action)name_find(use_action_names, USE_ACTIONS,
						 items[0]->valuestring);
	if (use->action == USE_ACTIONS || text_take(items[1], 1, USE_ORDER_MAX, use->order) ||
	    text_take(items[2], 1, RECEIVE_KEY_MAX, use->key) ||
	    text_take(items[3], 0, USE_BY_MAX, use->by))
		return -1;
	if (use->action == USE_HOLD ? json_integer(items[4], 1, USE_TTL_MAX_S, &use->ttl_s)
				    : json_integer(items[4], 0, 0, &use->ttl_s))
		return -1;
	if (known_take(items[5], &use->amount) || currency_take(items[6], use->currency) ||
	    (use->amount < 0) != !*use->currency ||
	    text_take(items[7], 0, USE_REASON_MAX, use->reason))
		return -1;

	if (!cJSON_IsArray(items[8]))
		return -1;
	use->receives_n = 0;
	cJSON_ArrayForEach(item, items[8])
	{
		if (message->receives_n == MESSAGE_RECEIVES_MAX ||
		    receive_take(item, &message->receives[message->receives_n]))
			return -1;
		message->receives_n++;
		use->receives_n++;
	}
	return use_receives_valid(receives, use->receives_n) ? 0 : -1;
}

/* The version and the batch. 0, or -1. */
static int head_take(const cJSON *root, struct ulid *batch, const char **error)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "batch");
	int64_t version;

	*error = "unknown version";
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "v"), 1, USE_VERSION, &version))
		return -1;
	*error = "batch is not a ULID";
	return cJSON_IsString(item)
		       ? ulid_parse(batch, item->valuestring, strlen(item->valuestring))
		       : -1;
}

int use_message_decode(struct json_arena *arena, const char *body, size_t len,
		       struct use_message *message, const char **error)
{
	const cJSON *root = json_parse(arena, body, len, error), *uses, *item;

	if (!root || head_take(root, &message->batch, error))
		return -1;
	*error = "at is not a time in milliseconds";
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "at"), 0, MESSAGE_AT_MAX_MS,
			 &message->at_ms))
		return -1;
	uses = cJSON_GetObjectItemCaseSensitive(root, "uses");
	*error = "uses is not an array of 1 to 256";
	if (!cJSON_IsArray(uses) || !uses->child)
		return -1;
	message->uses_n = message->receives_n = 0;
	cJSON_ArrayForEach(item, uses)
	{
		if (message->uses_n == MESSAGE_RECEIVES_MAX)
			return -1;
		if (use_take(item, message)) {
			*error = "a use is not [action, order, key, by, seconds, amount, currency, "
				 "reason, receives]";
			return -1;
		}
	}
	message_traces_decode(root, message->uses_n, &message->traces);
	return 0;
}

size_t reply_write(const struct reply *reply, char out[REPLY_SIZE])
{
	char ulid[ULID_SIZE], *at = out;

	at = text_append(at, "{\"v\":1,\"batch\":\"");
	at = text_append(at, ulid_format(&reply->batch, ulid));
	at = text_append(at, reply->is_to_uses ? "\",\"uses\":[" : "\",\"outcomes\":[");
	for (size_t i = 0; !reply->is_to_uses && i < reply->outcomes_n; i++) {
		const struct receive_outcome *outcome = &reply->receives[i];

		at = number_append(text_append(at, i > 0 ? ",[" : "["), outcome->index);
		at = text_append(at, outcome->reason ? ",\"rejected\",\"" : ",\"issued\"]");
		if (outcome->reason)
			at = text_append(text_append(at, outcome->reason), "\"]");
	}
	for (size_t i = 0; reply->is_to_uses && i < reply->outcomes_n; i++) {
		const struct use_outcome *outcome = &reply->uses[i];

		at = number_append(text_append(at, i > 0 ? ",[" : "["), (int64_t)outcome->use);
		at = string_append(text_append(at, ","), use_result_text(outcome->result));
		at = receive_append(text_append(at, ","), &outcome->receive);
		at = known_append(text_append(at, ","), outcome->until_ms);
		at = known_append(text_append(at, ","), outcome->amount_off);
		at = string_append(text_append(at, ","), outcome->currency);
		if (outcome->now == NOW_NONE) {
			at = text_append(at, ",null]");
			continue;
		}
		at = string_append(text_append(at, ",["), receive_now_text(outcome->now));
		at = text_append(at, outcome->now_is_own ? ",1," : ",0,");
		at = text_append(known_append(at, outcome->now_until_ms), "]]");
	}
	at = text_append(at, "]}");
	check(at - out <= REPLY_SIZE);
	return (size_t)(at - out);
}

static int use_outcome_take(const cJSON *array, struct use_outcome *outcome)
{
	const cJSON *items[7], *now[3];
	int64_t use, is_own;

	if (items_take(array, items, 7) || json_integer(items[0], 0, RECEIVE_INDEX_MAX, &use) ||
	    !cJSON_IsString(items[1]) || receive_take(items[2], &outcome->receive) ||
	    known_take(items[3], &outcome->until_ms) || known_take(items[4], &outcome->amount_off))
		return -1;
	outcome->use = (size_t)use;
	outcome->result = use_result_find(items[1]->valuestring);
	if (outcome->result == USE_RESULTS_N || currency_take(items[5], outcome->currency))
		return -1;

	/* null, or [state, whether it is the order's, until] */
	outcome->now = NOW_NONE;
	outcome->now_is_own = 0;
	outcome->now_until_ms = -1;
	if (cJSON_IsNull(items[6]))
		return 0;
	if (items_take(items[6], now, 3) || !cJSON_IsString(now[0]) ||
	    json_integer(now[1], 0, 1, &is_own) || known_take(now[2], &outcome->now_until_ms))
		return -1;
	outcome->now = receive_now_find(now[0]->valuestring);
	outcome->now_is_own = (int)is_own;
	return outcome->now == NOWS_N || outcome->now == NOW_NONE ? -1 : 0;
}

static int receive_outcome_take(const cJSON *array, struct receive_outcome *outcome)
{
	const cJSON *first = cJSON_IsArray(array) ? array->child : NULL,
		    *second = first ? first->next : NULL;
	int64_t index;

	if (!second || json_integer(first, 0, RECEIVE_INDEX_MAX, &index) || !cJSON_IsString(second))
		return -1;
	*outcome = (struct receive_outcome){ .index = (int)index };
	if (strcmp(second->valuestring, "issued") == 0)
		return 0;
	if (strcmp(second->valuestring, "rejected") != 0 || !cJSON_IsString(second->next))
		return -1;
	outcome->reason = reason_known(second->next->valuestring);
	return 0;
}

int reply_decode(struct json_arena *arena, const char *body, size_t len, struct reply *reply)
{
	const char *error;
	const cJSON *root = json_parse(arena, body, len, &error), *uses, *outcomes, *item;

	if (!root || head_take(root, &reply->batch, &error))
		return -1;
	uses = cJSON_GetObjectItemCaseSensitive(root, "uses");
	reply->is_to_uses = uses != NULL;
	outcomes = uses ? uses : cJSON_GetObjectItemCaseSensitive(root, "outcomes");
	if (!cJSON_IsArray(outcomes) || !outcomes->child)
		return -1;
	reply->outcomes_n = 0;
	cJSON_ArrayForEach(item, outcomes)
	{
		size_t n = reply->outcomes_n++;

		if (n == MESSAGE_RECEIVES_MAX ||
		    (uses ? use_outcome_take(item, &reply->uses[n])
			  : receive_outcome_take(item, &reply->receives[n])))
			return -1;
	}
	return 0;
}

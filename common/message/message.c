#include "common/message/message.h"

#include <string.h>

static int integer_member(const cJSON *root, const char *name, int64_t least, int64_t most,
			  int64_t *value)
{
	return json_integer(cJSON_GetObjectItemCaseSensitive(root, name), least, most, value);
}

/* [user, slot, key] or [user, slot, key, code]. 0, or -1. */
static int receive_decode(const cJSON *item, struct message_receive *receive)
{
	const cJSON *user = cJSON_IsArray(item) ? item->child : NULL;
	const cJSON *slot = user ? user->next : NULL;
	const cJSON *key = slot ? slot->next : NULL;
	const cJSON *code = key ? key->next : NULL;
	int64_t number;
	size_t len;

	if (!key || !cJSON_IsString(user) || !cJSON_IsString(key) ||
	    user_id_parse(&receive->user, user->valuestring, strlen(user->valuestring)) ||
	    json_integer(slot, 0, INT16_MAX, &number))
		return -1;
	receive->slot = (int)number;

	len = strlen(key->valuestring);
	if (len > 0 && !receive_key_valid(key->valuestring, len))
		return -1;
	memcpy(receive->tail, key->valuestring, len + 1);
	if (!code)
		return 0;
	if (code->next || !cJSON_IsString(code) ||
	    !receive_code_valid(code->valuestring, strlen(code->valuestring)))
		return -1;
	receive->tail[len] = '\t';
	strcpy(receive->tail + len + 1, code->valuestring);
	return 0;
}

void message_traces_decode(const cJSON *root, size_t of_n, struct message_traces *traces)
{
	const cJSON *object = cJSON_GetObjectItemCaseSensitive(root, "traces"), *item;

	traces->n = 0;
	if (!cJSON_IsObject(object))
		return;
	cJSON_ArrayForEach(item, object)
	{
		struct message_trace *trace = &traces->list[traces->n];
		const char *text = cJSON_IsString(item) ? item->valuestring : "";
		int64_t index;

		if (traces->n == MESSAGE_TRACES_MAX)
			return;
		if ((*item->string == '0' && item->string[1]) ||
		    number_parse(item->string, (int64_t)of_n - 1, &index) ||
		    !trace_context_valid(text, strlen(text)))
			continue;
		trace->index = (size_t)index;
		strcpy(trace->text, text);
		traces->n++;
	}
}

int message_decode(struct json_arena *arena, const char *body, size_t len, struct message *message,
		   const char **error)
{
	const cJSON *root = json_parse(arena, body, len, error), *receives, *item;
	const char *text;
	int64_t version;

	if (!root)
		return -1;
	*error = "not an object";
	if (!cJSON_IsObject(root))
		return -1;

	*error = "no version";
	if (integer_member(root, "v", 0, JSON_INTEGER_MAX, &version))
		return -1;
	*error = "unknown version";
	if (version < 1 || version > MESSAGE_VERSION)
		return -1;
	*error = "batch is not a ULID";
	text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "batch"));
	if (!text || ulid_parse(&message->batch, text, strlen(text)))
		return -1;
	*error = "coupon is not an id";
	text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "coupon"));
	if (!text || id_parse(text, strlen(text), &message->coupon))
		return -1;
	*error = "generation is not an integer";
	if (integer_member(root, "generation", 0, INT32_MAX, &message->generation))
		return -1;
	*error = "seq is not an integer";
	if (integer_member(root, "seq", 1, JSON_INTEGER_MAX, &message->seq))
		return -1;
	*error = "at is not a time in milliseconds";
	if (integer_member(root, "at", 0, MESSAGE_AT_MAX_MS, &message->at_ms))
		return -1;

	receives = cJSON_GetObjectItemCaseSensitive(root, "receives");
	*error = "receives is not an array of 1 to 256";
	if (!cJSON_IsArray(receives) || !receives->child)
		return -1;
	message->receives_n = 0;
	cJSON_ArrayForEach(item, receives)
	{
		if (message->receives_n == MESSAGE_RECEIVES_MAX)
			return -1;
		if (receive_decode(item, &message->receives[message->receives_n])) {
			*error = "a receive is not [user, slot, key] or [user, slot, key, code]";
			return -1;
		}
		message->receives_n++;
	}
	message_traces_decode(root, message->receives_n, &message->traces);
	return 0;
}

#define HEAD_LEN (sizeof(PACKED_HEAD) - 1)
#define TAIL_LEN (sizeof(PACKED_TAIL) - 1)

int packed_open(struct packed *packed, const char *body, size_t len, const char **error)
{
	size_t lines = 1;

	if (len < HEAD_LEN + TAIL_LEN || memcmp(body, PACKED_HEAD, HEAD_LEN) != 0 ||
	    memcmp(body + len - TAIL_LEN, PACKED_TAIL, TAIL_LEN) != 0)
		return 0;
	packed->at = body + HEAD_LEN;
	packed->end = body + len - TAIL_LEN;
	*error = "more than 256 batches";
	for (const char *at = packed->at; (at = memchr(at, '\n', (size_t)(packed->end - at))); at++)
		lines++;
	return lines <= PACKED_BATCHES_MAX ? 1 : -1;
}

int packed_next(struct packed *packed, const char **batch, size_t *len)
{
	const char *line = packed->at, *end;

	if (!line)
		return 0;
	end = memchr(line, '\n', (size_t)(packed->end - line));
	packed->at = end ? end + 1 : NULL;
	if (!end)
		end = packed->end;
	else if (end > line && end[-1] == ',')
		end--;
	*batch = line;
	*len = (size_t)(end - line);
	return 1;
}

int message_has(const struct message *message, const struct receive *receive)
{
	return message->coupon == receive->coupon && receive->index < (int)message->receives_n &&
	       memcmp(&message->batch, &receive->batch, sizeof(receive->batch)) == 0 &&
	       user_id_same(&message->receives[receive->index].user, &receive->user);
}

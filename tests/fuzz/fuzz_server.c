/*
 * The socket API of the gateway with arbitrary bytes: as many replies as there are lines before the
 * first that begins as HTTP, each strict JSON, and independent of where the bytes are cut.
 */
#include "tests/fuzz/wire.h"

#include "gateway/listen/lines.h"

#include <strings.h>

static int begins_as_http(const uint8_t *data, size_t size)
{
	static const char *const words[] = { "GET",     "HEAD",  "POST",    "PUT", "DELETE",
					     "OPTIONS", "TRACE", "CONNECT", "PRI", "PATCH" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t len = strlen(words[i]);

		if (size > len && strncasecmp((const char *)data, words[i], len) == 0 &&
		    data[len] == ' ')
			return 1;
	}
	return size >= 5 && strncasecmp((const char *)data, "host:", 5) == 0;
}

/* The number of replies that the bytes require. */
static size_t replies_owed(const uint8_t *data, size_t size)
{
	size_t limit = WIRE_LIMIT_BYTES, owed = 0;

	while (size > 0) {
		const uint8_t *stop = memchr(data, '\n', size);
		size_t len = stop ? (size_t)(stop - data) : size;

		if (begins_as_http(data, len) && (stop || len > limit + 1))
			return owed;
		if (!stop)
			return owed + (len > limit + 1);
		owed += len > 1 || (len == 1 && data[0] != '\r');
		data += len + 1;
		size -= len + 1;
	}
	return owed;
}

static size_t replies_check(const struct wire_text *text)
{
	static struct json_arena *arena;
	size_t replies = 0;

	if (!arena)
		arena = json_arena_new();
	for (size_t at = 0; at < text->len; replies++) {
		const char *line = text->bytes + at, *stop = memchr(line, '\n', text->len - at);
		const cJSON *root, *code;
		const char *error;
		int64_t number;

		check(stop != NULL);
		root = json_parse(arena, line, (size_t)(stop - line), &error);
		check(cJSON_IsObject(root));
		code = cJSON_GetObjectItemCaseSensitive(root, "code");
		check(json_integer(code, 0, 99, &number) == 0);
		check(number == answer_code(ANSWER_OK) ||
		      number == answer_code(ANSWER_BAD_REQUEST) ||
		      number == answer_code(ANSWER_TOO_LARGE) ||
		      number == answer_code(ANSWER_BUSY) ||
		      number == answer_code(ANSWER_UNAVAILABLE));
		at += (size_t)(stop - line) + 1;
	}
	return replies;
}

/* The first byte: where to cut, and whether the answers are delayed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_text whole, cut;
	static struct wire wire;
	static struct lines *lines;
	size_t owed;

	if (size == 0)
		return 0;
	if (!lines) {
		wire_init(&wire);
		lines = lines_new(wire.base, &wire.config, wire.intake, WIRE_LIMIT_BYTES);
		wire_listen(&wire, lines_accept, lines);
	}
	owed = replies_owed(data + 1, size - 1);
	wire.later = data[0] & 1;
	wire_run(&wire, data + 1, size - 1, 1u + data[0], &cut);
	check(replies_check(&cut) == owed);
	if (wire.later)
		return 0;
	wire_run(&wire, data + 1, size - 1, 0, &whole);
	check(whole.len == cut.len && memcmp(whole.bytes, cut.bytes, cut.len) == 0);
	return 0;
}

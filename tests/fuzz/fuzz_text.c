/*
 * The short texts: ids, users, receives, times, addresses, reply lines. A text that is parsed and
 * written again parses to the same value.
 */
#include "tests/fuzz/fuzz.h"

#include "client/client.h"
#include "common/clock.h"
#include "common/message/receive.h"
#include "common/program/config.h"
#include "common/redis/redis.h"

#include <stdlib.h>

static void id_check(const char *text, size_t len)
{
	char again[ID_SIZE];
	int64_t id;

	if (id_parse(text, len, &id))
		return;
	check(id > 0 && id_format(id, again) == len && memcmp(again, text, len) == 0);
}

static int is_user(const char *text, size_t len)
{
	if (len == 0 || len > 64)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return 0;
	return 1;
}

/* A text is a user or it is clear why not, and the receive of any user is read as that receive. */
static void user_check(const char *text, size_t len)
{
	struct receive receive = { .coupon = INT64_MAX, .index = (int)(len % 256) }, again;
	char why[USER_ID_WHY_SIZE], written[RECEIVE_SIZE];
	size_t n;

	if (user_id_parse(&receive.user, text, len)) {
		check(!is_user(text, len));
		user_id_why(text, len, why);
		check(strstr(why, ": must be ") && strlen(why) < USER_ID_WHY_SIZE - 1);
		return;
	}
	check(is_user(text, len) && receive.user.len == len && strlen(receive.user.text) == len);
	check(memcmp(receive.user.text, text, len) == 0);
	memcpy(receive.batch.bytes, text, len < 16 ? len : 16);
	n = receive_format(&receive, written);
	check(n < RECEIVE_SIZE && receive_parse(&again, written, n) == 0);
	check(again.coupon == INT64_MAX && again.index == receive.index);
	check(user_id_same(&again.user, &receive.user) &&
	      memcmp(&again.batch, &receive.batch, sizeof(again.batch)) == 0);
}

static void receive_check(const char *text, size_t len)
{
	struct receive receive;
	char again[RECEIVE_SIZE];

	if (receive_parse(&receive, text, len))
		return;
	check(receive.index >= 0 && receive.index <= RECEIVE_INDEX_MAX);
	check(is_user(receive.user.text, receive.user.len));
	check(receive_format(&receive, again) == len && memcmp(again, text, len) == 0);
}

static void ulid_check(const char *text, size_t len)
{
	struct ulid ulid, back;
	char again[ULID_SIZE], uuid[ULID_UUID_SIZE];

	if (ulid_parse(&ulid, text, len))
		return;
	check(memcmp(ulid_format(&ulid, again), text, len) == 0);
	check(ulid_from_uuid(&back, ulid_to_uuid(&ulid, uuid)) == 0 &&
	      memcmp(&back, &ulid, sizeof(ulid)) == 0);
}

static void uuid_check(const char *text)
{
	char again[ULID_UUID_SIZE];
	struct ulid ulid;

	if (ulid_from_uuid(&ulid, text) == 0)
		check(strcmp(ulid_to_uuid(&ulid, again), text) == 0);
}

static void time_check(const char *text)
{
	char again[CLOCK_RFC3339_SIZE];
	int64_t time_ms, second_ms;

	if (rfc3339_parse(text, &time_ms))
		return;
	clock_rfc3339(time_ms, again);
	if (again[4] == '-') /* an offset may lead out of the years of four digits */
		check(rfc3339_parse(again, &second_ms) == 0 && second_ms == time_ms);
}

static void redis_url_check(const char *text)
{
	struct redis_url url;

	if (redis_url_parse(&url, text))
		return;
	check(url.host && *url.host && url.port >= 1 && url.port <= 65535 && url.database >= 0);
	check(!url.user || url.password);
	redis_url_fini(&url);
}

static void address_check(char *text)
{
	char *host;
	int port;

	if (config_address(text, &host, &port) == 0)
		check(host && *host && port >= 1 && port <= 65535);
}

static void reply_line_check(const char *text, size_t len)
{
	static struct json_arena *arena;
	struct client_reply reply;

	if (!arena)
		arena = json_arena_new();
	if (client_reply_read(arena, text, len, &reply) == 0)
		check(reply.request >= -1 && reply.code >= 0 && reply.code <= 99);
}

/* The first byte chooses the parser of the rest. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = size ? size - 1 : 0;
	char *text = malloc(len + 1); /* some parsers need a NUL after it */

	if (size == 0) {
		free(text);
		return 0;
	}
	check(text != NULL);
	memcpy(text, data + 1, len);
	text[len] = '\0';
	switch (data[0] % 8) {
	case 0:
		id_check((const char *)data + 1, len);
		user_check((const char *)data + 1, len);
		break;
	case 1:
		receive_check((const char *)data + 1, len);
		break;
	case 2:
		ulid_check((const char *)data + 1, len);
		break;
	case 3:
		uuid_check(text);
		break;
	case 4:
		time_check(text);
		break;
	case 5:
		redis_url_check(text);
		break;
	case 6:
		address_check(text);
		break;
	case 7:
		reply_line_check((const char *)data + 1, len);
		break;
	}
	free(text);
	return 0;
}

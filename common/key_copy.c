#include "common/key_copy.h"

#include "common/check.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/postgres/session.h"
#include "embed.h"

#include <string.h>

int key_copy_version(struct redis_client *redis, int64_t *version)
{
	const char *hget[] = { "HGET", KEYS_KEY, "version" };
	redisReply *reply = redis_client_call(redis, 3, hget);

	*version = 0;
	if (!reply)
		return -1;
	if (reply->type == REDIS_REPLY_STRING &&
	    number_parse(reply->str, JSON_INTEGER_MAX, version))
		*version = 0;
	freeReplyObject(reply);
	return 0;
}

enum key_copied key_copy_write(struct redis_client *redis, const char *installation,
			       const PGresult *rows, int64_t *from, int64_t to)
{
	const char *keys[] = { KEYS_KEY, CHANGES_KEY }, *argv[3 + KEY_COPY_PAGE] = { installation };
	char from_text[NUMBER_SIZE], to_text[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	int n = PQntuples(rows);

	check(n <= KEY_COPY_PAGE);
	/* Changes since `to` was read may be among them. */
	if (n > 0 && (n == KEY_COPY_PAGE || column_number(rows, n - 1, "version") > to))
		to = column_number(rows, n - 1, "version");
	argv[1] = number_text(*from, from_text);
	argv[2] = number_text(to, to_text);
	for (int i = 0; i < n; i++)
		argv[3 + i] = column_text(rows, i, "record");
	redis_word_take(redis_client_eval(redis, lua_keys, 2, keys, 3 + n, argv), word);
	*from = to;
	if (strcmp(word, "ok") == 0)
		return KEY_COPIED;
	if (strcmp(word, "foreign") == 0)
		return KEY_COPY_FOREIGN;
	return strcmp(word, "unadopted") == 0 ? KEY_COPY_UNADOPTED : KEY_COPY_FAILED;
}

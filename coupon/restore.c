#include "coupon/restore.h"

#include "common/check.h"

#include <string.h>

int restore_look_take(struct copies_look *look, const redisReply *reply)
{
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
		return -1;
	look->is_present = reply->element[0]->type == REDIS_REPLY_STRING;
	look->generation = look->is_present ? redis_reply_number(reply->element[0]) : 0;
	look->seq = look->is_present ? redis_reply_number(reply->element[1]) : 0;
	look->is_placeholder = reply->element[2]->type == REDIS_REPLY_STRING;
	return 0;
}

enum copies_result restore_result_take(const redisReply *reply)
{
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		return COPIES_FAILED;
	if (reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "missing") == 0)
		return COPIES_MISSING;
	return COPIES_WRITTEN;
}

void restore_command_make(struct restore_command *command, int64_t coupon, const char *script,
			  const struct copy *const *messages, size_t n)
{
	const char **word = command->words;

	check(n > 0 && n <= COPIES_MESSAGES_MAX);
	coupon_keys_make(&command->keys, coupon, COUPON_KEYS_RESTORE);
	*word++ = "EVAL";
	*word++ = script;
	*word++ = "4";
	for (int i = 0; i < command->keys.n; i++)
		*word++ = command->keys.names[i];
	for (size_t i = 0; i < n; i++) {
		*word++ = ulid_format(&messages[i]->batch, command->texts[i].batch);
		*word++ = number_text(messages[i]->generation, command->texts[i].generation);
		*word++ = number_text(messages[i]->seq, command->texts[i].seq);
		*word++ = NULL;
	}
	command->n = (int)(word - command->words);
	for (int i = 0; i < command->n; i++)
		if (command->words[i])
			command->lengths[i] = strlen(command->words[i]);
	for (size_t i = 0; i < n; i++) {
		size_t body = 3 + 4 + 4 * i + 3;

		command->words[body] = messages[i]->body;
		command->lengths[body] = messages[i]->body_len;
	}
}

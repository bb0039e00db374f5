#include "common/redis/user_records.h"

#include <string.h>

/*
 * Reads a number in canonical decimal, up to `most`, and the colon after it; moves `*text` past
 * both. -1: there is none.
 */
static int number_take(const char **text, int most)
{
	const char *first = *text;
	int number = 0;

	for (; **text >= '0' && **text <= '9' && number <= most; (*text)++)
		number = number * 10 + (**text - '0');
	if (*text == first || number > most || (*first == '0' && *text - first > 1) ||
	    **text != ':')
		return -1;
	(*text)++;
	return number;
}

int user_record_next(const char **text, struct user_record *record)
{
	const char *at = *text, *stop;

	if (!at)
		return -1;
	record->slot = number_take(&at, RECEIVE_SLOT_MAX);
	if (record->slot < 1 || strlen(at) <= ULID_LEN ||
	    ulid_parse(&record->batch, at, ULID_LEN) || at[ULID_LEN] != ':')
		return -1;
	at += ULID_LEN + 1;
	record->index = number_take(&at, RECEIVE_INDEX_MAX);
	if (record->index < 0)
		return -1;
	stop = strchr(at, '\n');
	record->key = at;
	record->tail_len = stop ? (size_t)(stop - at) : strlen(at);
	if (receive_tail_parse(record->key, record->tail_len, &record->key_len))
		return -1;
	*text = stop ? stop + 1 : NULL;
	return 0;
}

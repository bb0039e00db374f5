/*
 * A user's records in Redis: each is within its bounds, and encoded again it decodes to the same;
 * decoding ends.
 */
#include "tests/fuzz/fuzz.h"

#include "common/redis/user_records.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), again[64], batch[ULID_SIZE];
	struct user_record record, second;
	const char *at = text, *from;

	check(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	for (from = at; user_record_next(&at, &record) == 0; from = at) {
		const char *reread = again;
		int len = snprintf(again, sizeof(again), "%d:%s:%d:", record.slot,
				   ulid_format(&record.batch, batch), record.index);

		check(record.slot >= 1 && record.slot <= RECEIVE_SLOT_MAX && record.index >= 0 &&
		      record.index <= RECEIVE_INDEX_MAX);
		check(record.key_len == 0 || receive_key_valid(record.key, record.key_len));
		check(record.tail_len == record.key_len ||
		      (record.key[record.key_len] == '\t' &&
		       receive_code_valid(record.key + record.key_len + 1,
					  record.tail_len - record.key_len - 1)));
		check(strncmp(from, again, (size_t)len) == 0);
		check(user_record_next(&reread, &second) == 0 && reread == NULL);
		check(second.slot == record.slot && second.index == record.index);
		check(!at || (at > from && at[-1] == '\n' && at <= text + size));
	}
	free(text);
	return 0;
}

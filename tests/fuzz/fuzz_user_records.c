/*
 * A user's records in Redis: each is within its bounds, and encoded again it decodes to the same;
 * decoding ends.
 */
#include "tests/fuzz/fuzz.h"

#include "coupon/slot.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), again[64], batch[ULID_SIZE];
	struct slot record, second;
	const char *at = text, *from;

	check(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	for (from = at; slot_next(&at, &record) == 0; from = at) {
		const char *reread = again;
		int len = snprintf(again, sizeof(again), "%d:%s:%d:", record.number,
				   ulid_format(&record.batch, batch), record.index);

		check(record.number >= 1 && record.number <= RECEIVE_SLOT_MAX &&
		      record.index >= 0 && record.index <= RECEIVE_INDEX_MAX);
		check(record.key_len == 0 || receive_key_valid(record.tail, record.key_len));
		check(record.tail_len == record.key_len ||
		      (record.tail[record.key_len] == '\t' &&
		       receive_code_valid(record.tail + record.key_len + 1,
					  (size_t)(record.tail_len - record.key_len - 1))));
		check(strncmp(from, again, (size_t)len) == 0);
		check(slot_next(&reread, &second) == 0 && reread == NULL);
		check(second.number == record.number && second.index == record.index);
		check(!at || (at > from && at[-1] == '\n' && at <= text + size));
	}
	free(text);
	return 0;
}

/*
 * A user's records of one coupon, as issue.lua writes them: SLOT:BATCH:INDEX:KEY for each taken
 * slot, a line each; if it has redeemed a code, a tab and the code follow.
 */
#ifndef COMMON_REDIS_USER_RECORDS_H
#define COMMON_REDIS_USER_RECORDS_H

#include "common/message/receive.h"

/* A taken slot. */
struct user_record {
	int slot;
	struct ulid batch;
	int index;
	const char *key; /* valid, or empty: none; lent by the text, without a NUL of its own */
	size_t key_len;
	size_t tail_len; /* the same with the code (receive_tail_parse()) */
};

/*
 * Reads the next record and moves `*text` past it (NULL: that was the last one). 0, or -1 at the
 * end, or where the text is not what issue.lua writes: then `*text` stays there, and is not NULL.
 */
int user_record_next(const char **text, struct user_record *record);

#endif

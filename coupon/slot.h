/*
 * Taken slots of a coupon: the records of its users in Redis, as issue.lua writes them, and the
 * user coupons in PostgreSQL. A record is SLOT:BATCH:INDEX:KEY for each taken slot, a line each; if
 * it has claimed a code, a tab and the code follow. No I/O.
 */
#pragma once

#include "common/message/message.h"
#include "common/message/receive.h"
#include "common/postgres/argument.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

struct slot {
	struct user_id user;
	struct ulid batch;
	int16_t number; /* 1…RECEIVE_SLOT_MAX */
	int16_t index;
	/* The key, which may be empty, and behind it the code: receive_tail_parse(). */
	uint8_t key_len, tail_len;
	const char *tail; /* lent, without a NUL of its own; NULL: not known */
};

/*
 * Reads a number in canonical decimal, up to `most`, and the colon after it; moves `*text` past
 * both. -1: there is none.
 */
int slot_number_take(const char **text, int most);

/*
 * Reads the next record, but not its user, and moves `*text` past it (NULL: that was the last one).
 * 0, or -1 at the end, or where the text is not what issue.lua writes: then `*text` stays there,
 * and is not NULL.
 */
int slot_next(const char **text, struct slot *slot);

/*
 * A row with the columns user_id, slot, batch, idx from column `first` on, and then the tail if it
 * has that. 0, or -1: the user or the batch is malformed.
 */
int slot_of_row(struct slot *slot, const PGresult *rows, int row, int first);

/* How many records of a user the reply of Redis has, which may be nil. -1: it is not that. */
int slots_count(const redisReply *records);

#define SLOT_RECORD_SIZE (ULID_SIZE + RECEIVE_TAIL_MAX + 16)
/* Writes the record of a slot whose tail is known. Returns `out`. */
char *slot_record_format(const struct slot *slot, char out[SLOT_RECORD_SIZE]);
/* The id of the receive that has the slot. Returns `out`. */
char *slot_receive_format(const struct slot *slot, int64_t coupon, char out[RECEIVE_SIZE]);
/* The code for one use that the receive has claimed. Its length; 0: none. */
size_t slot_code(const struct slot *slot, const char **code);

/* Orders by user and number. */
int slot_compare(const struct slot *a, const struct slot *b);
int slot_same_receive(const struct slot *a, const struct slot *b);

/* The contents of one slot in the records of a user. */
enum slot_found {
	SLOT_SAME,      /* this receive with this key */
	SLOT_OTHER_KEY, /* this receive with another key or code */
	SLOT_OTHER,     /* another receive */
	SLOT_NONE,      /* nothing */
	SLOT_MALFORMED, /* the records are malformed */
};

/* `tail` NULL: any. The records are the reply of Redis, which may be nil. */
enum slot_found slot_look_up(const struct slot *wanted, const char *tail,
			     const redisReply *records);

/* All zero at first. */
struct slots {
	struct slot *list;
	size_t n, size;
};

void slots_add(struct slots *slots, const struct slot *slot);
/*
 * Adds the records of a user, by which their tails are lent. 0, or -1: the user is no valid id, or
 * a record is malformed (those before it are added) or has the slot of another one (all are added).
 */
int slots_add_user(struct slots *slots, const redisReply *user, const redisReply *records);
/* Replaces the list by the records of these users. Skips what is malformed. */
void slots_read(struct slots *slots, const redisReply *users);
/* Adds the receives of a message, by which their tails are lent. */
void slots_add_message(struct slots *slots, const struct message *message);
/* Sorts by user and number, and removes duplicates, which a scan may return. */
void slots_sort(struct slots *slots);
void slots_fini(struct slots *slots);

/* Adds a slot whose tail is known to the arguments of settle(). */
void slot_settle(const struct slot *slot, int64_t coupon, int64_t generation, int64_t seq,
		 int64_t at_ms, struct settle_args *args);

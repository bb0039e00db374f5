/* A dead letter and what can be read of it. No I/O. */
#ifndef CTL_DEAD_LETTER_H
#define CTL_DEAD_LETTER_H

#include "common/message.h"
#include "ctl/output.h"

#include <amqp.h>
#include <amqp_framing.h>

#define DEAD_REASON_SIZE 256

struct dead_letter {
	int64_t number; /* its place in the queue, 1 is the oldest */
	uint64_t tag;
	amqp_message_t raw;

	/* why it was dead-lettered, printable; "" when nobody told */
	char reason[DEAD_REASON_SIZE];
	/* why the body is not a message that workers of this version read; NULL: it is one */
	const char *unreadable;
	struct message message; /* when it is readable */

	/*
	 * Also of messages that are not readable, a newer version for instance, as far as it can be
	 * seen.
	 */
	int64_t coupon;        /* 0: not to be seen */
	char batch[ULID_SIZE]; /* "": not to be seen */
	int64_t receives_n;    /* -1: not to be seen */
	int body_is_text;      /* UTF-8 without NUL */
};

/* Reads what stands in `raw`. */
void dead_letter_read(struct dead_letter *letter, struct json_arena *arena);
void dead_letter_fini(struct dead_letter *letter);

/*
 * The bytes with everything that is not printable ASCII as \xNN, so that no terminal obeys them;
 * lines and tabs may stay.
 */
void dead_bytes_print(amqp_bytes_t bytes, int keep_lines);

/* "coupon 1001, batch 01JD…, 2 receives, 120 bytes; reason". */
void dead_letter_summary_print(const struct dead_letter *letter);

/* The members that list and show have in common. */
cJSON *dead_letter_json(const struct dead_letter *letter);
/* Properties, headers and body. */
void dead_letter_print_all(const struct dead_letter *letter);
void dead_letter_json_all(const struct dead_letter *letter, cJSON *object);

#endif

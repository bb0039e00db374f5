/* A message in the dead-letter queue, and what can be read of it. */
#ifndef CTL_DEAD_LETTER_H
#define CTL_DEAD_LETTER_H

#include "common/message/message.h"
#include "common/rabbit/amqp.h"
#include "ctl/output.h"

#define DEAD_REASON_SIZE 256

struct dead_letter {
	int64_t number; /* its position in the queue, 1 for the oldest */
	uint64_t tag;
	amqp_message_t raw;

	/* why it was dead-lettered, printable; "": no reason is recorded */
	char reason[DEAD_REASON_SIZE];
	/* why workers of this version cannot read the body; NULL: they can */
	const char *unreadable;
	struct message message; /* when it is readable */

	/* Also of messages that are not readable, of a newer version for instance. */
	int64_t coupon;        /* 0: unknown */
	char batch[ULID_SIZE]; /* "": unknown */
	int64_t receives_n;    /* -1: unknown */
	int body_is_text;      /* JSON or ASCII */
};

/* Reads `raw`. */
void dead_letter_read(struct dead_letter *letter, struct json_arena *arena);
void dead_letter_fini(struct dead_letter *letter);

/*
 * Prints bytes that are not printable ASCII as \xNN, so that they cannot control a terminal.
 * `keep_lines` excepts line ends and tabs.
 */
void dead_bytes_print(amqp_bytes_t bytes, int keep_lines);

/* Whether all bytes are printable ASCII, tabs or line ends. */
int dead_is_text(amqp_bytes_t bytes);

/* "coupon 1001, batch 01JD…, 2 receives, 120 bytes; reason". */
void dead_letter_summary_print(const struct dead_letter *letter);

/* The members that list and show have in common. */
cJSON *dead_letter_json(const struct dead_letter *letter);

#endif

/* A message in the dead-letter queue, and what can be read of it. */
#pragma once

#include "common/message/message.h"
#include "common/rabbit/connection.h"
#include "ctl/output.h"

#define DEAD_REASON_SIZE 256
#define DEAD_DIGEST_SIZE 33

/* A batch of the message. It may be unreadable, for instance of a newer version. */
struct dead_batch {
	amqp_bytes_t body;      /* lent by the letter */
	int64_t coupon;         /* 0: unknown */
	char ulid[ULID_SIZE];   /* "": unknown */
	int64_t receives_n;     /* -1: unknown */
	const char *unreadable; /* why workers of this version cannot read it; NULL: they can */
};

struct dead_letter {
	int64_t number; /* its position in the queue, 1 for the oldest */
	uint64_t tag;
	amqp_message_t raw;
	char digest[DEAD_DIGEST_SIZE]; /* half of the SHA-256 of the body, in hexadecimal */

	/* why it was dead-lettered, printable; "": no reason is recorded */
	char reason[DEAD_REASON_SIZE];
	int body_is_text; /* JSON or ASCII */
	int is_use;       /* a message of uses of receives: their clients were answered `unknown` */

	/* one batch, or those of a packed message */
	struct dead_batch batches[PACKED_BATCHES_MAX];
	size_t batches_n;
	const char *unreadable; /* why the first unreadable batch is so; NULL: all are readable */
	int64_t receives_n;     /* of all batches; -1: unknown */
};

/* Reads `raw`. */
void dead_letter_read(struct dead_letter *letter, struct json_arena *arena);

/* "coupon 1001, batch 01JD…, 2 receives, 120 bytes; reason", or "3 batches, …". */
void dead_letter_summary_print(const struct dead_letter *letter);

/* Prints the letter with its properties, headers and body. */
void dead_letter_print(const struct dead_letter *letter);
/* The letter as an object; `is_whole`: with its properties, headers and body. */
cJSON *dead_letter_json(const struct dead_letter *letter, int is_whole);

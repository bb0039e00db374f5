/* Some codes that are to be revoked together, then told. */
#ifndef CTL_CODES_REVOKE_CHUNK_H
#define CTL_CODES_REVOKE_CHUNK_H

#include "codes/text.h"
#include "common/redis/client.h"
#include "ctl/codes/stored.h"
#include "ctl/table/text_buffer.h"

#define REVOKE_CHUNK 20000

struct revoke_counts {
	int64_t revoked, before, refused; /* now, before, told */
};

struct revoke_code {
	struct text_buffer name;     /* for messages */
	char text[CODE_OTHERS_SIZE]; /* "": it was found, or is wrong */
	int64_t set, serial, coupon; /* set 0: not found, or not to be revoked */
	int is_word;
	int is_redeemed;          /* in Redis, when that was asked first */
	struct text_buffer wrong; /* empty: it is revoked */
};

struct revoke_chunk { /* all zero at first */
	size_t n;
	struct revoke_code codes[REVOKE_CHUNK];
};

/* `where` is put in front of the code in messages. `wrong`: what is wrong with its row, or NULL. */
void revoke_chunk_add(struct revoke_chunk *chunk, const struct stored *stored, const char *where,
		      const char *code, size_t len, const char *wrong);

/*
 * Revokes the codes, in Redis and PostgreSQL, tells on standard error which are used or do not
 * exist, and counts them. Then the chunk is empty.
 */
void revoke_chunk_run(struct revoke_chunk *chunk, struct db *db, struct redis_client *redis,
		      struct revoke_counts *counts);

void revoke_chunk_fini(struct revoke_chunk *chunk);

#endif

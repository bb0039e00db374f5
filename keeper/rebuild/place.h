/*
 * The way of a coupon from PostgreSQL to Redis. A snapshot has its counts, those of its older
 * generations, and all its rows, page by page; between snapshot_begin() and snapshot_end() the
 * connection is this snapshot's alone. The slots are filled under temporary names in pieces
 * (lua/fill.lua), each of which occupies Redis for less than a millisecond. The filled keys expire
 * unless they are put in place.
 *
 * Placing opens the coupon under a new generation, with its revoked codes: lua/place.lua computes
 * the stock and puts the filled slots in place. Or what Redis has is verified, and opened as it is.
 * The keeper's thread.
 */
#pragma once

#include "coupon/redis_coupon.h"
#include "keeper/context.h"

#define SNAPSHOT_PAGE 512 /* rows in a page; see sql_query_rebuild_fetch */

struct snapshot {
	struct keeper_database *database; /* NULL: it has ended, or was not begun */
	struct coupon_row row;
	int64_t late;     /* number of late outcomes that are included in the counts */
	int64_t unfreed;  /* rejected receives that may still hold a slot in Redis */
	int has_rejected; /* receives */
	/* older ones; coupon_generation_open() bounds their number. The owner frees them. */
	struct generations generations;
	PGresult *page;
	int is_ahead; /* the statement for the next page of rows was sent */
};

/*
 * Each 0, or -1 when the statement failed, as keeper_database.h says, or when the keeper must not
 * go on.
 */
int snapshot_begin(struct snapshot *snapshot, struct keeper_context *context,
		   struct keeper_database *database, int64_t coupon);
/*
 * The counts alone, of coupons in the order of their ids, within a transaction of the caller. The
 * row of one that PostgreSQL does not have stays as it was.
 */
int snapshots_read(struct keeper_context *context, struct keeper_database *database,
		   struct snapshot *const *list, const int64_t *ids, size_t n);
/*
 * Reads the next page into snapshot->page; its columns are those of slot_of_row(). No rows: the
 * end. PostgreSQL reads the page after it meanwhile: no other statement may be run before the end.
 */
int snapshot_rows(struct snapshot *snapshot);
/* Asks for the first page, so that PostgreSQL reads it meanwhile. */
int snapshot_rows_ask(struct snapshot *snapshot);
/*
 * Before the first page of the codes that were revoked after this revocation, and each page: one
 * column, as in Redis.
 */
int snapshot_revoked_begin(struct snapshot *snapshot, int64_t above);
int snapshot_revoked(struct snapshot *snapshot);
/* Raises the highest number of an older generation, if there is one with this number. */
void snapshot_raise(struct snapshot *snapshot, int64_t generation, int64_t high);
/* Ends the transaction; the counts stay. Must be called, also after a failure. */
void snapshot_end(struct snapshot *snapshot);

#define FILL_PIECE 256       /* slots */
#define FILL_WORDS_MAX 513   /* two for each slot, or one for each code of a page and one more */
#define FILL_ISSUED "issued" /* kinds of lua/fill.lua */
#define FILL_SINGLE "single"
#define FILL_FLIGHT "flight"
#define FILL_REVOKED "revoked"
#define FILL_LASTS "180000" /* ms, without a further piece: longer than KEEPER_PATIENCE_MS */

/*
 * Appends the call for one piece, for redis_client_next(). `past`: how many slots are filled
 * before it. `fence` is of keeper_context_fence().
 */
struct piece {
	int64_t coupon, generation;
	const char *what;
	int64_t room, past;
	int words_n;
	const char *words[FILL_WORDS_MAX]; /* users and their records in turn, or codes */
};

void piece_append(struct redis_client *redis, const struct piece *piece, const char *fence);
/* Frees the reply. How many slots were added, or -1: Redis failed, or refused it. */
int64_t piece_take(redisReply *reply);

/*
 * With appendfsync always Redis replies after its disk has the piece, and waits for the disk once
 * for what all connections have sent meanwhile. So the pieces of a coupon with many rows go over
 * several connections, each with several pieces under way.
 */
struct slot_writer;

struct slot_writer *slot_writer_new(struct keeper_context *context, int64_t coupon,
				    int64_t generation);
void slot_writer_free(struct slot_writer *writer);
/*
 * Sets the kind of the following slots (a constant) and the largest number of them to add. Sends
 * the buffered slots first. 0, or -1.
 */
int slot_writer_begin(struct slot_writer *writer, const char *what, int64_t room);
/* Adds a slot whose tail is known. 0, or -1: Redis failed, or refused this or an earlier piece. */
int slot_writer_add(struct slot_writer *writer, const struct slot *slot);
/* Sends the buffered slots, and waits for all replies. 0, or -1. */
int slot_writer_flush(struct slot_writer *writer);
int64_t slot_writer_added(const struct slot_writer *writer); /* sent since slot_writer_begin() */

/*
 * Fills the receives in flight that have a slot in Redis: first those of the outbox,
 * whose messages are not lost, then those of the users' hash, however old they are, up to the
 * number in flight. Raises the highest numbers of snapshot->generations to those of the messages.
 * `redis_generation` is that of the coupon that is replaced; 0: none. 0, or -1.
 */
int flight_fill(struct slot_writer *writer, struct snapshot *snapshot, int64_t redis_generation);

struct placing {
	int64_t generation; /* the new one */
	int64_t issued;     /* PostgreSQL's rows, all of them filled */
	const char *why;    /* for the log, a constant; NULL: it is loaded for the first time */
	int64_t begun_ms;
};

/*
 * Appends the call of the script with context->fence_text, for redis_client_next(). 0, or -1: the
 * coupon has too many generations.
 */
int place_append(struct keeper_context *context, const struct snapshot *snapshot,
		 const struct placing *placing);
/*
 * Logs the reply. Whether the coupon is in place: then it has the five elements of the script.
 * `word` as of redis_word_take().
 */
int place_is_done(struct keeper_context *context, const struct snapshot *snapshot,
		  const struct placing *placing, const redisReply *reply,
		  char word[REDIS_WORD_SIZE]);

/* Marks the revoked codes that Redis does not have yet: couponctl has died meanwhile. 0, or -1. */
int codes_revoke(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look);

/*
 * Raises in PostgreSQL the highest number of each older generation of these coupons to what Redis
 * has, and to what gateways have reported to it, before a rebuild replaces that. Gateways remember
 * the latest generation only, so the next loss of Redis would lose these numbers. The coupons are
 * held, and their new generations open. 0, or -1 when Redis or PostgreSQL failed.
 */
int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n);

/*
 * After Redis was restarted: opens coupons, at most KEEPER_PAGE, on the connected Redis process if
 * no numbers are missing there: lua/verify.lua. All of them take one statement and one round trip
 * to Redis. Each of `words` gets the reply of the script, empty when Redis failed or refused.
 * Before that, all rejected receives are marked as not freed, because Redis may have lost
 * that. 0, or -1 when PostgreSQL failed.
 */
int place_verify(struct keeper_context *context, const struct coupon_row *const *rows, size_t n,
		 char (*words)[REDIS_WORD_SIZE]);

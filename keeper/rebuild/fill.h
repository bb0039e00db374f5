/*
 * Fills the slots of a coupon under temporary names in Redis, in pieces (lua/fill.lua). A piece
 * occupies Redis for less than a millisecond. The filled keys expire unless they are put in place.
 * The keeper's thread.
 */
#pragma once

#include "coupon/slot.h"
#include "keeper/context.h"
#include "keeper/rebuild/snapshot.h"

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

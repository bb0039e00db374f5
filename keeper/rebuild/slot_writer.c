#include "keeper/rebuild/slot_writer.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/message/receive.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_ARGS 5
#define RECORD_SIZE (ULID_SIZE + RECEIVE_TAIL_MAX + 16)
#define LANES 4
#define LANE_WINDOW 3   /* pieces without a reply */
#define LANES_FROM 1024 /* slots that go over the keeper's own connection */

/* A connection for pieces that do not wait for each other. */
struct lane {
	struct redis_client *redis;
	int sent[LANE_WINDOW]; /* slots of the pieces without a reply, the oldest first */
	int sent_n;
};

struct slot_writer {
	struct keeper_context *context;
	char users[COUPON_KEY_SIZE], known[COUPON_KEY_SIZE], codes[COUPON_KEY_SIZE];
	enum slot_kind what;
	int64_t room;
	int64_t added;
	/* added of all kinds, if the pieces without a reply add all of theirs */
	int64_t past;
	struct lane lanes[LANES];
	int lanes_n;     /* of which are open */
	int lanes_tried; /* to open them */
	unsigned turn;   /* of the lanes */
	int n;
	struct user_id users_of[SLOT_WRITER_PIECE];
	char records[SLOT_WRITER_PIECE][RECORD_SIZE];
};

struct slot_writer *slot_writer_new(struct keeper_context *context, int64_t coupon,
				    int64_t generation)
{
	struct slot_writer *writer = calloc(1, sizeof(*writer));

	check(writer != NULL);
	writer->context = context;
	coupon_key_filling(coupon, generation, COUPON_KEY_USERS, writer->users);
	coupon_key_filling(coupon, generation, COUPON_KEY_KNOWN, writer->known);
	coupon_key_filling(coupon, generation, COUPON_KEY_CODES, writer->codes);
	return writer;
}

void slot_writer_free(struct slot_writer *writer)
{
	for (int i = 0; i < LANES; i++)
		redis_client_free(writer->lanes[i].redis);
	free(writer);
}

static const char *what_text(enum slot_kind what)
{
	switch (what) {
	case SLOT_ISSUED:
		return "issued";
	case SLOT_ISSUED_SINGLE:
		return "single";
	case SLOT_IN_FLIGHT:
		return "flight";
	}
	return "";
}

/* Takes the reply to a piece of `sent` slots. 0, or -1: Redis failed, or refused it. */
static int reply_take(struct slot_writer *writer, redisReply *reply, int sent)
{
	int rc = -1;

	if (reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
		writer->added += reply->integer;
		writer->past += reply->integer - sent;
		rc = 0;
	}
	if (reply)
		freeReplyObject(reply);
	return rc;
}

/* Takes the replies until at most `left` are missing. 0, or -1. */
static int lane_take(struct slot_writer *writer, struct lane *lane, int left)
{
	int rc = 0;

	while (lane->sent_n > left) {
		rc |= reply_take(writer, redis_client_next(lane->redis), lane->sent[0]);
		memmove(lane->sent, lane->sent + 1, (size_t)--lane->sent_n * sizeof(*lane->sent));
	}
	return rc;
}

/* Opens as many lanes as Redis allows; without any, all pieces go over the keeper's connection. */
static void lanes_open(struct slot_writer *writer)
{
	writer->lanes_tried = 1;
	for (; writer->lanes_n < LANES; writer->lanes_n++) {
		struct lane *lane = &writer->lanes[writer->lanes_n];

		lane->redis = redis_client_twin(writer->context->redis);
		if (redis_client_open(lane->redis))
			return;
		redis_client_prepare(lane->redis, lua_fill);
	}
}

/*
 * The lane for a piece, or NULL: the keeper's connection, and the next piece waits for the reply.
 * Of receives in flight the room of a piece depends on the reply to the one before. The first
 * pieces of all have created the keys, so that no other one may do so.
 */
static struct lane *lane_for(struct slot_writer *writer)
{
	if (writer->what == SLOT_IN_FLIGHT || writer->past < LANES_FROM)
		return NULL;
	if (!writer->lanes_tried)
		lanes_open(writer);
	return writer->lanes_n > 0 ? &writer->lanes[writer->turn++ % (unsigned)writer->lanes_n]
				   : NULL;
}

/* Sends a piece. 0, or -1: Redis failed, or refused this or an earlier piece. */
static int piece_call(struct slot_writer *writer, int argc, const char **argv)
{
	const char *keys[] = { writer->users, writer->known, writer->codes };
	struct lane *lane = lane_for(writer);

	writer->past += writer->n;
	if (!lane)
		return reply_take(writer,
				  redis_client_eval(writer->context->redis, lua_fill, 3, keys, argc,
						    argv),
				  writer->n);
	if (lane_take(writer, lane, LANE_WINDOW - 1))
		return -1;
	redis_client_append_eval(lane->redis, lua_fill, 3, keys, argc, argv);
	redis_client_flush(lane->redis);
	lane->sent[lane->sent_n++] = writer->n;
	return 0;
}

/* Sends the buffered slots. 0, or -1. */
static int piece_send(struct slot_writer *writer)
{
	const char *argv[HEAD_ARGS + 2 * SLOT_WRITER_PIECE];
	char fence[KEEPER_FENCE_SIZE], room[NUMBER_SIZE], lasts[NUMBER_SIZE], past[NUMBER_SIZE];
	int rc;

	fault_point(FAULT_REBUILD_FILLING);
	argv[0] = keeper_context_fence(writer->context, fence);
	argv[1] = what_text(writer->what);
	argv[2] = number_text(writer->room - writer->added, room);
	argv[3] = number_text(SLOT_WRITER_LASTS_MS, lasts);
	argv[4] = number_text(writer->past, past);
	for (int i = 0; i < writer->n; i++) {
		argv[HEAD_ARGS + 2 * i] = writer->users_of[i].text;
		argv[HEAD_ARGS + 2 * i + 1] = writer->records[i];
	}
	rc = piece_call(writer, HEAD_ARGS + 2 * writer->n, argv);
	writer->n = 0;
	return rc == 0 ? keeper_context_goes_on(writer->context) : -1;
}

int slot_writer_flush(struct slot_writer *writer)
{
	int rc = writer->n > 0 ? piece_send(writer) : 0;

	for (int i = 0; i < writer->lanes_n; i++)
		rc |= lane_take(writer, &writer->lanes[i], 0);
	return rc ? -1 : 0;
}

int slot_writer_begin(struct slot_writer *writer, enum slot_kind what, int64_t room)
{
	if (slot_writer_flush(writer))
		return -1;
	writer->what = what;
	writer->room = room;
	writer->added = 0;
	return 0;
}

int slot_writer_add(struct slot_writer *writer, const struct user_id *user, int slot,
		    const struct ulid *batch, int index, const char *tail)
{
	char ulid[ULID_SIZE];

	if (writer->n == SLOT_WRITER_PIECE && piece_send(writer))
		return -1;
	writer->users_of[writer->n] = *user;
	ulid_format(batch, ulid);
	snprintf(writer->records[writer->n], RECORD_SIZE, "%d:%s:%d:%s", slot, ulid, index, tail);
	writer->n++;
	return 0;
}

int slot_writer_is_full(const struct slot_writer *writer)
{
	return writer->added >= writer->room;
}

int64_t slot_writer_added(const struct slot_writer *writer)
{
	return writer->added;
}

#include "keeper/rebuild/slot_writer.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/message/receive.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>

#define HEAD_ARGS 5
#define RECORD_SIZE (ULID_SIZE + RECEIVE_TAIL_MAX + 16)

struct slot_writer {
	struct keeper_context *context;
	char users[COUPON_KEY_SIZE], known[COUPON_KEY_SIZE], codes[COUPON_KEY_SIZE];
	enum slot_kind what;
	int64_t room;
	int64_t added;
	int64_t past; /* added of all kinds */
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
	free(writer);
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

	if (writer->n == SLOT_WRITER_PIECE && slot_writer_flush(writer))
		return -1;
	writer->users_of[writer->n] = *user;
	ulid_format(batch, ulid);
	snprintf(writer->records[writer->n], RECORD_SIZE, "%d:%s:%d:%s", slot, ulid, index, tail);
	writer->n++;
	return 0;
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

int slot_writer_flush(struct slot_writer *writer)
{
	const char *argv[HEAD_ARGS + 2 * SLOT_WRITER_PIECE];
	char fence[KEEPER_FENCE_SIZE], room[NUMBER_SIZE], lasts[NUMBER_SIZE], past[NUMBER_SIZE];
	redisReply *reply;
	int rc = -1;

	if (writer->n == 0)
		return 0;
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
	reply = redis_client_eval(writer->context->redis, lua_fill, 3,
				  (const char *[]){ writer->users, writer->known, writer->codes },
				  HEAD_ARGS + 2 * writer->n, argv);
	if (reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
		writer->added += reply->integer;
		writer->past += reply->integer;
		rc = 0;
	}
	if (reply)
		freeReplyObject(reply);
	writer->n = 0;
	return rc == 0 ? keeper_context_goes_on(writer->context) : -1;
}

int slot_writer_is_full(const struct slot_writer *writer)
{
	return writer->added >= writer->room;
}

int64_t slot_writer_added(const struct slot_writer *writer)
{
	return writer->added;
}

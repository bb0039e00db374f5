#include "keeper/rebuild/fill.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/id.h"
#include "common/receive.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>

#define HEAD_ARGS 4
#define RECORD_SIZE (ULID_SIZE + RECEIVE_KEY_MAX + 16)

struct fill {
	struct keeper_view *view;
	char users[KEEPER_KEY_SIZE], known[KEEPER_KEY_SIZE];
	enum fill_what what;
	int64_t room;
	int64_t added;
	int64_t past; /* added of all kinds */
	int n;
	char ids[FILL_PIECE][ID_SIZE];
	char records[FILL_PIECE][RECORD_SIZE];
};

struct fill *fill_new(struct keeper_view *view, int64_t coupon, int64_t generation)
{
	struct fill *fill = calloc(1, sizeof(*fill));
	char suffix[48];

	check(fill != NULL);
	fill->view = view;
	snprintf(suffix, sizeof(suffix), ":fill:%lld:users", (long long)generation);
	keeper_key(coupon, suffix, fill->users);
	snprintf(suffix, sizeof(suffix), ":fill:%lld:known", (long long)generation);
	keeper_key(coupon, suffix, fill->known);
	return fill;
}

void fill_free(struct fill *fill)
{
	free(fill);
}

const char *fill_users(const struct fill *fill)
{
	return fill->users;
}

const char *fill_known(const struct fill *fill)
{
	return fill->known;
}

int fill_begin(struct fill *fill, enum fill_what what, int64_t room)
{
	if (fill_flush(fill))
		return -1;
	fill->what = what;
	fill->room = room;
	fill->added = 0;
	return 0;
}

int fill_add(struct fill *fill, int64_t user, int slot, const struct ulid *batch, int index,
	     const char *key)
{
	char ulid[ULID_SIZE];

	if (fill->n == FILL_PIECE && fill_flush(fill))
		return -1;
	id_format(user, fill->ids[fill->n]);
	ulid_format(batch, ulid);
	snprintf(fill->records[fill->n], RECORD_SIZE, "%d:%s:%d:%s", slot, ulid, index, key);
	fill->n++;
	return 0;
}

static const char *what_text(enum fill_what what)
{
	switch (what) {
	case FILL_ISSUED:
		return "issued";
	case FILL_SINGLE:
		return "single";
	case FILL_FLIGHT:
		return "flight";
	}
	return "";
}

int fill_flush(struct fill *fill)
{
	const char *argv[HEAD_ARGS + 2 * FILL_PIECE];
	char room[KEEPER_NUMBER_SIZE], lasts[KEEPER_NUMBER_SIZE], past[KEEPER_NUMBER_SIZE];
	redisReply *reply;
	int rc = -1;

	if (fill->n == 0)
		return 0;
	fault_point(FAULT_REBUILD_FILLING);
	argv[0] = what_text(fill->what);
	argv[1] = keeper_number(fill->room - fill->added, room);
	argv[2] = keeper_number(FILL_LASTS_MS, lasts);
	argv[3] = keeper_number(fill->past, past);
	for (int i = 0; i < fill->n; i++) {
		argv[HEAD_ARGS + 2 * i] = fill->ids[i];
		argv[HEAD_ARGS + 2 * i + 1] = fill->records[i];
	}
	reply = keeper_redis_eval(fill->view->redis, lua_fill, 2,
				  (const char *[]){ fill->users, fill->known },
				  HEAD_ARGS + 2 * fill->n, argv);
	if (reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
		fill->added += reply->integer;
		fill->past += reply->integer;
		rc = 0;
	}
	if (reply)
		freeReplyObject(reply);
	fill->n = 0;
	return rc == 0 ? keeper_view_goes_on(fill->view) : -1;
}

int64_t fill_added(const struct fill *fill)
{
	return fill->added;
}

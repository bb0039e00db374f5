#include "keeper/coupon_state.h"

#include "common/check.h"
#include "common/message/number.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_COMMANDS 5 /* for one coupon */
#define LOOK_FIELDS 12  /* of its hash */

int coupon_rebuild_is_due(const struct coupon_row *row)
{
	return row->rebuild_asked > row->rebuild_done;
}

int coupon_is_verified(const struct coupon_row *row, const struct coupon_look *look,
		       const char *run_id)
{
	return look->present && !look->broken && look->generation == row->generation &&
	       strcmp(look->run_id, run_id) == 0;
}

int64_t coupon_taken(const struct coupon_look *look)
{
	return look->total - look->stock - look->reserved - look->lost;
}

int coupon_lacks(const struct coupon_row *row, const struct coupon_look *look)
{
	return look->seq < look->reported || look->seq < row->seq_seen || look->seq < row->settled;
}

enum coupon_action coupon_action(const struct coupon_row *row, const struct coupon_look *look,
				 const char *run_id)
{
	if (look->broken)
		return coupon_rebuild_is_due(row) ? COUPON_REBUILD : COUPON_KEEP;
	if (!look->present) {
		if (row->generation > 0 || row->issued > 0 || look->users_n > 0 ||
		    look->outbox_n > 0)
			return COUPON_REBUILD;
		return row->status == COUPON_CLOSED ? COUPON_KEEP : COUPON_LOAD;
	}
	if (look->placeholder && row->generation == 0)
		return COUPON_REBUILD; /* its first load did not end */
	if (look->generation > row->generation)
		return coupon_rebuild_is_due(row) ? COUPON_REBUILD : COUPON_FOREIGN;
	if (look->generation < row->generation || look->placeholder || look->flagged ||
	    coupon_lacks(row, look))
		return COUPON_REBUILD;
	if (look->revocation < row->revocation)
		return COUPON_REVOKE;
	if (coupon_rebuild_is_due(row))
		return COUPON_COMPARE;
	if (strcmp(look->run_id, run_id) != 0)
		return COUPON_VERIFY;
	if (row->version > look->version)
		return COUPON_TERMS;
	/* Users are gone, or have left after the counts were read: then nothing differs. */
	return look->users_n * row->limit < coupon_taken(look) ? COUPON_COMPARE : COUPON_KEEP;
}

int coupon_adds_up(const struct coupon_row *row, const struct coupon_look *look, int64_t known)
{
	return coupon_taken(look) - look->seq == row->issued - row->settled + known;
}

const char *coupon_status_text(enum coupon_status status)
{
	static const char *const texts[] = {
		[COUPON_OPEN] = "open", [COUPON_PAUSED] = "paused", [COUPON_CLOSED] = "closed"
	};

	return texts[status];
}

void coupon_row_read(const PGresult *result, int i, struct coupon_row *row)
{
	const char *status = PQgetvalue(result, i, 1);

	*row = (struct coupon_row){
		.id = number_at(result, i, 0),
		.status = strcmp(status, "published") == 0 ? COUPON_OPEN
			  : strcmp(status, "paused") == 0  ? COUPON_PAUSED
							   : COUPON_CLOSED,
		.version = number_at(result, i, 2),
		.total = number_at(result, i, 3),
		.issued = number_at(result, i, 4),
		.limit = number_at(result, i, 5),
		.begin_ms = number_at(result, i, 6),
		.end_ms = number_at(result, i, 7),
		.generation = number_at(result, i, 8),
		.seq_seen = number_at(result, i, 9),
		.settled = number_at(result, i, 10),
		.rebuild_asked = number_at(result, i, 11),
		.rebuild_done = number_at(result, i, 12),
		.pending = *PQgetvalue(result, i, 13) == 't',
		.is_settled = *PQgetvalue(result, i, 14) == 't',
		.late = *PQgetvalue(result, i, 15) == 't',
		.revocation = number_at(result, i, 16),
	};
}

int coupon_page_read(struct coupon_page *page, struct keeper_database *database, int64_t after,
		     const int64_t *ids, size_t n)
{
	struct postgres_array array = { .type = POSTGRES_INT8 };
	PGresult *result;

	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&array, ids[i]);
	result = keeper_database_query(database, sql_query_coupon_page,
				       POSTGRES_ARGUMENTS(postgres_number(after),
							  postgres_number(KEEPER_PAGE),
							  n > 0 ? postgres_array(&array)
								: postgres_text(NULL)));
	postgres_array_fini(&array);
	if (!result)
		return -1;
	page->n = (size_t)PQntuples(result);
	check(page->n <= KEEPER_PAGE);
	for (size_t i = 0; i < page->n; i++)
		coupon_row_read(result, (int)i, &page->rows[i]);
	PQclear(result);
	return 0;
}

int coupon_page_expiring(struct coupon_page *page, struct keeper_database *database,
			 struct coupon_expiring *after)
{
	const struct postgres_argument arguments[] = {
		postgres_text(*after->at ? after->at : "-infinity"), postgres_number(after->coupon),
		postgres_number(KEEPER_PAGE)
	};
	PGresult *result = keeper_database_query(database, sql_query_coupon_expiring_page, 3,
						 arguments);
	int n;

	if (!result)
		return -1;
	n = PQntuples(result);
	check(n <= KEEPER_PAGE);
	page->n = (size_t)n;
	for (int i = 0; i < n; i++)
		page->rows[i] = (struct coupon_row){ .id = number_at(result, i, 0),
						     .status = COUPON_CLOSED,
						     .generation = number_at(result, i, 1),
						     .seq_seen = number_at(result, i, 2),
						     .is_settled = 1 };
	if (n > 0) {
		after->coupon = number_at(result, n - 1, 0);
		snprintf(after->at, sizeof(after->at), "%s", PQgetvalue(result, n - 1, 3));
	}
	PQclear(result);
	return 0;
}

/* Takes the reply to a command of look_append(). */
static void look_take(struct coupon_look *look, int command, const redisReply *reply)
{
	int64_t *const numbers[LOOK_FIELDS] = {
		NULL,        &look->version,     &look->generation, &look->fence,
		&look->seq,  &look->total,       &look->stock,      &look->reserved,
		&look->lost, &look->placeholder, &look->flagged,    &look->revocation
	};

	if (command == 0 && reply->type == REDIS_REPLY_ARRAY && reply->elements == LOOK_FIELDS) {
		const redisReply *run_id = reply->element[0];

		if (run_id->type == REDIS_REPLY_STRING)
			snprintf(look->run_id, sizeof(look->run_id), "%s", run_id->str);
		look->present = reply->element[2]->type == REDIS_REPLY_STRING;
		for (int i = 1; i < LOOK_FIELDS; i++)
			*numbers[i] = redis_reply_number(reply->element[i]);
	} else if (command == 1) {
		look->users_n = redis_reply_number(reply);
	} else if (command == 2) {
		look->outbox_n = redis_reply_number(reply);
	} else if (command == 3) {
		look->reported = redis_reply_number(reply);
	} else if (command == 4 && reply->type == REDIS_REPLY_STRING) {
		look->kept_version = strtoll(reply->str, NULL, 10);
	}
}

int coupon_page_look(struct coupon_page *page, struct redis_client *redis)
{
	memset(page->looks, 0, page->n * sizeof(page->looks[0]));
	for (size_t i = 0; i < page->n; i++) {
		char keys[5][COUPON_KEY_SIZE], generation[NUMBER_SIZE];
		/* LOOK_COMMANDS of them, whose replies look_take() takes. */
		const char *coupon[] = {
			"HMGET",      coupon_key(page->rows[i].id, COUPON_KEY_COUPON, keys[0]),
			"run_id",     "version",
			"generation", "fence",
			"seq",        "total",
			"stock",      "reserved",
			"lost",       "placeholder",
			"rebuild",    "revocation"
		};
		const char *users[] = { "HLEN",
					coupon_key(page->rows[i].id, COUPON_KEY_USERS, keys[1]) };
		const char *outbox[] = { "HLEN",
					 coupon_key(page->rows[i].id, COUPON_KEY_OUTBOX, keys[2]) };
		const char *seen[] = { "HGET",
				       coupon_key(page->rows[i].id, COUPON_KEY_SEEN, keys[3]),
				       number_text(page->rows[i].generation, generation) };
		const char *terms[] = { "GETRANGE",
					coupon_key(page->rows[i].id, COUPON_KEY_TERMS, keys[4]),
					"0", "20" };

		redis_client_append(redis, LOOK_FIELDS + 2, coupon);
		redis_client_append(redis, 2, users);
		redis_client_append(redis, 2, outbox);
		redis_client_append(redis, 3, seen);
		redis_client_append(redis, 4, terms);
	}
	for (size_t i = 0; i < page->n * LOOK_COMMANDS; i++) {
		struct coupon_look *look = &page->looks[i / LOOK_COMMANDS];
		redisReply *reply = redis_client_next(redis);

		if (!reply && !redis_client_is_open(redis))
			return -1;
		/* A key of a wrong type must not stop the keeper for the other coupons. */
		if (reply)
			look_take(look, (int)(i % LOOK_COMMANDS), reply);
		else
			look->broken = 1;
		freeReplyObject(reply);
	}
	return redis_client_is_open(redis) ? 0 : -1;
}

int coupon_known(struct redis_client *redis, int64_t coupon, int64_t *n)
{
	char key[COUPON_KEY_SIZE];
	const char *scard[] = { "SCARD", coupon_key(coupon, COUPON_KEY_KNOWN, key) };

	return redis_client_integer(redis, 2, scard, n);
}

/*
 * Redis has the terms twice: the whole row of the coupon, as the keeper copied it, and those by
 * which it decides. Either may be newer: couponctl changes the latter by itself, and a draft has
 * the former only.
 */
#include "ctl/recover/terms.h"

#include "ctl/recover/report.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

/* "VERSION JSON". The reply, to be freed, with the JSON in `*json`; NULL there: it has none. */
static redisReply *row_read(const struct recover_coupon *coupon, const char **json)
{
	char key[COUPON_KEY_SIZE];
	const char *get[] = { "GET", coupon_key(coupon->id, COUPON_KEY_TERMS, key) };
	redisReply *reply = redis_client_call(coupon->recover->redis, 2, get);

	store_redis_check(coupon->recover->redis, reply != NULL);
	*json = reply->type == REDIS_REPLY_STRING ? strchr(reply->str, ' ') : NULL;
	return reply;
}

static PGresult *row_apply(const struct recover_coupon *coupon, const char *json)
{
	char id[DB_NUMBER_SIZE];

	return db_query(coupon->recover->db, sql_query_recover_terms, 2,
			(const char *[]){ db_number(coupon->id, id), json });
}

static PGresult *hash_apply(const struct recover_coupon *coupon)
{
	char numbers[6][DB_NUMBER_SIZE];
	const char *params[] = {
		db_number(coupon->id, numbers[0]),       coupon->status,
		db_number(coupon->total, numbers[1]),    db_number(coupon->limit, numbers[2]),
		db_number(coupon->begin_ms, numbers[3]), db_number(coupon->end_ms, numbers[4]),
		db_number(coupon->version, numbers[5]),
	};

	return db_query(coupon->recover->db, sql_query_recover_terms_hash, 7, params);
}

/* What a statement has done; it has no row when it did nothing. */
static void result_note(const PGresult *result, int *is_new, int *is_changed, char version[32])
{
	if (PQntuples(result) == 0)
		return;
	if (strcmp(db_text(result, 0, "is_new"), "t") == 0)
		*is_new = 1;
	else
		*is_changed = 1;
	snprintf(version, 32, "version %s", db_text(result, 0, "version"));
}

void terms_restore(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;
	int is_new = 0, is_changed = 0, is_guess;
	char version[32] = "";
	const char *json;
	redisReply *reply = row_read(coupon, &json);
	PGresult *result;

	if (json) {
		result = row_apply(coupon, json + 1);
		result_note(result, &is_new, &is_changed, version);
		PQclear(result);
	}
	freeReplyObject(reply);
	is_guess = !is_new;
	if (coupon->has_hash) {
		result = hash_apply(coupon);
		result_note(result, &is_new, &is_changed, version);
		PQclear(result);
	}
	recover->counts.created += is_new;
	recover->counts.changed += !is_new && is_changed;
	if (is_new && is_guess)
		report_coupon(recover, "created", coupon->id,
			      "but its name and its validity are not known: check both");
	else if (is_new || is_changed)
		report_coupon(recover, is_new ? "created" : "changed", coupon->id, version);
}

void terms_keep(struct recover_coupon *coupon)
{
	char id[DB_NUMBER_SIZE], version_text[DB_NUMBER_SIZE];
	const char *json;
	redisReply *reply = row_read(coupon, &json);
	int64_t version = coupon->version, copied;

	if (json) {
		reply->str[json - reply->str] = '\0';
		if (number_parse(reply->str, INT32_MAX, &copied) == 0 && copied > version)
			version = copied;
	}
	freeReplyObject(reply);
	PQclear(db_query(coupon->recover->db, sql_query_coupon_version_raise, 2,
			 (const char *[]){ db_number(coupon->id, id),
					   db_number(version + 1, version_text) }));
}

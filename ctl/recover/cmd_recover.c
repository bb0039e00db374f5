/*
 * couponctl recover. PostgreSQL was put back to an earlier moment; Redis has what it lost:
 *
 *	0. Redis follows this server: nothing is removed there by workers of another one
 *	1. hold every coupon in Redis
 *	2. PostgreSQL: the keeper's fence above those in Redis; the sequence of ids, too
 *	3. for each coupon: bring back what Redis has, or give it up; open a new generation;
 *	   then what orders have done with receives
 *	4. PostgreSQL: the numbers of change_count above those in Redis
 *
 * Until 4 PostgreSQL is behind Redis: workers settle nothing, the keeper holds all coupons, and
 * other commands refuse changes. The session does not count its own transactions, or 3 could end
 * that. Each step may be repeated, so a run that was interrupted anywhere is finished by the next
 * one. After 4 the keeper rebuilds the coupons under their new generations, and opens them.
 *
 * API keys have numbers of their own, and are brought back first, in one transaction: also when
 * nothing else was lost, and when all else is given up, for a key that only Redis has would stay
 * good, and no list would show it.
 *
 * With --tail nothing is done unless settle() has written all that is missing. Then terms, ids,
 * generations, revocations and keys are left as they are: a worker, whose keeper runs this, may not
 * change them.
 */
#include "ctl/recover/recover.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "coupon:{"
#define ALWAYS "0:9007199254740991" /* the hold is right at any time */
/*
 * The sequence gives ids one after the other. An id of Redis at most this far above the last one
 * came from it; one further away, such as a snowflake, was chosen by the operator.
 */
#define IDS_GAP 100000

void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail)
{
	cJSON *object = output_object();

	progress_hide(&recover->progress);
	output_text(object, "what", what);
	output_id(object, "coupon", coupon);
	output_text(object, "detail", detail);
	output_say(object, "{what}: coupon {coupon}[detail , {detail}]\n", recover->is_json);
}

static const char end_template[] =
	"coupons in Redis: {coupons}, created in PostgreSQL {created}, terms changed {changed}, "
	"deleted in Redis {deleted}; in PostgreSQL alone, left as they are: {left}\n"
	"receives: brought back {receives}, there already {receives_there}, rejected "
	"{receives_rejected}, lost {receives_lost}\n"
	"earlier rejections: brought back {rejections}, there already {rejections_there}\n"
	"uses of receives: brought back {uses}, lost {uses_lost}\n"
	"API keys: brought back {keys_created}, changed {keys_changed}, revoked {keys_revoked}, to "
	"be told to Redis {keys_told}\n"
	"[unreadable unreadable records in Redis: {unreadable}\n]"
	"[dry_run nothing was changed; looked][!dry_run recovered]";

static void report_end(struct recover *recover, int64_t ms)
{
	cJSON *object = output_object();

	progress_end(&recover->progress);
	output_text(object, "what", "end");
	output_bool(object, "dry_run", recover->is_dry);
#define COUNT(name) output_number(object, #name, recover->counts.name);
	RECOVER_COUNTS
#undef COUNT
	output_number(object, "ms", ms);
	output_say(object, end_template, recover->is_json);
	if (!recover->is_json)
		printf(" in %.1f s\n", (double)ms / 1000);
}

static void recover_coupon_read(struct recover_coupon *coupon, struct recover *recover, int64_t id)
{
	redisReply *hash = store_reply(recover->redis, coupon_call(recover->redis, id, "HGETALL",
								   COUPON_KEY_COUPON, NULL));

	*coupon = (struct recover_coupon){ .recover = recover, .id = id };
	redis_coupon_parse(&coupon->hash, hash);
	coupon->has_hash = hash->elements > 0 && !coupon->hash.placeholder;
	if (coupon->has_hash)
		generations_raise(&coupon->generations, hash, NULL);
	freeReplyObject(hash);
}

static void recover_coupon_fini(struct recover_coupon *coupon)
{
	generations_fini(&coupon->generations);
	free(coupon->settled.list);
	free(coupon->outbox.list);
}

/*
 * Redis has the terms twice: the whole row of the coupon, as the keeper copied it, and those by
 * which it decides. Either may be newer: couponctl changes the latter by itself, and a draft has
 * the former only. This reads the row, "VERSION JSON": the reply, to be freed, with the JSON in
 * `*json`; NULL there: it has none.
 */
static redisReply *row_read(const struct recover_coupon *coupon, char **json)
{
	struct redis_client *redis = coupon->recover->redis;
	redisReply *reply = store_reply(redis, coupon_call(redis, coupon->id, "GET",
							   COUPON_KEY_TERMS, NULL));

	*json = reply->type == REDIS_REPLY_STRING ? strchr(reply->str, ' ') : NULL;
	return reply;
}

#define TOLD_SIZE 80

/* Takes what a statement has done, to be reported. It returns no row when it did nothing. */
static void result_take(PGresult *result, int *is_new, char told[TOLD_SIZE])
{
	if (PQntuples(result) > 0) {
		*is_new |= db_is_true(result, 0, "is_new");
		snprintf(told, TOLD_SIZE, "version %s%s", column_text(result, 0, "version"),
			 PQfnumber(result, "is_guess") >= 0 && db_is_true(result, 0, "is_guess")
				 ? ", but its validity is not known: check it"
				 : "");
	}
	PQclear(result);
}

/* Creates the coupon in PostgreSQL, or gives it the terms that Redis has if they are newer. */
static void terms_restore(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;
	const struct redis_coupon *hash = &coupon->hash;
	int is_new = 0, is_guess;
	char told[TOLD_SIZE] = "", *json; /* "": nothing has changed */
	redisReply *reply = row_read(coupon, &json);

	if (json)
		result_take(db_ask(recover->db, sql_query_recover_terms,
				   postgres_number(coupon->id), postgres_text(json + 1)),
			    &is_new, told);
	freeReplyObject(reply);
	is_guess = !is_new;
	if (coupon->has_hash)
		result_take(db_ask(recover->db, sql_query_recover_terms_hash,
				   postgres_number(coupon->id), postgres_text(hash->status),
				   postgres_number(hash->total), postgres_number(hash->limit),
				   postgres_number(hash->begin_ms), postgres_number(hash->end_ms),
				   postgres_number(hash->version)),
			    &is_new, told);
	recover->counts.created += is_new;
	recover->counts.changed += !is_new && *told;
	if (is_new && is_guess)
		report_coupon(recover, "created", coupon->id,
			      "but its name and its validity are not known: check both");
	else if (*told)
		report_coupon(recover, is_new ? "created" : "changed", coupon->id, told);
}

/* The highest version of the terms that Redis has. */
static int64_t terms_version(const struct recover_coupon *coupon)
{
	int64_t version = coupon->hash.version, copied;
	char *json;
	redisReply *reply = row_read(coupon, &json);

	if (json) {
		*json = '\0';
		if (number_parse(reply->str, INT32_MAX, &copied) == 0 && copied > version)
			version = copied;
	}
	freeReplyObject(reply);
	return version;
}

/* With --tail: ends the process if PostgreSQL lacks anything of the coupon beside receives. */
static void tail_need(struct recover_coupon *coupon)
{
	PGresult *row = db_ask(coupon->recover->db, sql_query_recover_tail,
			       postgres_number(coupon->id));
	const char *what = NULL;

	if (PQntuples(row) == 0)
		what = "the coupon";
	else if (column_number(row, 0, "version") < terms_version(coupon))
		what = "its terms";
	else if (column_number(row, 0, "generation") < coupon->hash.generation)
		what = "its generation";
	else if (column_number(row, 0, "revocation_num") < coupon->hash.revocation)
		what = "a revocation of its codes";
	else
		coupon->settling = column_number(row, 0, "generation");
	PQclear(row);
	if (what)
		TAIL_REFUSE("of coupon %lld more is missing than receives: %s",
			    (long long)coupon->id, what);
}

/* PostgreSQL does not have the coupon: all its keys are removed, if it is given up. */
static void coupon_miss(struct recover_coupon *coupon)
{
	const char *unlink[1 + COUPON_KEYS_MAX] = { "UNLINK" };
	struct recover *recover = coupon->recover;
	struct coupon_keys keys;
	int64_t n;

	if (!recover->gives_up) {
		recover->counts.unreadable++;
		report_coupon(recover, "unreadable", coupon->id, "Redis does not have its terms");
		return;
	}
	receives_name(coupon);
	recover->counts.deleted++;
	report_coupon(recover, "deleted", coupon->id, "PostgreSQL does not have it");
	if (recover->is_dry)
		return;
	coupon_keys_make(&keys, coupon->id, COUPON_KEYS_ALL);
	memcpy(unlink + 1, keys.names, sizeof(keys.names));
	store_redis_check(recover->redis,
			  redis_client_integer(recover->redis, 1 + keys.n, unlink, &n) == 0);
}

/*
 * Step 1. Stops issuing, as the keeper does while PostgreSQL is behind, with the fence that each
 * coupon has: it is no keeper's. Removes the expiry of a coupon that is over: nothing of it may
 * vanish meanwhile. Returns the highest fence.
 */
static int64_t coupons_hold(struct recover *recover)
{
	struct redis_client *redis = recover->redis;
	int64_t highest = 0;

	for (size_t i = 0; i < recover->ids_n; i++) {
		char fence[3 * NUMBER_SIZE], generation[NUMBER_SIZE];
		const char *argv[] = { fence, generation };
		struct recover_coupon coupon;
		redisReply *users;

		recover_coupon_read(&coupon, recover, recover->ids[i]);
		for (unsigned which = 1; which <= COUPON_KEYS_ALL && !recover->is_dry; which <<= 1)
			freeReplyObject(
				store_reply(redis, coupon_call(redis, coupon.id, "PERSIST",
							       (enum coupon_key)which, NULL)));
		if (coupon.hash.generation > 0 && !recover->is_dry) {
			snprintf(fence, sizeof(fence), "%lld:" ALWAYS,
				 (long long)coupon.hash.fence);
			number_text(coupon.hash.generation, generation);
			freeReplyObject(
				store_reply(redis,
					    redis_client_coupon_eval(redis, lua_hold, coupon.id,
								     COUPON_KEYS_ISSUE, 2, argv)));
		}
		if (coupon.hash.fence > highest)
			highest = coupon.hash.fence;
		users = store_reply(redis,
				    coupon_call(redis, coupon.id, "HLEN", COUPON_KEY_USERS, NULL));
		recover->users_n += redis_reply_number(users);
		freeReplyObject(users);
		recover_coupon_fini(&coupon);
	}
	return highest;
}

/*
 * Step 3 for one coupon. Each of these is committed by itself, or none of them if nothing is to be
 * changed, and may be repeated:
 *
 *	recover --all     terms ─▶ generation as in Redis ─▶ rejections ─▶ receives, by settle()
 *	                  ─▶ counts, and a new generation
 *	recover --tail    rejections ─▶ receives, by settle() ─▶ counts, and a new generation
 *	--accept-loss     version above that of Redis ─▶ generation as in Redis ─▶ rejections
 *	                  ─▶ receives, by receive_lost() ─▶ counts, and a new generation
 *
 * The new generation makes the keeper rebuild the coupon in Redis from PostgreSQL.
 */
static void coupon_run(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;
	struct db *db = recover->db;
	struct postgres_array numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };

	if (recover->tail_max) {
		tail_need(coupon);
	} else {
		PGresult *begun;
		int is_there;

		if (!recover->gives_up)
			terms_restore(coupon);
		fault_point(FAULT_RECOVER_TERMS);
		begun = db_ask(db, sql_query_recover_begin, postgres_number(coupon->id),
			       postgres_number(coupon->hash.generation));
		is_there = !db_is_null(begun, 0, "generation");
		coupon->settling = column_number(begun, 0, "generation");
		PQclear(begun);
		db_do(db, sql_query_recover_revocation, postgres_number(coupon->id),
		      postgres_number(coupon->hash.revocation));
		if (!is_there) {
			coupon_miss(coupon);
			return;
		}
	}
	db_do(db, sql_query_recover_revocation_cut, postgres_number(coupon->id),
	      postgres_number(coupon->settling));
	if (coupon->settling == 0) /* a draft, or published and not loaded */
		return;

	/* Above the version in Redis: PostgreSQL's terms apply there. */
	if (recover->gives_up)
		db_do(db, sql_query_coupon_version_raise, postgres_number(coupon->id),
		      postgres_number(terms_version(coupon)));
	rejected_restore(coupon);
	fault_point(FAULT_RECOVER_REJECTED);
	receives_restore(coupon);
	fault_point(FAULT_RECOVER_SETTLED);

	generations_arrays(&coupon->generations, &numbers, &highs);
	/* What Redis has reserved is in flight, and has no slot there. */
	db_do(db, sql_query_recover_end, postgres_number(coupon->id),
	      postgres_number(coupon->hash.generation), postgres_array(&numbers),
	      postgres_array(&highs), postgres_number(coupon->own_owed),
	      postgres_number(coupon->older_owed + coupon->hash.reserved));
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);
	fault_point(FAULT_RECOVER_OPENED);
}

/*
 * With --tail: ends the process if an operator has to decide. The numbers tell of each change that
 * Redis has acted on; the coupons are looked at in case one was not counted.
 */
static void tail_check(struct recover *recover)
{
	const struct changes *changes = &recover->changes, *copy = &recover->copy;
	int64_t behind = changes_behind(changes, copy),
		others = changes_behind_others(changes, copy);

	if (strcmp(changes->server.system, copy->server.system) != 0)
		TAIL_REFUSE("this is no promoted standby, but a server of another cluster than the "
			    "one that Redis follows");
	if (others > 0)
		TAIL_REFUSE("%lld of the %lld missing transactions did not settle receives",
			    (long long)others, (long long)behind);
	if (behind > recover->tail_max)
		TAIL_REFUSE("%lld transactions are missing, more than %lld", (long long)behind,
			    (long long)recover->tail_max);
	for (size_t i = 0; i < recover->ids_n; i++) {
		struct recover_coupon coupon;

		recover_coupon_read(&coupon, recover, recover->ids[i]);
		tail_need(&coupon);
		recover_coupon_fini(&coupon);
	}
}

/* All steps, from 1 to 4. */
static void all_run(struct recover *recover)
{
	int64_t fence, begun_ms = clock_monotonic_ms();
	struct postgres_array held = { .type = POSTGRES_INT8 };
	struct db *db = recover->db;
	PGresult *rows;

	fence = coupons_hold(recover);
	fault_point(FAULT_RECOVER_HELD);

	if (!recover->is_dry) {
		recover_uses_begin(recover);
		db_do(db, sql_query_recover_fence, postgres_number(fence));
	}
	if (!recover->is_dry && !recover->tail_max) {
		int64_t from = db_value(db, sql_query_recover_id_last), last = from;

		for (size_t i = 0; i < recover->ids_n; i++)
			if (recover->ids[i] > last && recover->ids[i] - last <= IDS_GAP)
				last = recover->ids[i];
		if (last > from)
			db_do(db, sql_query_recover_ids, postgres_number(last - from));
	}
	fault_point(FAULT_RECOVER_FENCED);

	for (size_t i = 0; i < recover->ids_n; i++) {
		struct recover_coupon coupon;

		recover_coupon_read(&coupon, recover, recover->ids[i]);
		if (recover->is_dry)
			db_run(db, "BEGIN");
		coupon_run(&coupon);
		if (recover->is_dry)
			db_run(db, "ROLLBACK");
		recover_coupon_fini(&coupon);
		recover->counts.coupons++;
	}
	recover_uses(recover);

	/* Names the coupons of PostgreSQL that Redis does not hold, unless they are over. */
	for (size_t i = 0; i < recover->ids_n; i++)
		postgres_array_add_number(&held, recover->ids[i]);
	rows = db_ask(db, sql_query_recover_left, postgres_array(&held));
	recover->counts.left = PQntuples(rows);
	for (int row = 0; row < PQntuples(rows); row++)
		if (!db_is_true(rows, row, "is_settled"))
			report_coupon(recover, "left", column_number(rows, row, "id"),
				      column_text(rows, row, "status"));
	PQclear(rows);
	postgres_array_fini(&held);
	fault_point(FAULT_RECOVER_BEFORE_END);

	if (!recover->is_dry) {
		struct postgres_array stripes = { .type = POSTGRES_INT2 },
				      numbers = { .type = POSTGRES_INT8 };
		char server[SERVER_TEXT_SIZE];
		struct changes copy;
		const char *how = recover->tail_max   ? "tail"
				  : recover->gives_up ? "accept-loss"
						      : "all";

		/* Step 4. */
		store_redis_check(recover->redis, changes_copy_read(&copy, recover->redis) == 0);
		for (int i = 0; i < CHANGES_STRIPES; i++) {
			postgres_array_add_number(&stripes, i);
			postgres_array_add_number(&numbers, copy.num[i]);
		}
		db_do(recover->db, sql_query_recover_done, postgres_array(&stripes),
		      postgres_array(&numbers), postgres_text(how),
		      postgres_number(changes_behind(&recover->changes, &recover->copy)),
		      postgres_text(server_text(&recover->changes.server, server)),
		      postgres_text(copy.former));
		postgres_array_fini(&stripes);
		postgres_array_fini(&numbers);
	}
	report_end(recover, clock_monotonic_ms() - begun_ms);
	free(recover->ids);
}

static int recover_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int is_unsure = args_has(args, "accept-loss") && !args_has(args, "yes");
	struct recover recover = { .gives_up = args_has(args, "accept-loss"),
				   .is_dry = args_has(args, "dry-run") || is_unsure,
				   .tail_max = args_number(args, "tail", 1, INT32_MAX, 0),
				   .is_json = args_has(args, "json") };
	enum follow follow = args_has(args, "this-server") ? FOLLOW_ANY
			     : recover.tail_max            ? FOLLOW_NEWER
							   : FOLLOW_OTHER;
	int64_t behind;
	int has_lost_keys;

	if (args_has(args, "all") + recover.gives_up + (recover.tail_max > 0) != 1)
		args_fail("recover takes one of --all, --tail and --accept-loss");
	recover.db = store_postgres_open(ctl);
	recover.redis = store_redis_open(ctl);
	if (!args_has(args, "this-server"))
		store_server_find(recover.db, recover.redis);
	if (!db_lock_try(recover.db, "recover"))
		log_fatal_as(CTL_AWAY, "another couponctl recover is running");
	db_do(recover.db, sql_query_recover_session);
	/* What --tail refuses is tried again for hours by a keeper, and is no change. */
	if (!recover.is_dry && !recover.tail_max)
		store_by_set(recover.db, ctl);
	behind = behind_read_any(recover.db, recover.redis, follow, recover.is_dry,
				 &recover.changes, &recover.copy);
	store_redis_check(recover.redis, behind >= 0);
	if (behind > 0) {
		char cursor[REDIS_CURSOR_SIZE] = "0";
		const char *scan[] = { "SCAN", cursor, "MATCH", PREFIX "*", "COUNT", "1000" };

		/* The ids of the coupons that Redis holds. */
		do {
			redisReply *reply = store_reply(recover.redis,
							redis_client_call(recover.redis, 6, scan));

			snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
			for (size_t i = 0; i < reply->element[1]->elements; i++) {
				const char *first = reply->element[1]->element[i]->str +
						    strlen(PREFIX);
				const char *end = strchr(first, '}');
				int64_t id;

				if (!end || id_parse(first, (size_t)(end - first), &id))
					continue;
				recover.ids = array_room(recover.ids, recover.ids_n,
							 &recover.ids_size, sizeof(id));
				recover.ids[recover.ids_n++] = id;
			}
			freeReplyObject(reply);
		} while (strcmp(cursor, "0") != 0);
		recover.ids_n = numbers_unique(recover.ids, recover.ids_n);
	}
	if (behind > 0 && recover.tail_max)
		tail_check(&recover);
	has_lost_keys = recover_keys(&recover);
	if (!recover.is_dry && recover.tail_max)
		store_by_set(recover.db, ctl);
	if (behind > 0)
		all_run(&recover);
	else if (recover.is_json || has_lost_keys)
		report_end(&recover, 0);
	else
		puts("nothing to recover: PostgreSQL is not behind Redis");
	redis_client_free(recover.redis);
	db_close(recover.db);
	if (behind > 0 && is_unsure && !args_has(args, "dry-run"))
		log_fatal("nothing was given up, because --yes is missing");
	return 0;
}

const struct command recover_command = {
	.name = "recover",
	.run = recover_run,
	.options = OPTIONS(
		SWITCH("all", "bring back every receive that Redis holds"),
		OPTION("tail", "N",
		       "bring back what a promoted standby lacks, if it is at most N transactions, "
		       "and each of them has settled receives"),
		SWITCH("accept-loss", "name each receive that PostgreSQL has lost, and give it up"),
		SWITCH("yes",
		       "with --accept-loss: do it; without it, only print what would be lost"),
		SWITCH("this-server",
		       "this PostgreSQL is an old primary, and takes the place of the one that "
		       "Redis follows"),
		SWITCH("dry-run",
		       "do the same in transactions that are rolled back, and change nothing"),
		BY_OPTION),
	.summary = "recover after PostgreSQL was put back to an earlier moment",
	.detail =
		"Needs --all, --tail or --accept-loss. As long as PostgreSQL is behind Redis,\n"
		"nothing is issued or settled, and changes are refused. --all restores coupons,\n"
		"terms, rejections and receives from Redis, each receive with its id, slot, key\n"
		"and validity. Then the keeper opens the coupons again. After an interruption run\n"
		"it again. Not behind: nothing is done, and the exit status is 0.\n"
		"\n"
		"--tail is what the keeper does with COUPON_RECOVER=auto. Where an operator's\n"
		"change, an API key or more than N transactions are missing, it changes nothing,\n"
		"and the exit status is 11.\n"
		"\n"
		"--accept-loss keeps what PostgreSQL has, and records the receives that it lost\n"
		"as rejected (lost), except those whose messages still exist. Coupons that\n"
		"PostgreSQL does not have are deleted in Redis.",
};

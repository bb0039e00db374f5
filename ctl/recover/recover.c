/*
 * couponctl recover. PostgreSQL was put back to an earlier moment; Redis has what it lost:
 *
 *	1. hold every coupon in Redis
 *	2. PostgreSQL: the keeper's fence above those in Redis; the sequence of ids, too
 *	3. for each coupon: bring back what Redis has, or give it up; open a new generation
 *	4. PostgreSQL: the numbers of change_count above those in Redis
 *
 * Until 4 PostgreSQL is behind Redis: workers settle nothing, the keeper holds all coupons, and
 * other commands refuse changes. The session does not count its own transactions, or 3 could end
 * that. Each step may be repeated, so a run that was interrupted anywhere is finished by the next
 * one. After 4 the keeper rebuilds the coupons under their new generations, and opens them.
 */
#include "ctl/recover/recover.h"

#include "common/changes.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail)
{
	cJSON *object;

	progress_hide(&recover->progress);
	if (!recover->is_json) {
		printf("%s: coupon %" PRId64 "%s%s\n", what, coupon, detail ? ", " : "",
		       detail ? detail : "");
		return;
	}
	object = output_object();
	output_text(object, "what", what);
	output_id(object, "coupon", coupon);
	output_text(object, "detail", detail);
	output_print(object);
}

void report_receive(struct recover *recover, const char *what, int64_t coupon,
		    const struct slot *slot, const char *reason)
{
	char text[RECEIVE_SIZE];
	cJSON *object;

	progress_hide(&recover->progress);
	slot_receive_format(slot, coupon, text);
	if (!recover->is_json) {
		printf("%s: receive %s, user %s, slot %d%s%s\n", what, text, slot->user.text,
		       slot->number, reason ? ": " : "", reason ? reason : "");
		return;
	}
	object = output_object();
	output_text(object, "what", what);
	output_text(object, "receive", text);
	output_id(object, "coupon", coupon);
	output_text(object, "user", slot->user.text);
	output_number(object, "slot", slot->number);
	output_text(object, "reason", reason);
	output_print(object);
}

static void json_print(const struct recover *recover, int64_t ms)
{
	const struct recover_counts *counts = &recover->counts;
	cJSON *object = output_object();

	output_text(object, "what", "end");
	output_bool(object, "dry_run", recover->is_dry);
	output_number(object, "coupons", counts->coupons);
	output_number(object, "created", counts->created);
	output_number(object, "changed", counts->changed);
	output_number(object, "deleted", counts->deleted);
	output_number(object, "left", counts->left);
	output_number(object, "receives", counts->receives);
	output_number(object, "receives_there", counts->receives_there);
	output_number(object, "receives_rejected", counts->receives_rejected);
	output_number(object, "receives_lost", counts->receives_lost);
	output_number(object, "rejections", counts->rejections);
	output_number(object, "rejections_there", counts->rejections_there);
	output_number(object, "unreadable", counts->unreadable);
	output_number(object, "ms", ms);
	output_print(object);
}

static void report_end(struct recover *recover, int64_t ms)
{
	const struct recover_counts *counts = &recover->counts;

	progress_end(&recover->progress);
	if (recover->is_json) {
		json_print(recover, ms);
		return;
	}
	printf("coupons in Redis: %" PRId64 ", created in PostgreSQL %" PRId64
	       ", terms changed %" PRId64 ", deleted in Redis %" PRId64
	       "; in PostgreSQL alone, left as they are: %" PRId64 "\n",
	       counts->coupons, counts->created, counts->changed, counts->deleted, counts->left);
	printf("receives: brought back %" PRId64 ", there already %" PRId64 ", rejected %" PRId64
	       ", lost %" PRId64 "\n",
	       counts->receives, counts->receives_there, counts->receives_rejected,
	       counts->receives_lost);
	printf("earlier rejections: brought back %" PRId64 ", there already %" PRId64 "\n",
	       counts->rejections, counts->rejections_there);
	if (counts->unreadable > 0)
		printf("unreadable records in Redis: %" PRId64 "\n", counts->unreadable);
	printf("%s in %.1f s\n", recover->is_dry ? "nothing was changed; looked" : "recovered",
	       (double)ms / 1000);
}

/*
 * The steps for one coupon. Each is committed by itself, or none of them if nothing is to be
 * changed, and may be repeated:
 *
 *	recover --all     terms ─▶ generation as in Redis ─▶ rejections ─▶ receives, by settle()
 *	                  ─▶ counts, and a new generation
 *	--accept-loss     version above that of Redis ─▶ generation as in Redis ─▶ rejections
 *	                  ─▶ receives, by receive_lost() ─▶ counts, and a new generation
 *
 * The new generation makes the keeper rebuild the coupon in Redis from PostgreSQL.
 */

/* Whether PostgreSQL has the coupon. */
static int generation_begin(struct recover_coupon *coupon)
{
	struct db *db = coupon->recover->db;
	PGresult *result = db_ask(db, sql_query_recover_begin, postgres_number(coupon->id),
				  postgres_number(coupon->hash.generation));
	int is_there = !db_is_null(result, 0, "generation");

	coupon->settling = db_int(result, 0, "generation");
	PQclear(result);
	db_do(db, sql_query_recover_revocation, postgres_number(coupon->id),
	      postgres_number(coupon->hash.revocation), postgres_number(coupon->settling));
	return is_there;
}

static void generation_end(struct recover_coupon *coupon)
{
	struct postgres_array numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	/* What Redis has reserved is in flight, and has no slot there. */
	int64_t older_owed = coupon->older_owed + coupon->hash.reserved;

	generations_arrays(&coupon->generations, &numbers, &highs);
	db_do(coupon->recover->db, sql_query_recover_end, postgres_number(coupon->id),
	      postgres_number(coupon->hash.generation), postgres_array(&numbers),
	      postgres_array(&highs), postgres_number(coupon->own_owed),
	      postgres_number(older_owed));
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);
}

/* PostgreSQL does not have the coupon. */
static void coupon_miss(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;

	if (!recover->gives_up) {
		recover->counts.unreadable++;
		report_coupon(recover, "unreadable", coupon->id, "Redis does not have its terms");
		return;
	}
	receives_name(coupon);
	recover->counts.deleted++;
	report_coupon(recover, "deleted", coupon->id, "PostgreSQL does not have it");
	if (!recover->is_dry)
		recover_coupon_delete(coupon);
}

static void coupon_run(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;

	if (!recover->gives_up)
		terms_restore(coupon);
	fault_point(FAULT_RECOVER_TERMS);
	if (!generation_begin(coupon)) {
		coupon_miss(coupon);
		return;
	}
	if (coupon->settling == 0) /* a draft, or published and not loaded */
		return;
	if (recover->gives_up)
		terms_keep(coupon);
	rejected_restore(coupon);
	fault_point(FAULT_RECOVER_REJECTED);
	if (recover->gives_up)
		receives_give_up(coupon);
	else
		receives_settle(coupon);
	fault_point(FAULT_RECOVER_SETTLED);
	generation_end(coupon);
	fault_point(FAULT_RECOVER_OPENED);
}

static void recover_coupon_run(struct recover *recover, int64_t id)
{
	struct recover_coupon coupon;

	recover_coupon_read(&coupon, recover, id);
	if (recover->is_dry)
		db_run(recover->db, "BEGIN");
	coupon_run(&coupon);
	if (recover->is_dry)
		db_run(recover->db, "ROLLBACK");
	recover_coupon_fini(&coupon);
	recover->counts.coupons++;
}

/*
 * The sequence gives ids one after the other. An id of Redis at most this far above the last one
 * came from it; one further away, such as a snowflake, was chosen by the operator.
 */
#define IDS_GAP 100000

/* Step 1. Returns the highest fence. */
static int64_t coupons_hold(struct recover *recover, const int64_t *ids, size_t n)
{
	int64_t fence = 0;

	for (size_t i = 0; i < n; i++) {
		struct recover_coupon coupon;

		recover_coupon_read(&coupon, recover, ids[i]);
		if (!recover->is_dry)
			recover_coupon_hold(&coupon);
		if (coupon.hash.fence > fence)
			fence = coupon.hash.fence;
		recover->users_n += recover_coupon_users(&coupon);
		recover_coupon_fini(&coupon);
	}
	return fence;
}

static void ids_advance(struct recover *recover, const int64_t *ids, size_t n)
{
	PGresult *result = db_ask(recover->db, sql_query_recover_id_last);
	int64_t from = db_int(result, 0, "id"), last = from;

	PQclear(result);
	for (size_t i = 0; i < n; i++)
		if (ids[i] > last && ids[i] - last <= IDS_GAP)
			last = ids[i];
	if (last > from)
		db_do(recover->db, sql_query_recover_ids, postgres_number(last - from));
}

/* Names the coupons of PostgreSQL that Redis does not hold, unless they are over. */
static void left_report(struct recover *recover, const int64_t *ids, size_t n)
{
	struct postgres_array held = { .type = POSTGRES_INT8 };
	PGresult *rows;

	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&held, ids[i]);
	rows = db_ask(recover->db, sql_query_recover_left, postgres_array(&held));
	recover->counts.left = PQntuples(rows);
	for (int row = 0; row < PQntuples(rows); row++)
		if (strcmp(db_text(rows, row, "is_settled"), "t") != 0)
			report_coupon(recover, "left", db_int(rows, row, "id"),
				      db_text(rows, row, "status"));
	PQclear(rows);
	postgres_array_fini(&held);
}

/* Step 4. */
static void behind_end(struct recover *recover)
{
	struct postgres_array stripes = { .type = POSTGRES_INT2 },
			      numbers = { .type = POSTGRES_INT8 };
	struct changes copy;

	store_redis_check(recover->redis, changes_copy_read(&copy, recover->redis) == 0);
	for (int i = 0; i < CHANGES_STRIPES; i++) {
		postgres_array_add_number(&stripes, i);
		postgres_array_add_number(&numbers, copy.num[i]);
	}
	db_do(recover->db, sql_query_recover_done, postgres_array(&stripes),
	      postgres_array(&numbers));
	postgres_array_fini(&stripes);
	postgres_array_fini(&numbers);
}

static void all_run(struct recover *recover)
{
	int64_t *ids, fence, begun_ms = clock_monotonic_ms();
	size_t n = coupons_find(recover->redis, &ids);

	fence = coupons_hold(recover, ids, n);
	fault_point(FAULT_RECOVER_HELD);
	if (!recover->is_dry) {
		db_do(recover->db, sql_query_recover_fence, postgres_number(fence));
		ids_advance(recover, ids, n);
	}
	fault_point(FAULT_RECOVER_FENCED);
	for (size_t i = 0; i < n; i++)
		recover_coupon_run(recover, ids[i]);
	left_report(recover, ids, n);
	fault_point(FAULT_RECOVER_BEFORE_END);
	if (!recover->is_dry)
		behind_end(recover);
	report_end(recover, clock_monotonic_ms() - begun_ms);
	free(ids);
}

static int recover_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int is_unsure = args_has(args, "accept-loss") && !args_has(args, "yes");
	struct recover recover = { .gives_up = args_has(args, "accept-loss"),
				   .is_dry = args_has(args, "dry-run") || is_unsure,
				   .is_json = args_has(args, "json") };
	int64_t behind;

	if (args_has(args, "all") == recover.gives_up)
		args_fail("recover takes either --all or --accept-loss");
	recover.db = store_postgres_open(ctl);
	recover.redis = store_redis_open(ctl);
	if (!db_lock_try(recover.db, "recover"))
		log_fatal("another couponctl recover is running");
	db_do(recover.db, sql_query_recover_session);
	behind = behind_read(recover.db, recover.redis);
	store_redis_check(recover.redis, behind >= 0);
	if (behind > 0)
		all_run(&recover);
	else if (recover.is_json)
		report_end(&recover, 0);
	else
		puts("nothing to recover: PostgreSQL is not behind Redis");
	redis_client_free(recover.redis);
	db_close(recover.db);
	if (behind > 0 && is_unsure && !args_has(args, "dry-run"))
		args_fail("nothing was given up: that needs --yes");
	return 0;
}

static const struct option recover_options[] = {
	SWITCH("all", "bring back every receive that Redis holds"),
	SWITCH("accept-loss", "name each receive that PostgreSQL has lost, and give it up"),
	SWITCH("yes", "with --accept-loss: do it; without it, only print what would be lost"),
	SWITCH("dry-run", "do the same in transactions that are rolled back, and change nothing"),
	SWITCH("json", "print a JSON object for each thing that is named, and one at the end"),
	OPTIONS_END,
};

const struct command recover_command = {
	.name = "recover",
	.run = recover_run,
	.options = recover_options,
	.summary = "recover after PostgreSQL was put back to an earlier moment",
	.detail =
		"Needs --all or --accept-loss. As long as PostgreSQL is behind Redis, nothing is\n"
		"issued or settled, and changes are refused. --all restores coupons, terms,\n"
		"rejections and receives from Redis, each receive with its id, slot, key and\n"
		"validity. Then the keeper opens the coupons again. After an interruption run it\n"
		"again. Not behind: nothing is done, and the exit status is 0.\n"
		"\n"
		"--accept-loss keeps what PostgreSQL has, and records the receives that it lost "
		"as\n"
		"rejected (lost), except those whose messages still exist. Coupons that\n"
		"PostgreSQL does not have are deleted in Redis.",
};

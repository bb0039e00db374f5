/*
 * Findings about single receives, slots and outbox entries, then about the counts. One fault shows
 * in several counts: a deleted row, for instance, in issued_num, in settled_num and as a slot
 * without an outcome. So the counts are judged later, and only for what the first findings do not
 * explain.
 */
#include "ctl/audit/pass.h"

#include "embed.h"

#include <inttypes.h>
#include <string.h>

struct judge {
	struct pass *pass;
	struct findings *findings;
	struct slots named; /* user coupons that a finding names */
	/* By how much the findings about single receives change the counts. */
	int64_t both_n; /* receives that are issued and rejected */
	int64_t rows_extra, rows_missing;
	int64_t slots_extra, slots_missing; /* in Redis */
};

static int is_named(const struct judge *judge, const struct slot *slot)
{
	for (size_t i = 0; i < judge->named.n; i++)
		if (slot_compare(&judge->named.list[i], slot) == 0)
			return 1;
	return 0;
}

/* Whether Redis does not have the user coupon. */
static int is_missing(const struct pass *pass, const struct slot *slot)
{
	for (size_t i = 0; i < pass->rows.n; i++)
		if (slot_compare(&pass->rows.list[i].slot, slot) == 0)
			return 1;
	return 0;
}

/* P3: one receive with several user coupons. Names one that Redis does not have, if any. */
static void issued_twice_judge(struct judge *judge, const char *batch, const char *index)
{
	struct pass *pass = judge->pass;
	PGresult *rows = db_ask(pass->audit->db, sql_query_audit_receive,
				postgres_number(pass->coupon), postgres_text(batch),
				postgres_text(index));
	struct slot slot, chosen = { 0 };

	for (int i = 0; i < PQntuples(rows); i++) {
		slot_read(rows, i, 0, &slot);
		slots_add(&judge->named, &slot);
		if (chosen.user.len == 0 || (is_missing(pass, &slot) && !is_missing(pass, &chosen)))
			chosen = slot;
	}
	if (PQntuples(rows) > 1) {
		judge->rows_extra += PQntuples(rows) - 1;
		finding_add(judge->findings, FINDING_ISSUED_TWICE, pass->coupon, &chosen,
			    "one receive has %d user coupons", PQntuples(rows));
	}
	PQclear(rows);
}

/* P3: one receive with both outcomes. */
static void both_judge(struct judge *judge, const PGresult *result, int row)
{
	struct slot slot;

	slot_read(result, row, 2, &slot);
	slots_add(&judge->named, &slot);
	judge->both_n++;
	finding_add(judge->findings, FINDING_ISSUED_AND_REJECTED, judge->pass->coupon, &slot,
		    "issued and also rejected");
}

static void twice_judge(struct judge *judge)
{
	const PGresult *twice = judge->pass->twice;

	for (int row = 0; twice && row < PQntuples(twice); row++) {
		if (strcmp(db_text(twice, row, "what"), "issued_twice") == 0)
			issued_twice_judge(judge, db_text(twice, row, "batch"),
					   db_text(twice, row, "idx"));
		else
			both_judge(judge, twice, row);
	}
}

static int64_t user_rows(const PGresult *users, const struct user_id *user)
{
	for (int row = 0; row < PQntuples(users); row++)
		if (strcmp(db_text(users, row, "user_id"), user->text) == 0)
			return db_int(users, row, "row_num");
	return 0;
}

/* P2: one finding for a user with too many coupons, else one for each slot beyond the limit. */
static void limit_judge(struct judge *judge)
{
	struct pass *pass = judge->pass;
	PGresult *users;

	if (pass->beyond.n == 0)
		return;
	users = db_ask(pass->audit->db, sql_query_audit_limit, postgres_number(pass->coupon));
	slots_sort(&pass->beyond);
	for (size_t i = 0; i < pass->beyond.n; i++) {
		const struct slot *slot = &pass->beyond.list[i];
		int64_t rows = user_rows(users, &slot->user);

		slots_add(&judge->named, slot);
		judge->rows_extra++;
		if (rows <= pass->row.limit)
			finding_add(judge->findings, FINDING_SLOT_LIMIT, pass->coupon, slot,
				    "the limit is %" PRId64, pass->row.limit);
		else if (i == 0 || !user_id_same(&pass->beyond.list[i - 1].user, &slot->user))
			finding_add(judge->findings, FINDING_USER_LIMIT, pass->coupon, slot,
				    "the user has %" PRId64 " coupons, and the limit is %" PRId64,
				    rows, pass->row.limit);
	}
	PQclear(users);
}

static void row_judge(struct judge *judge, const struct suspect *suspect, int uncounted)
{
	const int64_t coupon = judge->pass->coupon;

	if (suspect->how == SLOT_OTHER_KEY) {
		finding_add(judge->findings, FINDING_SLOT_KEY, coupon, &suspect->slot,
			    "issued, and Redis has another idempotency key for it");
		return;
	}
	if (uncounted) {
		judge->rows_extra++;
		finding_add(
			judge->findings, FINDING_ROW_UNKNOWN, coupon, &suspect->slot,
			"a user coupon that was never counted as settled, and that Redis does not "
			"have");
		return;
	}
	judge->slots_missing++;
	finding_add(judge->findings, FINDING_SLOT_MISSING, coupon, &suspect->slot,
		    "issued, and Redis does not have it");
}

static void rows_judge(struct judge *judge)
{
	const struct suspects *rows = &judge->pass->rows;
	int64_t issued_over = judge->pass->rows_n - judge->pass->row.issued,
		over = pass_outcomes_over(judge->pass) - judge->both_n, n = 0;
	int uncounted;

	for (size_t i = 0; i < rows->n; i++)
		n += rows->list[i].how == SLOT_NONE &&
		     look_found_wrong(judge->pass, &rows->list[i]) &&
		     !is_named(judge, &rows->list[i].slot);
	uncounted = (over > issued_over ? over : issued_over) - judge->rows_extra >= n;
	for (size_t i = 0; i < rows->n; i++)
		if (look_found_wrong(judge->pass, &rows->list[i]) &&
		    !is_named(judge, &rows->list[i].slot))
			row_judge(judge, &rows->list[i], uncounted);
}

/* How many of the `wrong_n` slots without an outcome the counts of Redis include. */
static int64_t accepted_of(const struct pass *pass, int64_t wrong_n)
{
	if (pass_counts_users(pass))
		return wrong_n + cut_taken(&pass->cut) - pass->cut.users;
	return cut_taken(&pass->cut) - pass->counted;
}

static void open_judge(struct judge *judge, const struct suspect *suspect, int64_t wrong_n)
{
	const int64_t coupon = judge->pass->coupon;
	int64_t accepted = accepted_of(judge->pass, wrong_n);
	struct outcome outcome;

	outcomes_read(judge->pass->audit->db, judge->pass->coupon, &suspect->slot, 1, &outcome);
	if (suspect->state == SUSPECT_HELD) {
		judge->slots_extra++;
		finding_add(judge->findings, FINDING_SLOT_UNRELEASED, coupon, &suspect->slot,
			    "rejected and released, but it still holds its slot in Redis");
	} else if (outcome.is_held) {
		finding_add(judge->findings, FINDING_SLOT_RECEIVE, coupon, &suspect->slot,
			    "taken in Redis, but issued to another receive");
	} else if (pass_gone(judge->pass) >= wrong_n) {
		judge->rows_missing++;
		finding_add(judge->findings, FINDING_ROW_MISSING, coupon, &suspect->slot,
			    "counted as settled, but it has neither a user coupon nor a rejection");
	} else if (suspect->state == SUSPECT_QUIET || accepted <= 0) {
		judge->slots_extra++;
		finding_add(
			judge->findings, FINDING_SLOT_UNKNOWN, coupon, &suspect->slot,
			"taken in Redis by a receive that was never accepted: neither issued nor "
			"rejected, and not in flight");
	} else {
		finding_add(judge->findings, FINDING_RECEIVE_LOST, coupon, &suspect->slot,
			    "%s; it has no outcome, and its message is neither in the outbox nor "
			    "in a queue",
			    accepted >= wrong_n ? "accepted" : "accepted, or written by hand");
	}
}

static void slots_judge(struct judge *judge)
{
	struct pass *pass = judge->pass;
	int64_t n = 0;

	for (size_t i = 0; i < pass->open.n; i++)
		n += look_found_wrong(pass, &pass->open.list[i]);
	for (size_t i = 0; i < pass->open.n; i++)
		if (look_found_wrong(pass, &pass->open.list[i]))
			open_judge(judge, &pass->open.list[i], n);
	if (pass->unnamed_overdue)
		finding_add(judge->findings, FINDING_RECEIVE_LOST, pass->coupon, NULL,
			    "%" PRId64
			    " accepted receives have no outcome, no slot and no message: "
			    "they cannot be named",
			    pass->unnamed);
}

static void malformed_judge(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	const struct suspects *settled = &pass->outbox.settled;

	for (size_t i = 0; i < pass->malformed.n; i++)
		finding_add(judge->findings, FINDING_RECORDS_MALFORMED, pass->coupon,
			    &pass->malformed.list[i],
			    pass->malformed.list[i].user.len > 0
				    ? "the user's records in Redis are malformed"
				    : "a user in Redis is no valid id");
	for (size_t i = 0; i < pass->outbox.bad_n; i++)
		finding_add(judge->findings, FINDING_OUTBOX_MALFORMED, pass->coupon, NULL,
			    "entry %s of the outbox: %s", pass->outbox.bad[i].batch,
			    pass->outbox.bad[i].error);
	for (size_t i = 0; i < settled->n; i++)
		if (look_found_wrong(pass, &settled->list[i]))
			finding_add(judge->findings, FINDING_OUTBOX_SETTLED, pass->coupon,
				    &settled->list[i].slot,
				    "its batch is settled, but the message is still in the outbox");
}

/* issued_num, against the rows. */
static void issued_judge(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	const struct audit_row *row = &judge->pass->row;
	int64_t over = pass->rows_n - row->issued;

	if (row->issued > row->total || pass->rows_n - judge->rows_extra > row->total)
		finding_add(judge->findings, FINDING_OVERSOLD, pass->coupon, NULL,
			    "the total is %" PRId64 ", issued %" PRId64 ", user coupons %" PRId64,
			    row->total, row->issued, pass->rows_n);
	else if (over > judge->rows_extra || over < -judge->rows_missing)
		finding_add(judge->findings, FINDING_ISSUED_NUM, pass->coupon, NULL,
			    "issued_num is %" PRId64 ", and there are %" PRId64 " user coupons",
			    row->issued, pass->rows_n);
}

/* settled_num and seq_seen, against the outcomes and the numbers that Redis gave out. */
static void settled_judge(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	const struct audit_row *row = &judge->pass->row;
	int64_t over = pass_outcomes_over(pass);

	if (over > judge->rows_extra + judge->both_n ||
	    (row->generation <= 1 && over < -judge->rows_missing))
		finding_add(judge->findings, FINDING_SETTLED_NUM, pass->coupon, NULL,
			    "settled_num is %" PRId64
			    " over all generations, and there are %" PRId64
			    " user coupons and %" PRId64 " rejections",
			    row->settled_sum, pass->rows_n, row->rejected);
	else if (row->settled > row->seq_seen)
		finding_add(judge->findings, FINDING_SEQ_SEEN, pass->coupon, NULL,
			    "seq_seen is %" PRId64 ", and %" PRId64
			    " receives of this generation are settled",
			    row->seq_seen, row->settled);
	else if (pass->compared && row->seq_seen > pass->cut.coupon.seq)
		finding_add(judge->findings, FINDING_SEQ_SEEN, pass->coupon, NULL,
			    "seq_seen is %" PRId64
			    ", and the last number that Redis gave out is %" PRId64,
			    row->seq_seen, pass->cut.coupon.seq);
}

/* The sum of the counts in Redis. */
static int sum_is_wrong(const struct judge *judge, enum sum_verdict sum)
{
	const struct pass *pass = judge->pass;
	int64_t over = cut_taken(&pass->cut) - pass->cut.users,
		doubt = (int64_t)pass->malformed.n * RECEIVE_SLOT_MAX;

	if (sum != SUM_AT_CUT)
		return sum == SUM_WRONG;
	return over > judge->slots_missing + doubt || over < -judge->slots_extra - doubt;
}

static void sum_judge(struct judge *judge, enum sum_verdict sum)
{
	const struct pass *pass = judge->pass;
	const struct redis_coupon *c = &pass->cut.coupon;

	if (pass->compared && sum_is_wrong(judge, sum))
		finding_add(judge->findings, FINDING_SUM, pass->coupon, NULL,
			    "stock %" PRId64 " + reserved %" PRId64 " + lost %" PRId64
			    " leave %" PRId64 " of the total %" PRId64 ", and %" PRId64
			    " slots are taken",
			    c->stock, c->reserved, c->lost, cut_taken(&pass->cut), c->total,
			    pass_counts_users(pass) ? pass->cut.users
						    : pass->counted + (int64_t)pass->open.n);
}

static void terms_judge(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	const struct redis_coupon *c = &pass->cut.coupon;
	const struct audit_row *row = &judge->pass->row;
	const char *status = strcmp(row->status, "published") == 0 ? "open" : row->status;

	if (!pass->cut.present || pass->cut.bad || pass->cut.held || c->version != row->version)
		return;
	if (c->total == row->total && c->begin_ms == row->begin_ms && c->end_ms == row->end_ms &&
	    c->limit == row->limit && strcmp(c->status, status) == 0)
		return;
	finding_add(judge->findings, FINDING_TERMS, pass->coupon, NULL,
		    "version %" PRId64 " is status %s, total %" PRId64 ", begin %" PRId64
		    ", end %" PRId64 ", limit %" PRId64 " in Redis, and %s, %" PRId64 ", %" PRId64
		    ", %" PRId64 ", %" PRId64 " in PostgreSQL",
		    c->version, c->status, c->total, c->begin_ms, c->end_ms, c->limit, status,
		    row->total, row->begin_ms, row->end_ms, row->limit);
}

static void behind_judge(struct judge *judge)
{
	const struct pass *pass = judge->pass;

	if (pass->cut.present && !pass->cut.bad && !pass->cut.held && !pass->compared)
		finding_add(judge->findings, FINDING_REDIS_BEHIND, pass->coupon, NULL,
			    "Redis has generation %" PRId64 " up to number %" PRId64
			    ", PostgreSQL generation %" PRId64 " up to %" PRId64,
			    pass->cut.coupon.generation, pass->cut.coupon.seq, pass->row.generation,
			    pass->row.seq_seen);
}

void pass_judge(struct pass *pass, enum sum_verdict sum)
{
	struct judge judge = {
		.pass = pass,
		.findings = &pass->audit->findings,
	};

	twice_judge(&judge);
	limit_judge(&judge);
	rows_judge(&judge);
	slots_judge(&judge);
	malformed_judge(&judge);
	slots_fini(&judge.named);
	issued_judge(&judge);
	settled_judge(&judge);
	behind_judge(&judge);
	sum_judge(&judge, sum);
	terms_judge(&judge);
}

/*
 * What a pass found, told as what it is. One thing that is wrong shows in several numbers: a row
 * that was deleted, for instance, in issued_num, in settled_num and as a slot without an outcome.
 * Where such a thing can be named, the numbers that it explains are not told too.
 */
#include "ctl/audit/pass.h"

#include "common/receive.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was named, and by how much that moves the counts. */
struct judge {
	struct pass *pass;
	struct findings *findings;
	struct slots named; /* user coupons */
	/* user coupons and rejections beyond those that were counted as settled */
	int64_t outcomes_over;
	int64_t both_n; /* issued and rejected */
	int64_t rows_extra, rows_missing;
	int64_t slots_extra, slots_missing; /* in Redis */
};

static struct place place_of(const struct pass *pass, const struct slot *slot)
{
	return (struct place){ pass->coupon, slot->user, slot->number, &slot->batch, slot->index };
}

static struct place coupon_place(const struct pass *pass)
{
	return (struct place){ .coupon = pass->coupon };
}

static int is_named(const struct judge *judge, const struct slot *slot)
{
	for (size_t i = 0; i < judge->named.n; i++)
		if (slot_compare(&judge->named.list[i], slot) == 0)
			return 1;
	return 0;
}

static int is_in(const struct suspects *suspects, const struct slot *slot)
{
	for (size_t i = 0; i < suspects->n; i++)
		if (slot_compare(&suspects->list[i].slot, slot) == 0)
			return 1;
	return 0;
}

/* P3: one receive, several user coupons. Named by one that Redis does not have, if there is one. */
static void issued_twice_tell(struct judge *judge, const char *batch, const char *index)
{
	struct pass *pass = judge->pass;
	char id[DB_NUMBER_SIZE];
	PGresult *rows = db_query(pass->audit->db, sql_query_audit_receive, 3,
				  (const char *[]){ db_number(pass->coupon, id), batch, index });
	struct slot slot, told = { .user = 0 };
	struct columns columns;
	struct place place;

	columns_find(rows, &columns);
	for (int i = 0; i < PQntuples(rows); i++) {
		slot_read(rows, i, &columns, &slot);
		slots_add(&judge->named, &slot);
		if (told.user == 0 || (is_in(&pass->rows, &slot) && !is_in(&pass->rows, &told)))
			told = slot;
	}
	place = place_of(pass, &told);
	if (PQntuples(rows) > 1) {
		judge->rows_extra += PQntuples(rows) - 1;
		finding_tell(judge->findings, FINDING_ISSUED_TWICE, &place,
			     "one receive has %d user coupons", PQntuples(rows));
	}
	PQclear(rows);
}

static void both_tell(struct judge *judge, const PGresult *result, int row)
{
	struct columns columns;
	struct place place;
	struct slot slot;

	columns_find(result, &columns);
	slot_read(result, row, &columns, &slot);
	slots_add(&judge->named, &slot);
	judge->both_n++;
	place = place_of(judge->pass, &slot);
	finding_tell(judge->findings, FINDING_ISSUED_AND_REJECTED, &place,
		     "issued, and rejected too");
}

static void twice_tell(struct judge *judge)
{
	const PGresult *twice = judge->pass->twice;

	for (int row = 0; twice && row < PQntuples(twice); row++) {
		if (strcmp(db_text(twice, row, "what"), "issued_twice") == 0)
			issued_twice_tell(judge, db_text(twice, row, "batch"),
					  db_text(twice, row, "idx"));
		else
			both_tell(judge, twice, row);
	}
}

/* P2: one line for a user with too many, one for each slot that cannot be of one who has not. */
static void limit_tell(struct judge *judge)
{
	struct pass *pass = judge->pass;
	const char *coupon;
	char id[DB_NUMBER_SIZE];
	PGresult *users;

	if (pass->beyond.n == 0)
		return;
	coupon = db_number(pass->coupon, id);
	users = db_query(pass->audit->db, sql_query_audit_limit, 1, &coupon);
	slots_sort(&pass->beyond);
	for (size_t i = 0; i < pass->beyond.n; i++) {
		const struct slot *slot = &pass->beyond.list[i];
		struct place place = place_of(pass, slot);
		int64_t rows = 0;

		for (int row = 0; row < PQntuples(users); row++)
			if (db_int(users, row, "user_id") == slot->user)
				rows = db_int(users, row, "row_num");
		slots_add(&judge->named, slot);
		judge->rows_extra++;
		if (rows <= pass->row.limit)
			finding_tell(judge->findings, FINDING_SLOT_LIMIT, &place,
				     "the limit is %" PRId64, pass->row.limit);
		else if (i == 0 || pass->beyond.list[i - 1].user != slot->user)
			finding_tell(judge->findings, FINDING_USER_LIMIT, &place,
				     "the user has %" PRId64 " coupons, and the limit is %" PRId64,
				     rows, pass->row.limit);
	}
	PQclear(users);
}

static void row_tell(struct judge *judge, const struct suspect *suspect, int uncounted)
{
	struct place place = place_of(judge->pass, &suspect->slot);

	if (suspect->how == SLOT_OTHER_KEY) {
		finding_tell(judge->findings, FINDING_SLOT_KEY, &place,
			     "issued, and Redis has it with another key");
		return;
	}
	if (uncounted) {
		judge->rows_extra++;
		finding_tell(judge->findings, FINDING_ROW_UNKNOWN, &place,
			     "a user coupon that was never counted as settled, and Redis does not "
			     "have it");
		return;
	}
	judge->slots_missing++;
	finding_tell(judge->findings, FINDING_SLOT_MISSING, &place,
		     "issued, and Redis does not have it");
}

static void rows_tell(struct judge *judge)
{
	const struct suspects *rows = &judge->pass->rows;
	int64_t issued_over = judge->pass->rows_n - judge->pass->row.issued,
		over = judge->outcomes_over - judge->both_n, n = 0;
	int uncounted;

	for (size_t i = 0; i < rows->n; i++)
		n += rows->list[i].how == SLOT_NONE &&
		     suspect_is_wrong(judge->pass, &rows->list[i]) &&
		     !is_named(judge, &rows->list[i].slot);
	uncounted = (over > issued_over ? over : issued_over) - judge->rows_extra >= n;
	for (size_t i = 0; i < rows->n; i++)
		if (suspect_is_wrong(judge->pass, &rows->list[i]) &&
		    !is_named(judge, &rows->list[i].slot))
			row_tell(judge, &rows->list[i], uncounted);
}

/* Of what is taken without an outcome, how much Redis has counted as taken. */
static int64_t accepted_of(const struct pass *pass, int64_t wrong_n)
{
	if (pass_counts_users(pass))
		return wrong_n + cut_taken(&pass->cut) - pass->cut.users;
	return cut_taken(&pass->cut) - pass->counted;
}

static void gone_tell(struct judge *judge, const struct place *place)
{
	judge->rows_missing++;
	finding_tell(judge->findings, FINDING_ROW_MISSING, place,
		     "it was counted as settled, and neither user coupon nor rejection is there");
}

static void lost_tell(struct judge *judge, const struct place *place, int sure)
{
	finding_tell(judge->findings, FINDING_RECEIVE_LOST, place,
		     "accepted, %s; its message is neither in the outbox nor in a queue",
		     sure ? "and it has no outcome" : "or written by hand, and it has no outcome");
}

static void open_tell(struct judge *judge, const struct suspect *suspect, int64_t wrong_n)
{
	struct place place = place_of(judge->pass, &suspect->slot);
	int64_t accepted = accepted_of(judge->pass, wrong_n);
	struct outcome outcome;

	audit_outcomes_read(judge->pass->audit->db, judge->pass->coupon, &suspect->slot, 1,
			    &outcome);
	if (suspect->state == SUSPECT_HELD) {
		judge->slots_extra++;
		finding_tell(judge->findings, FINDING_SLOT_UNRELEASED, &place,
			     "rejected and said to be given back, and Redis still has it: its slot "
			     "should have been given back");
	} else if (outcome.is_held) {
		finding_tell(judge->findings, FINDING_SLOT_RECEIVE, &place,
			     "taken in Redis, and issued to another receive");
	} else if (pass_gone(judge->pass) >= wrong_n) {
		gone_tell(judge, &place);
	} else if (suspect->state == SUSPECT_QUIET || accepted <= 0) {
		judge->slots_extra++;
		finding_tell(judge->findings, FINDING_SLOT_UNKNOWN, &place,
			     "taken in Redis by a receive that was never given out: neither issued "
			     "nor rejected, and not on its way");
	} else {
		lost_tell(judge, &place, accepted >= wrong_n);
	}
}

static void slots_tell(struct judge *judge)
{
	struct pass *pass = judge->pass;
	struct place place = coupon_place(pass);
	int64_t n = 0;

	for (size_t i = 0; i < pass->open.n; i++)
		n += suspect_is_wrong(pass, &pass->open.list[i]);
	for (size_t i = 0; i < pass->open.n; i++)
		if (suspect_is_wrong(pass, &pass->open.list[i]))
			open_tell(judge, &pass->open.list[i], n);
	if (pass->unnamed_overdue)
		finding_tell(judge->findings, FINDING_RECEIVE_LOST, &place,
			     "%" PRId64 " receives that were given out have neither outcome nor "
			     "slot nor message: they cannot be named",
			     pass->unnamed);
}

static void malformed_tell(struct judge *judge)
{
	struct pass *pass = judge->pass;
	struct place place = coupon_place(pass);

	for (size_t i = 0; i < pass->malformed.n; i++) {
		place.user = pass->malformed.list[i].user;
		finding_tell(judge->findings, FINDING_RECORDS_MALFORMED, &place,
			     place.user ? "the user's records in Redis are malformed"
					: "a user in Redis who is no id");
	}
	for (size_t i = 0; i < pass->entries_n; i++) {
		place.user = 0;
		finding_tell(judge->findings, FINDING_OUTBOX_MALFORMED, &place,
			     "entry %s of the outbox: %s", pass->entries[i].batch,
			     pass->entries[i].error);
	}
	for (size_t i = 0; i < pass->outbox.n; i++) {
		if (!suspect_is_wrong(pass, &pass->outbox.list[i]))
			continue;
		place = place_of(pass, &pass->outbox.list[i].slot);
		finding_tell(judge->findings, FINDING_OUTBOX_SETTLED, &place,
			     "the message of its batch is settled and confirmed by nobody: it is "
			     "still in the outbox");
	}
}

/* The counts in PostgreSQL, against its own rows. */
static void counts_tell(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	const struct audit_row *row = &pass->row;
	struct place place = coupon_place(pass);
	int64_t over = pass->rows_n - row->issued;

	if (row->issued > row->total || pass->rows_n - judge->rows_extra > row->total)
		finding_tell(judge->findings, FINDING_OVERSOLD, &place,
			     "the total is %" PRId64 ", issued %" PRId64 ", user coupons %" PRId64,
			     row->total, row->issued, pass->rows_n);
	else if (over > judge->rows_extra || over < -judge->rows_missing)
		finding_tell(judge->findings, FINDING_ISSUED_NUM, &place,
			     "issued_num is %" PRId64 ", and there are %" PRId64 " user coupons",
			     row->issued, pass->rows_n);
	if (judge->outcomes_over > judge->rows_extra + judge->both_n ||
	    (row->generation <= 1 && judge->outcomes_over < -judge->rows_missing))
		finding_tell(judge->findings, FINDING_SETTLED_NUM, &place,
			     "settled_num is %" PRId64
			     " over all generations, and there are %" PRId64
			     " user coupons and %" PRId64 " rejections",
			     row->settled_sum, pass->rows_n, row->rejected);
	else if (row->settled > row->seq_seen)
		finding_tell(judge->findings, FINDING_SEQ_SEEN, &place,
			     "seq_seen is %" PRId64 ", and %" PRId64
			     " receives of this generation are settled",
			     row->seq_seen, row->settled);
	else if (pass->compared && row->seq_seen > pass->cut.coupon.seq)
		finding_tell(judge->findings, FINDING_SEQ_SEEN, &place,
			     "seq_seen is %" PRId64
			     ", and the last number that Redis gave out %" PRId64,
			     row->seq_seen, pass->cut.coupon.seq);
}

/* Redis' own sum. */
static int sum_is_wrong(const struct judge *judge, enum sum_verdict sum)
{
	const struct pass *pass = judge->pass;
	int64_t over = cut_taken(&pass->cut) - pass->cut.users,
		doubt = (int64_t)pass->malformed.n * RECEIVE_SLOT_MAX;

	if (sum != SUM_AT_CUT)
		return sum == SUM_WRONG;
	return over > judge->slots_missing + doubt || over < -judge->slots_extra - doubt;
}

static void sum_tell(struct judge *judge, enum sum_verdict sum)
{
	const struct pass *pass = judge->pass;
	const struct cache_coupon *c = &pass->cut.coupon;
	struct place place = coupon_place(pass);

	if (pass->compared && sum_is_wrong(judge, sum))
		finding_tell(judge->findings, FINDING_SUM, &place,
			     "stock %" PRId64 " + reserved %" PRId64 " + lost %" PRId64
			     " leave %" PRId64 " of the total %" PRId64 ", and %" PRId64
			     " slots are taken",
			     c->stock, c->reserved, c->lost, cut_taken(&pass->cut), c->total,
			     pass_counts_users(pass) ? pass->cut.users
						     : pass->counted + (int64_t)pass->open.n);
}

static void terms_tell(struct judge *judge)
{
	const struct cache_coupon *c = &judge->pass->cut.coupon;
	const struct audit_row *row = &judge->pass->row;
	const char *status = strcmp(row->status, "published") == 0 ? "open" : row->status;
	struct place place = coupon_place(judge->pass);

	if (!judge->pass->cut.present || judge->pass->cut.bad || judge->pass->cut.held ||
	    c->version != row->version)
		return;
	if (c->total == row->total && c->begin_ms == row->begin_ms && c->end_ms == row->end_ms &&
	    c->limit == row->limit && strcmp(c->status, status) == 0)
		return;
	finding_tell(judge->findings, FINDING_TERMS, &place,
		     "version %" PRId64 " is status %s, total %" PRId64 ", begin %" PRId64
		     ", end %" PRId64 ", limit %" PRId64 " in Redis, and %s, %" PRId64 ", %" PRId64
		     ", %" PRId64 ", %" PRId64 " in PostgreSQL",
		     c->version, c->status, c->total, c->begin_ms, c->end_ms, c->limit, status,
		     row->total, row->begin_ms, row->end_ms, row->limit);
}

static void behind_tell(struct judge *judge)
{
	const struct pass *pass = judge->pass;
	struct place place = coupon_place(pass);

	if (pass->cut.present && !pass->cut.bad && !pass->cut.held && !pass->compared)
		finding_tell(judge->findings, FINDING_REDIS_BEHIND, &place,
			     "Redis has generation %" PRId64 " up to number %" PRId64
			     ", PostgreSQL generation %" PRId64 " up to %" PRId64,
			     pass->cut.coupon.generation, pass->cut.coupon.seq,
			     pass->row.generation, pass->row.seq_seen);
}

void pass_judge(struct pass *pass, enum sum_verdict sum)
{
	struct judge judge = {
		.pass = pass,
		.findings = &pass->audit->findings,
		.outcomes_over = pass->rows_n + pass->row.rejected - pass->row.settled_sum,
	};

	twice_tell(&judge);
	limit_tell(&judge);
	rows_tell(&judge);
	slots_tell(&judge);
	malformed_tell(&judge);
	counts_tell(&judge);
	behind_tell(&judge);
	sum_tell(&judge, sum);
	terms_tell(&judge);
	slots_fini(&judge.named);
}

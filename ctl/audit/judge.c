/*
 * Findings about single receives, slots and outbox entries, then about the counts. One fault shows
 * in several counts: a deleted row, for instance, in issued_num, in settled_num and as a slot
 * without an outcome. So the counts are judged later, and only for what the first findings do not
 * explain.
 */
#include "ctl/audit/audit.h"

#include "embed.h"

#include <inttypes.h>
#include <string.h>

/* Whether Redis does not have the user coupon. The finding that asks is the only one to name it. */
static int row_take(struct pass *pass, const struct slot *slot)
{
	for (size_t i = 0; i < pass->rows.n; i++)
		if (slot_compare(&pass->rows.list[i].slot, slot) == 0) {
			pass->rows.list[i].result = LOOK_RIGHT;
			return 1;
		}
	return 0;
}

/* P3: one receive with several user coupons. Names one that Redis does not have, if any. */
static void issued_twice_judge(struct pass *pass, const char *batch, const char *index)
{
	PGresult *rows = db_ask(pass->audit->db, sql_query_audit_receive,
				postgres_number(pass->coupon), postgres_text(batch),
				postgres_text(index));
	struct slot slot, chosen = { 0 };
	int is_missing = 0;

	for (int i = 0; i < PQntuples(rows); i++) {
		slot_read(rows, i, 0, &slot);
		if ((row_take(pass, &slot) && !is_missing++) || i == 0)
			chosen = slot;
	}
	if (PQntuples(rows) > 1) {
		pass->rows_extra += PQntuples(rows) - 1;
		finding_add(pass, FINDING_ISSUED_TWICE, &chosen, "one receive has %d user coupons",
			    PQntuples(rows));
	}
	PQclear(rows);
}

static void twice_judge(struct pass *pass)
{
	const PGresult *twice = pass->twice;
	struct slot slot;

	for (int row = 0; twice && row < PQntuples(twice); row++) {
		if (strcmp(column_text(twice, row, "what"), "issued_twice") == 0) {
			issued_twice_judge(pass, column_text(twice, row, "batch"),
					   column_text(twice, row, "idx"));
			continue;
		}
		slot_read(twice, row, 2, &slot);
		(void)row_take(pass, &slot);
		pass->both_n++;
		finding_add(pass, FINDING_ISSUED_AND_REJECTED, &slot, "issued and also rejected");
	}
}

static int64_t user_rows(const PGresult *users, const struct user_id *user)
{
	for (int row = 0; row < PQntuples(users); row++)
		if (strcmp(column_text(users, row, "user_id"), user->text) == 0)
			return column_number(users, row, "row_num");
	return 0;
}

/* P2: one finding for a user with too many coupons, else one for each slot beyond the limit. */
static void limit_judge(struct pass *pass)
{
	PGresult *users;

	if (pass->beyond.n == 0)
		return;
	users = db_ask(pass->audit->db, sql_query_audit_limit, postgres_number(pass->coupon));
	slots_sort(&pass->beyond);
	for (size_t i = 0; i < pass->beyond.n; i++) {
		const struct slot *slot = &pass->beyond.list[i];
		int64_t rows = user_rows(users, &slot->user);

		(void)row_take(pass, slot);
		pass->rows_extra++;
		if (rows <= pass->row.limit)
			finding_add(pass, FINDING_SLOT_LIMIT, slot, "the limit is %" PRId64,
				    pass->row.limit);
		else if (i == 0 || !user_id_same(&pass->beyond.list[i - 1].user, &slot->user))
			finding_add(pass, FINDING_USER_LIMIT, slot,
				    "the user has %" PRId64 " coupons, and the limit is %" PRId64,
				    rows, pass->row.limit);
	}
	PQclear(users);
}

static void row_judge(struct pass *pass, const struct suspect *suspect, int uncounted)
{
	if (suspect->how == SLOT_OTHER_KEY) {
		finding_add(pass, FINDING_SLOT_KEY, &suspect->slot,
			    "issued, and Redis has another idempotency key for it");
		return;
	}
	if (uncounted) {
		pass->rows_extra++;
		finding_add(
			pass, FINDING_ROW_UNKNOWN, &suspect->slot,
			"a user coupon that was never counted as settled, and that Redis does not "
			"have");
		return;
	}
	pass->slots_missing++;
	finding_add(pass, FINDING_SLOT_MISSING, &suspect->slot,
		    "issued, and Redis does not have it");
}

static void rows_judge(struct pass *pass)
{
	const struct suspects *rows = &pass->rows;
	int64_t issued_over = pass->rows_n - pass->row.issued,
		over = pass_outcomes_over(pass) - pass->both_n, n = 0;
	int uncounted;

	for (size_t i = 0; i < rows->n; i++)
		n += rows->list[i].how == SLOT_NONE && look_found_wrong(pass, &rows->list[i]);
	uncounted = (over > issued_over ? over : issued_over) - pass->rows_extra >= n;
	for (size_t i = 0; i < rows->n; i++)
		if (look_found_wrong(pass, &rows->list[i]))
			row_judge(pass, &rows->list[i], uncounted);
}

/* How many of the `wrong_n` slots without an outcome the counts of Redis include. */
static int64_t accepted_of(const struct pass *pass, int64_t wrong_n)
{
	if (pass_counts_users(pass))
		return wrong_n + redis_coupon_taken(&pass->cut.coupon) - pass->cut.users;
	return redis_coupon_taken(&pass->cut.coupon) - pass->counted;
}

static void open_judge(struct pass *pass, const struct suspect *suspect, int64_t wrong_n)
{
	int64_t accepted = accepted_of(pass, wrong_n);
	PGresult *outcome = outcomes_read(pass, &suspect->slot, 1);
	int is_held = !db_is_null(outcome, 0, "holder_batch"); /* by any receive */

	PQclear(outcome);
	if (suspect->state == SUSPECT_HELD) {
		pass->slots_extra++;
		finding_add(pass, FINDING_SLOT_UNFREED, &suspect->slot,
			    "rejected and freed, but it still holds its slot in Redis");
	} else if (is_held) {
		finding_add(pass, FINDING_SLOT_RECEIVE, &suspect->slot,
			    "taken in Redis, but issued to another receive");
	} else if (pass_gone(pass) >= wrong_n) {
		pass->rows_missing++;
		finding_add(pass, FINDING_ROW_MISSING, &suspect->slot,
			    "counted as settled, but it has neither a user coupon nor a rejection");
	} else if (suspect->state == SUSPECT_QUIET || accepted <= 0) {
		pass->slots_extra++;
		finding_add(
			pass, FINDING_SLOT_UNKNOWN, &suspect->slot,
			"taken in Redis by a receive that was never accepted: neither issued nor "
			"rejected, and not in flight");
	} else {
		finding_add(pass, FINDING_RECEIVE_LOST, &suspect->slot,
			    "%s; it has no outcome, and its message is neither in the outbox nor "
			    "in a queue",
			    accepted >= wrong_n ? "accepted" : "accepted, or written by hand");
	}
}

static void slots_judge(struct pass *pass)
{
	int64_t n = 0;

	for (size_t i = 0; i < pass->open.n; i++)
		n += look_found_wrong(pass, &pass->open.list[i]);
	for (size_t i = 0; i < pass->open.n; i++)
		if (look_found_wrong(pass, &pass->open.list[i]))
			open_judge(pass, &pass->open.list[i], n);
	if (pass->unnamed_overdue)
		finding_add(pass, FINDING_RECEIVE_LOST, NULL,
			    "%" PRId64
			    " accepted receives have no outcome, no slot and no message: "
			    "they cannot be named",
			    pass->unnamed);
}

static void malformed_judge(struct pass *pass)
{
	const struct suspects *settled = &pass->settled;
	const cJSON *bad;

	for (size_t i = 0; i < pass->malformed.n; i++)
		finding_add(pass, FINDING_RECORDS_MALFORMED, &pass->malformed.list[i],
			    pass->malformed.list[i].user.len > 0
				    ? "the user's records in Redis are malformed"
				    : "a user in Redis is no valid id");
	cJSON_ArrayForEach(bad, pass->bad)
	{
		finding_add(pass, FINDING_OUTBOX_MALFORMED, NULL, "entry %.47s of the outbox: %s",
			    bad->string, bad->valuestring);
	}
	for (size_t i = 0; i < settled->n; i++)
		if (look_found_wrong(pass, &settled->list[i]))
			finding_add(pass, FINDING_OUTBOX_SETTLED, &settled->list[i].slot,
				    "its batch is settled, but the message is still in the outbox");
}

/* issued_num, against the rows. */
static void issued_judge(struct pass *pass)
{
	const struct audit_row *row = &pass->row;
	int64_t over = pass->rows_n - row->issued;

	if (row->issued > row->total || pass->rows_n - pass->rows_extra > row->total)
		finding_add(pass, FINDING_OVERSOLD, NULL,
			    "the total is %" PRId64 ", issued %" PRId64 ", user coupons %" PRId64,
			    row->total, row->issued, pass->rows_n);
	else if (over > pass->rows_extra || over < -pass->rows_missing)
		finding_add(pass, FINDING_ISSUED_NUM, NULL,
			    "issued_num is %" PRId64 ", and there are %" PRId64 " user coupons",
			    row->issued, pass->rows_n);
}

/* settled_num and seq_seen, against the outcomes and the numbers that Redis gave out. */
static void settled_judge(struct pass *pass)
{
	const struct audit_row *row = &pass->row;
	int64_t over = pass_outcomes_over(pass);

	if (over > pass->rows_extra + pass->both_n ||
	    (row->generation <= 1 && over < -pass->rows_missing))
		finding_add(pass, FINDING_SETTLED_NUM, NULL,
			    "settled_num is %" PRId64
			    " over all generations, and there are %" PRId64
			    " user coupons and %" PRId64 " rejections",
			    row->settled_sum, pass->rows_n, row->rejected);
	else if (row->settled > row->seq_seen)
		finding_add(pass, FINDING_SEQ_SEEN, NULL,
			    "seq_seen is %" PRId64 ", and %" PRId64
			    " receives of this generation are settled",
			    row->seq_seen, row->settled);
	else if (pass->compared && row->seq_seen > pass->cut.coupon.seq)
		finding_add(pass, FINDING_SEQ_SEEN, NULL,
			    "seq_seen is %" PRId64
			    ", and the last number that Redis gave out is %" PRId64,
			    row->seq_seen, pass->cut.coupon.seq);
}

/* The sum of the counts in Redis. */
static int sum_is_wrong(const struct pass *pass)
{
	int64_t over = redis_coupon_taken(&pass->cut.coupon) - pass->cut.users,
		doubt = (int64_t)pass->malformed.n * RECEIVE_SLOT_MAX;

	if (pass->sum != SUM_AT_CUT)
		return pass->sum == SUM_WRONG;
	return over > pass->slots_missing + doubt || over < -pass->slots_extra - doubt;
}

static void sum_judge(struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;

	if (pass->compared && sum_is_wrong(pass))
		finding_add(pass, FINDING_SUM, NULL,
			    "stock %" PRId64 " + reserved %" PRId64 " + lost %" PRId64
			    " leave %" PRId64 " of the total %" PRId64 ", and %" PRId64
			    " slots are taken",
			    c->stock, c->reserved, c->lost, redis_coupon_taken(&pass->cut.coupon),
			    c->total,
			    pass_counts_users(pass) ? pass->cut.users
						    : pass->counted + (int64_t)pass->open.n);
}

static void terms_judge(struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	const struct audit_row *row = &pass->row;
	const char *status = strcmp(row->status, "published") == 0 ? "open" : row->status;

	if (!pass->cut.present || pass->cut.bad || pass->cut.held || c->version != row->version)
		return;
	if (c->total == row->total && c->begin_ms == row->begin_ms && c->end_ms == row->end_ms &&
	    c->limit == row->limit && strcmp(c->status, status) == 0)
		return;
	finding_add(pass, FINDING_TERMS, NULL,
		    "version %" PRId64 " is status %s, total %" PRId64 ", begin %" PRId64
		    ", end %" PRId64 ", limit %" PRId64 " in Redis, and %s, %" PRId64 ", %" PRId64
		    ", %" PRId64 ", %" PRId64 " in PostgreSQL",
		    c->version, c->status, c->total, c->begin_ms, c->end_ms, c->limit, status,
		    row->total, row->begin_ms, row->end_ms, row->limit);
}

static void behind_judge(struct pass *pass)
{
	if (pass->cut.present && !pass->cut.bad && !pass->cut.held && !pass->compared)
		finding_add(pass, FINDING_REDIS_BEHIND, NULL,
			    "Redis has generation %" PRId64 " up to number %" PRId64
			    ", PostgreSQL generation %" PRId64 " up to %" PRId64,
			    pass->cut.coupon.generation, pass->cut.coupon.seq, pass->row.generation,
			    pass->row.seq_seen);
}

void pass_judge(struct pass *pass)
{
	twice_judge(pass);
	limit_judge(pass);
	rows_judge(pass);
	slots_judge(pass);
	malformed_judge(pass);
	issued_judge(pass);
	settled_judge(pass);
	behind_judge(pass);
	sum_judge(pass);
	terms_judge(pass);
}

/*
 * Findings about single receives, slots and outbox entries, then about the counts. One fault shows
 * in several counts: a deleted row, for instance, in issued_num, in settled_num and as a slot
 * without an outcome. So the counts are judged later, and only for what the first findings do not
 * explain.
 *
 * What orders did with receives, and the budgets, are judged in PostgreSQL, which alone decides
 * that: each statement sees one moment, so nothing is in flight.
 */
#include "ctl/audit/audit.h"

#include "ctl/money.h"
#include "embed.h"

#include <inttypes.h>
#include <string.h>

/* Whether Redis does not have the user coupon. Only the finding that asks names it. */
static int row_take(struct pass *pass, const struct slot *slot)
{
	for (size_t i = 0; i < pass->rows.n; i++)
		if (slot_compare(&pass->rows.list[i].slot, slot) == 0) {
			pass->rows.list[i].result = LOOK_RIGHT;
			return 1;
		}
	return 0;
}

/* P3: receives with two outcomes. */
static void twice_judge(struct pass *pass)
{
	const PGresult *twice = pass->twice;
	struct slot slot;

	for (int row = 0; twice && row < PQntuples(twice); row++) {
		struct slot chosen = { 0 };
		int is_missing = 0, n;
		PGresult *rows;

		if (strcmp(column_text(twice, row, "what"), "issued_twice") != 0) {
			slot_read(twice, row, 2, &slot);
			(void)row_take(pass, &slot);
			pass->both_n++;
			finding_add(pass, FINDING_ISSUED_AND_REJECTED, &slot,
				    "the receive is both issued and rejected");
			continue;
		}
		/* Several user coupons. Names one that Redis does not have, if any. */
		rows = db_ask(pass->audit->db, sql_query_audit_receive,
			      postgres_number(pass->coupon),
			      postgres_text(column_text(twice, row, "batch")),
			      postgres_text(column_text(twice, row, "idx")));
		n = PQntuples(rows);
		for (int i = 0; i < n; i++) {
			slot_read(rows, i, 0, &slot);
			if ((row_take(pass, &slot) && !is_missing++) || i == 0)
				chosen = slot;
		}
		if (n > 1) {
			pass->rows_extra += n - 1;
			finding_add(pass, FINDING_ISSUED_TWICE, &chosen,
				    "one receive has %d user coupons", n);
		}
		PQclear(rows);
	}
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
		int64_t rows = 0;

		for (int row = 0; row < PQntuples(users); row++)
			if (strcmp(column_text(users, row, "user_id"), slot->user.text) == 0)
				rows = column_number(users, row, "row_num");
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

/* User coupons that Redis does not have, or has with another key. */
static void rows_judge(struct pass *pass)
{
	const struct suspects *rows = &pass->rows;
	int64_t issued_over = pass->rows_n - pass->row.issued,
		over = pass_outcomes_over(pass) - pass->both_n, n = 0;
	int uncounted;

	for (size_t i = 0; i < rows->n; i++)
		n += rows->list[i].how == SLOT_NONE && look_found_wrong(pass, &rows->list[i]);
	uncounted = (over > issued_over ? over : issued_over) - pass->rows_extra >= n;
	for (size_t i = 0; i < rows->n; i++) {
		const struct slot *slot = &rows->list[i].slot;

		if (!look_found_wrong(pass, &rows->list[i]))
			continue;
		if (rows->list[i].how == SLOT_OTHER_KEY) {
			finding_add(pass, FINDING_SLOT_KEY, slot,
				    "issued, and Redis has another idempotency key for it");
		} else if (uncounted) {
			pass->rows_extra++;
			finding_add(pass, FINDING_ROW_UNKNOWN, slot,
				    "a user coupon that was never counted as settled, and that "
				    "Redis does not have");
		} else {
			pass->slots_missing++;
			finding_add(pass, FINDING_SLOT_MISSING, slot,
				    "issued, and Redis does not have it");
		}
	}
}

/* One of `wrong_n` slots that are no user coupons. */
static void open_judge(struct pass *pass, const struct suspect *suspect, int64_t wrong_n)
{
	int64_t taken = redis_coupon_taken(&pass->cut.coupon);
	/* How many of the slots without an outcome the counts of Redis include. */
	int64_t accepted = pass_counts_users(pass) ? wrong_n + taken - pass->cut.users
						   : taken - pass->counted;
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

/*
 * The counts, for what the findings before do not explain: issued_num against the rows; settled_num
 * and seq_seen against the outcomes, and the numbers that Redis gave out; then those in Redis.
 */
static void counts_judge(struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	const struct audit_row *row = &pass->row;
	const char *status = strcmp(row->status, "published") == 0 ? "open" : row->status;
	int64_t issued_over = pass->rows_n - row->issued, settled_over = pass_outcomes_over(pass),
		taken = redis_coupon_taken(c), taken_over = taken - pass->cut.users,
		doubt = (int64_t)pass->malformed.n * RECEIVE_SLOT_MAX;
	int is_whole = pass->cut.present && !pass->cut.bad && !pass->cut.held;
	int is_sum_wrong = pass->sum == SUM_AT_CUT ? taken_over > pass->slots_missing + doubt ||
							     taken_over < -pass->slots_extra - doubt
						   : pass->sum == SUM_WRONG;

	if (row->issued > row->total || pass->rows_n - pass->rows_extra > row->total)
		finding_add(pass, FINDING_OVERSOLD, NULL,
			    "the total is %" PRId64 ", issued %" PRId64 ", user coupons %" PRId64,
			    row->total, row->issued, pass->rows_n);
	else if (issued_over > pass->rows_extra || issued_over < -pass->rows_missing)
		finding_add(pass, FINDING_ISSUED_NUM, NULL,
			    "issued_num is %" PRId64 ", and there are %" PRId64 " user coupons",
			    row->issued, pass->rows_n);

	if (settled_over > pass->rows_extra + pass->both_n ||
	    (row->generation <= 1 && settled_over < -pass->rows_missing))
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
	else if (pass->compared && row->seq_seen > c->seq)
		finding_add(pass, FINDING_SEQ_SEEN, NULL,
			    "seq_seen is %" PRId64
			    ", and the last number that Redis gave out is %" PRId64,
			    row->seq_seen, c->seq);

	if (is_whole && !pass->compared)
		finding_add(pass, FINDING_REDIS_BEHIND, NULL,
			    "Redis has generation %" PRId64 " up to number %" PRId64
			    ", PostgreSQL generation %" PRId64 " up to %" PRId64,
			    c->generation, c->seq, row->generation, row->seq_seen);
	if (pass->compared && is_sum_wrong)
		finding_add(pass, FINDING_SUM, NULL,
			    "stock %" PRId64 " + reserved %" PRId64 " + lost %" PRId64
			    " leave %" PRId64 " of the total %" PRId64 ", and %" PRId64
			    " slots are taken",
			    c->stock, c->reserved, c->lost, taken, c->total,
			    pass_counts_users(pass) ? pass->cut.users
						    : pass->counted + (int64_t)pass->open.n);
	if (is_whole && c->version == row->version &&
	    (c->total != row->total || c->begin_ms != row->begin_ms || c->end_ms != row->end_ms ||
	     c->limit != row->limit || strcmp(c->status, status) != 0))
		finding_add(pass, FINDING_TERMS, NULL,
			    "version %" PRId64 " is status %s, total %" PRId64 ", begin %" PRId64
			    ", end %" PRId64 ", limit %" PRId64 " in Redis, and %s, %" PRId64
			    ", %" PRId64 ", %" PRId64 ", %" PRId64 " in PostgreSQL",
			    c->version, c->status, c->total, c->begin_ms, c->end_ms, c->limit,
			    status, row->total, row->begin_ms, row->end_ms, row->limit);
}

void pass_judge(struct pass *pass)
{
	twice_judge(pass);
	limit_judge(pass);
	rows_judge(pass);
	slots_judge(pass);
	malformed_judge(pass);
	counts_judge(pass);
}

static const struct {
	const char *what;
	enum finding finding;
	const char *text;
} use_findings[] = {
	{ "use_taken", FINDING_USE_TAKEN,
	  "changed by another order than the one that had used it" },
	{ "hold_taken", FINDING_HOLD_TAKEN, "changed by another order before the end of the hold" },
	{ "use_state", FINDING_USE_STATE, "its state is not that which its last change has left" },
	{ "use_unknown", FINDING_USE_UNKNOWN, "an order has it, and it was never issued" },
};

void uses_judge(const struct pass *pass)
{
	PGresult *rows = db_ask(pass->audit->db, sql_query_audit_uses,
				postgres_number(pass->coupon));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *what = column_text(rows, row, "what");
		struct slot slot;
		size_t i = 0;

		while (strcmp(use_findings[i].what, what) != 0)
			i++;
		slot_read(rows, row, 1, &slot);
		finding_add(pass, use_findings[i].finding, &slot,
			    "%s: order \"%s\", before it \"%s\"", use_findings[i].text,
			    column_text(rows, row, "order_id"),
			    column_text(rows, row, "old_order"));
	}
	PQclear(rows);
}

void budgets_judge(struct audit *audit, int64_t coupon)
{
	static const char *const amounts[] = { "amount", "held", "spent", "held_now", "spent_now" };
	PGresult *rows = db_ask(audit->db, sql_query_audit_budgets, db_id(coupon));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *currency = column_text(rows, row, "currency");
		char text[5][MONEY_SIZE];

		for (int i = 0; i < 5; i++)
			money_text(column_number(rows, row, amounts[i]), currency, text[i]);
		finding_add(&(struct pass){ .audit = audit,
					    .coupon = column_number(rows, row, "coupon_id") },
			    FINDING_BUDGET_SUM, NULL,
			    "its budget %s of %s %s has %s held and %s spent, and its receives %s "
			    "and %s",
			    column_text(rows, row, "name"), text[0], currency, text[1], text[2],
			    text[3], text[4]);
	}
	PQclear(rows);
}

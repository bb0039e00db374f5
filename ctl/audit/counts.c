#include "ctl/audit/counts.h"

#include "common/message/receive.h"

#include <inttypes.h>
#include <string.h>

/* issued_num, against the rows. */
static void issued_judge(struct pass *pass, const struct explained *explained)
{
	const struct audit_row *row = &pass->row;
	struct place place = { .coupon = pass->coupon };
	int64_t over = pass->rows_n - row->issued;

	if (row->issued > row->total || pass->rows_n - explained->rows_extra > row->total)
		finding_add(&pass->audit->findings, FINDING_OVERSOLD, &place,
			    "the total is %" PRId64 ", issued %" PRId64 ", user coupons %" PRId64,
			    row->total, row->issued, pass->rows_n);
	else if (over > explained->rows_extra || over < -explained->rows_missing)
		finding_add(&pass->audit->findings, FINDING_ISSUED_NUM, &place,
			    "issued_num is %" PRId64 ", and there are %" PRId64 " user coupons",
			    row->issued, pass->rows_n);
}

/* settled_num and seq_seen, against the outcomes and the numbers that Redis gave out. */
static void settled_judge(struct pass *pass, const struct explained *explained)
{
	const struct audit_row *row = &pass->row;
	struct place place = { .coupon = pass->coupon };
	int64_t over = pass_outcomes_over(pass);

	if (over > explained->rows_extra + explained->both_n ||
	    (row->generation <= 1 && over < -explained->rows_missing))
		finding_add(&pass->audit->findings, FINDING_SETTLED_NUM, &place,
			    "settled_num is %" PRId64
			    " over all generations, and there are %" PRId64
			    " user coupons and %" PRId64 " rejections",
			    row->settled_sum, pass->rows_n, row->rejected);
	else if (row->settled > row->seq_seen)
		finding_add(&pass->audit->findings, FINDING_SEQ_SEEN, &place,
			    "seq_seen is %" PRId64 ", and %" PRId64
			    " receives of this generation are settled",
			    row->seq_seen, row->settled);
	else if (pass->compared && row->seq_seen > pass->cut.coupon.seq)
		finding_add(&pass->audit->findings, FINDING_SEQ_SEEN, &place,
			    "seq_seen is %" PRId64
			    ", and the last number that Redis gave out is %" PRId64,
			    row->seq_seen, pass->cut.coupon.seq);
}

/* The sum of the counts in Redis. */
static int sum_is_wrong(const struct pass *pass, const struct explained *explained,
			enum sum_verdict sum)
{
	int64_t over = cut_taken(&pass->cut) - pass->cut.users,
		doubt = (int64_t)pass->malformed.n * RECEIVE_SLOT_MAX;

	if (sum != SUM_AT_CUT)
		return sum == SUM_WRONG;
	return over > explained->slots_missing + doubt || over < -explained->slots_extra - doubt;
}

static void sum_judge(struct pass *pass, const struct explained *explained, enum sum_verdict sum)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	struct place place = { .coupon = pass->coupon };

	if (pass->compared && sum_is_wrong(pass, explained, sum))
		finding_add(&pass->audit->findings, FINDING_SUM, &place,
			    "stock %" PRId64 " + reserved %" PRId64 " + lost %" PRId64
			    " leave %" PRId64 " of the total %" PRId64 ", and %" PRId64
			    " slots are taken",
			    c->stock, c->reserved, c->lost, cut_taken(&pass->cut), c->total,
			    pass_counts_users(pass) ? pass->cut.users
						    : pass->counted + (int64_t)pass->open.n);
}

static void terms_judge(struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	const struct audit_row *row = &pass->row;
	const char *status = strcmp(row->status, "published") == 0 ? "open" : row->status;
	struct place place = { .coupon = pass->coupon };

	if (!pass->cut.present || pass->cut.bad || pass->cut.held || c->version != row->version)
		return;
	if (c->total == row->total && c->begin_ms == row->begin_ms && c->end_ms == row->end_ms &&
	    c->limit == row->limit && strcmp(c->status, status) == 0)
		return;
	finding_add(&pass->audit->findings, FINDING_TERMS, &place,
		    "version %" PRId64 " is status %s, total %" PRId64 ", begin %" PRId64
		    ", end %" PRId64 ", limit %" PRId64 " in Redis, and %s, %" PRId64 ", %" PRId64
		    ", %" PRId64 ", %" PRId64 " in PostgreSQL",
		    c->version, c->status, c->total, c->begin_ms, c->end_ms, c->limit, status,
		    row->total, row->begin_ms, row->end_ms, row->limit);
}

static void behind_judge(struct pass *pass)
{
	struct place place = { .coupon = pass->coupon };

	if (pass->cut.present && !pass->cut.bad && !pass->cut.held && !pass->compared)
		finding_add(&pass->audit->findings, FINDING_REDIS_BEHIND, &place,
			    "Redis has generation %" PRId64 " up to number %" PRId64
			    ", PostgreSQL generation %" PRId64 " up to %" PRId64,
			    pass->cut.coupon.generation, pass->cut.coupon.seq, pass->row.generation,
			    pass->row.seq_seen);
}

void counts_judge(struct pass *pass, const struct explained *explained, enum sum_verdict sum)
{
	issued_judge(pass, explained);
	settled_judge(pass, explained);
	behind_judge(pass);
	sum_judge(pass, explained, sum);
	terms_judge(pass);
}

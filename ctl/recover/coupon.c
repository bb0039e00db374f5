/*
 * Each step is committed by itself, or none of them if nothing is to be changed, and may be
 * repeated:
 *
 *	recover --all     terms ─▶ generation as in Redis ─▶ rejections ─▶ receives, by settle()
 *	                  ─▶ counts, and a new generation
 *	--accept-loss     version above that of Redis ─▶ generation as in Redis ─▶ rejections
 *	                  ─▶ receives, by receive_lost() ─▶ counts, and a new generation
 *
 * The new generation makes the keeper rebuild the coupon in Redis from PostgreSQL.
 */
#include "ctl/recover/coupon.h"

#include "common/fault.h"
#include "ctl/recover/coupons.h"
#include "ctl/recover/loss.h"
#include "ctl/recover/rejected.h"
#include "ctl/recover/report.h"
#include "ctl/recover/settle.h"
#include "ctl/recover/terms.h"
#include "embed.h"

/* Whether PostgreSQL has the coupon. */
static int generation_begin(struct recover_coupon *coupon)
{
	char id[DB_NUMBER_SIZE], generation[DB_NUMBER_SIZE], revocation[DB_NUMBER_SIZE];
	PGresult *result = db_query(coupon->recover->db, sql_query_recover_begin, 2,
				    (const char *[]){ db_number(coupon->id, id),
						      db_number(coupon->generation, generation) });
	int is_there = !db_is_null(result, 0, "generation");

	coupon->settling = db_int(result, 0, "generation");
	PQclear(result);
	PQclear(db_query(coupon->recover->db, sql_query_recover_revocation, 3,
			 (const char *[]){ id, db_number(coupon->revocation, revocation),
					   db_number(coupon->settling, generation) }));
	return is_there;
}

static void generation_end(struct recover_coupon *coupon)
{
	/* What Redis has reserved is in flight, and has no slot there. */
	const struct postgres_argument arguments[] = {
		postgres_number(coupon->id),
		postgres_number(coupon->generation),
		postgres_array(&coupon->generations),
		postgres_array(&coupon->highs),
		postgres_number(coupon->own_owed),
		postgres_number(coupon->older_owed + (coupon->has_hash ? coupon->reserved : 0))
	};

	PQclear(db_query_arguments(coupon->recover->db, sql_query_recover_end, 6, arguments));
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

void recover_coupon_run(struct recover *recover, int64_t id)
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

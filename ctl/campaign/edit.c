/*
 * couponctl edit: changes the terms of a campaign, also while it issues. PostgreSQL gets the new
 * terms, then Redis; a lower limit is applied to Redis first, as a lower total is (stock.c).
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/campaign/change.h"
#include "ctl/campaign/terms.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define PAST_MS 60000 /* clocks differ */

/* The window as it would be. */
static void window_check(const struct change *change)
{
	int64_t begin_ms = change->terms.begin_ms, end_ms = change->terms.end_ms;

	terms_window(change->args, &begin_ms, &end_ms);
	if (end_ms && end_ms != change->terms.end_ms && end_ms < clock_wall_ms() - PAST_MS)
		args_fail("--end is \"%s\": allowed is a time that is not past, or now",
			  args_text(change->args, "end"));
	if (end_ms && end_ms <= begin_ms)
		log_fatal("coupon %lld would end before it begins: give both --begin and --end; "
			  "nothing was changed",
			  (long long)change->coupon);
}

/* In the transaction. Returns whether anything differs. */
static int edit_apply(struct change *change, const cJSON *terms)
{
	char id[DB_NUMBER_SIZE], *text = cJSON_PrintUnformatted(terms);
	PGresult *result;
	int differs;

	check(text != NULL);
	result = db_query(change->db, sql_query_coupon_edit, 2,
			  (const char *[]){ db_number(change->coupon, id), text });
	differs = PQntuples(result) > 0;
	PQclear(result);
	cJSON_free(text);
	return differs;
}

/* Before the COMMIT: Redis never accepts what PostgreSQL does not. */
static void limit_lower(struct change *change, int64_t limit)
{
	struct terms lower = change->terms;
	int64_t taken = change->issued_num, version = 0;

	lower.limit = limit;
	if (taken == 0)
		taken = change_lower(change, &lower, &version);
	if (taken > 0)
		log_fatal("--limit is %lld: it may be lowered only while nothing is taken, and "
			  "%lld coupons are taken; nothing was changed",
			  (long long)limit, (long long)taken);
	/* Above the version of Redis, which is to get all the other terms as well. */
	if (version > 0)
		change_version_raise(change, version + 1);
}

static int edit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	cJSON *terms = terms_read(args);
	struct change change;
	int64_t limit;
	int status;

	args_required(args, "version");
	if (!terms->child)
		args_fail("edit needs something to change; see couponctl edit --help");
	change_begin(&change, ctl);
	limit = args_number(args, "limit", 1, RECEIVE_SLOT_MAX, change.terms.limit);
	if (strcmp(change.status, "closed") == 0)
		log_fatal("coupon %lld is ended: its terms are final", (long long)change.coupon);
	window_check(&change);
	if (edit_apply(&change, terms)) {
		change_needed(&change);
		if (limit < change.terms.limit)
			limit_lower(&change, limit);
	}
	cJSON_Delete(terms);
	status = change_commit(&change);
	printf("coupon %lld has version %lld\n", (long long)change.coupon,
	       (long long)change.terms.version);
	change_fini(&change);
	return status;
}

static const struct option edit_options[] = {
	TERMS_OPTIONS,
	CHANGE_OPTIONS,
	OPTIONS_END,
};

const struct command edit_command = {
	.name = "edit",
	.run = edit_run,
	.argument = "ID",
	.options = edit_options,
	.summary = "change the terms of a campaign, also while it issues",
	.detail =
		"Needs --version, which couponctl show prints: the edit is refused, with exit\n"
		"status 8, when another one came in between. T may be now, and none removes what\n"
		"the coupon has: a time, the validity, the discount (--amount-off none) or the\n"
		"metadata. Validity and discount are replaced as a whole. Coupons that are issued\n"
		"already keep their validity. The limit may be lowered only while nothing is "
		"taken.\n"
		"The total is changed by couponctl stock.",
};

/*
 * couponctl stock: changes the total. An increase is applied to PostgreSQL first. A decrease is
 * applied to Redis first, because Redis has the taken slots, under the lock of the row in
 * PostgreSQL. So Redis never issues more than PostgreSQL accepts, wherever the command is
 * interrupted, and repeating it completes the change.
 */
#include "common/message/json.h"
#include "common/log/log.h"
#include "ctl/campaign/change.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static void total_set(struct change *change, int64_t total)
{
	char id[DB_NUMBER_SIZE], number[DB_NUMBER_SIZE];
	PGresult *result = db_query(change->db, sql_query_coupon_total_set, 2,
				    (const char *[]){ db_number(change->coupon, id),
						      db_number(total, number) });

	int64_t set = db_int(result, 0, "total_num"), issued = db_int(result, 0, "issued_num");

	PQclear(result);
	if (set != total)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)issued);
}

static void total_lower(struct change *change, int64_t total)
{
	int64_t taken = change->loaded == 1 ? change->in_redis.total - change->in_redis.stock -
						      change->in_redis.lost
					    : 0,
		version;
	struct terms lower = change->terms;

	/* Redis may be behind PostgreSQL, for instance just after it lost its data. */
	if (total < change->issued_num && taken <= change->issued_num)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)change->issued_num);
	lower.total = total;
	if (total >= taken)
		taken = change_lower(change, &lower, &version);
	if (taken > total)
		log_fatal("--total is %lld: allowed is at least the %lld that are taken",
			  (long long)total, (long long)taken);
	/* total_set() adds one: then both stores have the same version. */
	if (version > 0)
		change_version_raise(change, version - 1);
	total_set(change, total);
}

static int stock_run(struct ctl *ctl)
{
	int64_t total;
	struct change change;
	int status;

	args_required(&ctl->args, "total");
	total = args_number(&ctl->args, "total", 0, JSON_INTEGER_MAX, 0);
	change_begin(&change, ctl);
	if (total != change.terms.total)
		change_needed(&change);
	if (total < change.terms.total)
		total_lower(&change, total);
	else if (total > change.terms.total)
		total_set(&change, total);
	status = change_commit(&change);
	printf("coupon %lld has a total of %lld, of which %lld are issued\n",
	       (long long)change.coupon, (long long)total, (long long)change.issued_num);
	change_fini(&change);
	return status;
}

static const struct option stock_options[] = {
	OPTION("total", "N",
	       "number of coupons, including the issued ones; at least the number of taken slots"),
	CHANGE_OPTIONS,
	OPTIONS_END,
};

const struct command stock_command = {
	.name = "stock",
	.run = stock_run,
	.argument = "ID",
	.options = stock_options,
	.summary = "set the total",
	.detail = "N is absolute, so repeating the command changes nothing.",
};

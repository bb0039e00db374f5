/*
 * couponctl stock: changes the total. An increase is applied to PostgreSQL first. A decrease is
 * applied to Redis first, because Redis has the taken slots, under the lock of the row in
 * PostgreSQL. So Redis never issues more than PostgreSQL accepts, wherever the command is
 * interrupted, and repeating it completes the change.
 */
#include "common/message/json.h"
#include "common/log/log.h"
#include "ctl/command/change.h"
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

static void total_lower_in_redis(struct change *change, int64_t total)
{
	struct terms terms = change->terms;
	int64_t taken;

	terms.total = total;
	if (change->in_redis.version > terms.version)
		terms.version = change->in_redis.version;
	terms.version++;
	switch (redis_coupon_terms(change->redis, change->coupon, &terms, &taken)) {
	case TERMS_APPLIED:
		/* total_set() adds one: then both stores have the same version. */
		change_version_raise(change, terms.version - 1);
		return;
	case TERMS_TAKEN:
		log_fatal("--total is %lld: allowed is at least the %lld that are taken",
			  (long long)total, (long long)taken);
	case TERMS_FAILED:
		log_fatal("Redis refused, and nothing was changed: %s",
			  redis_client_error(change->redis));
	case TERMS_CURRENT:
	case TERMS_MISSING:
		log_fatal("coupon %lld was changed in Redis at the same time: run this again",
			  (long long)change->coupon);
	}
}

static void total_lower(struct change *change, int64_t total)
{
	int64_t taken = change->loaded == 1 ? change->in_redis.total - change->in_redis.stock -
						      change->in_redis.lost
					    : 0;

	/* Redis may be behind PostgreSQL, for instance just after it lost its data. */
	if (total < change->issued_num && taken <= change->issued_num)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)change->issued_num);
	if (total < taken)
		log_fatal("--total is %lld: allowed is at least the %lld that are taken",
			  (long long)total, (long long)taken);
	/* Otherwise Redis may have an older state, and its taken slots mean nothing. */
	if (change->loaded == 1 && !redis_coupon_is_verified(change->redis, &change->in_redis))
		log_fatal(
			"Redis was restarted, and no coupon-worker has verified coupon %lld since: "
			"nothing was changed; run this again when it is verified",
			(long long)change->coupon);
	if (change->loaded == 1)
		total_lower_in_redis(change, total);
	else if (change->loaded < 0 && strcmp(change->status, "draft") != 0)
		log_fatal("Redis, which has the taken slots, cannot be read: %s; nothing was "
			  "changed",
			  redis_client_error(change->redis));
	else if (strcmp(change->status, "draft") != 0)
		log_fatal(
			"Redis, which has the taken slots, does not have coupon %lld: nothing was "
			"changed",
			(long long)change->coupon);
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

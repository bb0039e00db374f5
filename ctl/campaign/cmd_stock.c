/*
 * couponctl stock: sets the total of a campaign. An increase is committed in PostgreSQL first. A
 * decrease is applied to Redis before the COMMIT, because Redis has the taken slots, under the lock
 * of the row in PostgreSQL. So Redis never issues more than PostgreSQL accepts, wherever the
 * command is interrupted, and repeating it completes the change.
 */
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/campaign/change.h"
#include "embed.h"

static void total_set(struct change *change, int64_t total)
{
	PGresult *result = db_ask(change->db, sql_query_coupon_total_set,
				  postgres_number(change->coupon), postgres_number(total));
	int64_t set = column_number(result, 0, "total_num"),
		issued = column_number(result, 0, "issued_num");

	PQclear(result);
	if (set != total)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)issued);
}

static int stock_run(struct ctl *ctl)
{
	struct change change;
	struct terms lower;
	int64_t total;
	int status;

	args_required(&ctl->args, "total");
	total = args_number(&ctl->args, "total", 0, JSON_INTEGER_MAX, 0);
	change_begin(&change, ctl);
	if (total != change.terms.total)
		change_needed(&change);

	if (total > change.terms.total) {
		total_set(&change, total);
	} else if (total < change.terms.total) {
		/* Reserved stock counts as taken. */
		int64_t taken = change.loaded == 1 ? change.in_redis.total - change.in_redis.stock -
							     change.in_redis.lost
						   : 0;

		/* Redis may be behind PostgreSQL, for instance just after it lost its data. */
		if (total < change.issued_num && taken <= change.issued_num)
			log_fatal("--total is %lld: allowed is at least the %lld that are issued",
				  (long long)total, (long long)change.issued_num);
		lower = change.terms;
		lower.total = total;
		if (total >= taken) {
			total_set(&change, total);
			taken = change_lower(&change, &lower);
		}
		if (taken > total)
			log_fatal("--total is %lld: allowed is at least the %lld that are taken",
				  (long long)total, (long long)taken);
	}

	status = change_commit(&change);
	change_say(&change,
		   "coupon {coupon} has a total of {total}, of which {issued} are issued\n");
	change_fini(&change);
	return status;
}

const struct command stock_command = {
	.name = "stock",
	.run = stock_run,
	.argument = "ID",
	.options = OPTIONS(OPTION("total", "N",
				  "number of coupons, including the issued ones; at least the "
				  "number of taken slots"),
			   CHANGE_OPTIONS),
	.summary = "set the total of a campaign",
	.detail = "N is absolute, so repeating the command changes nothing.",
};

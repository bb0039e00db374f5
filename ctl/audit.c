/* couponctl audit: the promises, checked on a live system. What is wrong is named; the exit status is the verdict. */
#include "ctl/audit.h"

#include "common/check.h"
#include "common/log.h"
#include "ctl/ctl.h"
#include "embed.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 500

void audit_wrong(struct audit *audit, const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	audit->wrong_n++;
	if (audit->wrong)
		check(cJSON_AddItemToArray(audit->wrong, cJSON_CreateString(text)));
	else
		printf("WRONG %s\n", text);
}

static void stock_wrong(struct audit *audit, const PGresult *result, int row)
{
	if (db_is_null(result, row, "total_num"))
		audit_wrong(audit, "coupon %s: P1: %s user coupons, and no such coupon", db_text(result, row, "coupon_id"),
			    db_text(result, row, "row_num"));
	else
		audit_wrong(audit, "coupon %s: P1: total %s, issued %s, user coupons %s",
			    db_text(result, row, "coupon_id"), db_text(result, row, "total_num"),
			    db_text(result, row, "issued_num"), db_text(result, row, "row_num"));
}

static void limit_wrong(struct audit *audit, const PGresult *result, int row)
{
	audit_wrong(audit, "coupon %s, user %s: P2: %s coupons, slots %s to %s, and the limit is %s",
		    db_text(result, row, "coupon_id"), db_text(result, row, "user_id"), db_text(result, row, "row_num"),
		    db_text(result, row, "slot_min"), db_text(result, row, "slot_max"),
		    db_text(result, row, "user_limit"));
}

static void twice_wrong(struct audit *audit, const PGresult *result, int row)
{
	audit_wrong(audit, "coupon %s, user %s: P3: batch %s index %s is %s", db_text(result, row, "coupon_id"),
		    db_text(result, row, "user_id"), db_text(result, row, "batch"), db_text(result, row, "idx"),
		    strcmp(db_text(result, row, "what"), "issued_twice") == 0 ? "issued twice" : "issued and rejected");
}

/* P1, P2 and P3 as PostgreSQL alone can tell them; `coupon` NULL: of all. */
static void database_audit(struct audit *audit, const char *coupon)
{
	static const struct {
		const char *sql;
		void (*wrong)(struct audit *audit, const PGresult *result, int row);
	} steps[] = {
		{ sql_query_audit_stock, stock_wrong },
		{ sql_query_audit_limit, limit_wrong },
		{ sql_query_audit_twice, twice_wrong },
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		PGresult *result = db_query(audit->db, steps[i].sql, 1, &coupon);

		for (int row = 0; row < PQntuples(result); row++)
			steps[i].wrong(audit, result, row);
		PQclear(result);
	}
}

static void redis_print(const char *coupon, const struct audit_redis *found)
{
	const struct cache_coupon *c = &found->coupon;

	if (!found->loaded) {
		printf("coupon %s: not in Redis\n", coupon);
		return;
	}
	printf("coupon %s: total %lld, stock %lld, taken slots %lld, reserved %lld, in flight %lld%s; %s\n", coupon,
	       (long long)c->total, (long long)c->stock, (long long)found->slots, (long long)c->reserved,
	       (long long)found->in_flight, found->verified ? "" : ", not verified on this Redis process",
	       found->settled	    ? "settled, and each slot was compared" :
	       found->consistent ? "not settled" :
				     "changing while it was read");
	if (found->unreleased)
		printf("coupon %s: %lld rejected receives whose slots were not given back yet\n", coupon,
		       (long long)found->unreleased);
	if (c->lost)
		printf("coupon %s: %lld of the total are lost until it is rebuilt\n", coupon, (long long)c->lost);
}

static cJSON *redis_json(const char *coupon, const struct audit_redis *found)
{
	const struct cache_coupon *c = &found->coupon;
	cJSON *object = output_object();

	output_text(object, "coupon", coupon);
	output_bool(object, "loaded", found->loaded);
	if (!found->loaded)
		return object;
	output_bool(object, "verified", found->verified);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", found->slots);
	output_number(object, "reserved", c->reserved);
	output_number(object, "in_flight", found->in_flight);
	output_bool(object, "consistent", found->consistent);
	output_bool(object, "settled", found->settled);
	output_number(object, "unreleased", found->unreleased);
	output_number(object, "lost", c->lost);
	return object;
}

static void coupon_audit(struct audit *audit, const char *coupon, cJSON *coupons)
{
	struct audit_redis found;

	audit_redis(audit, strtoll(coupon, NULL, 10), &found);
	if (coupons)
		check(cJSON_AddItemToArray(coupons, redis_json(coupon, &found)));
	else
		redis_print(coupon, &found);
}

/* Every coupon after its draft; how many there were. */
static int64_t coupons_audit(struct audit *audit, cJSON *coupons)
{
	char after[DB_NUMBER_SIZE] = "0", count[DB_NUMBER_SIZE];
	int64_t n = 0;
	int rows_n;

	do {
		PGresult *page = db_query(audit->db, sql_query_coupon_list, 2,
					  (const char *[]){ after, db_number(PAGE, count) });

		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++) {
			if (strcmp(db_text(page, row, "status"), "draft") != 0) {
				coupon_audit(audit, db_text(page, row, "id"), coupons);
				n++;
			}
			snprintf(after, sizeof(after), "%s", db_text(page, row, "id"));
		}
		PQclear(page);
	} while (rows_n == PAGE);
	return n;
}

static void coupon_need(struct audit *audit, const char *coupon)
{
	PGresult *result = db_query(audit->db, sql_query_coupon_state, 1, &coupon);
	int known = PQntuples(result) > 0;

	PQclear(result);
	if (!known)
		log_fatal("there is no coupon %s", coupon);
}

static void verdict_print(struct audit *audit, int64_t coupons_n, cJSON *coupons)
{
	cJSON *object;

	if (!coupons) {
		printf("%s: %lld coupon%s audited, %lld wrong\n", audit->wrong_n ? "FAIL" : "PASS", (long long)coupons_n,
		       coupons_n == 1 ? "" : "s", (long long)audit->wrong_n);
		return;
	}
	object = output_object();
	output_bool(object, "passed", audit->wrong_n == 0);
	output_number(object, "audited", coupons_n);
	output_add(object, "coupons", coupons);
	output_add(object, "wrong", audit->wrong);
	output_print(object);
}

static int audit_run(struct ctl *ctl)
{
	int json = args_has(&ctl->args, "json");
	const char *coupon = args_coupon(&ctl->args) ? ctl->args.argument : NULL;
	cJSON *coupons = json ? cJSON_CreateArray() : NULL;
	char error[CACHE_ERROR_SIZE];
	struct audit audit = { .wrong = json ? cJSON_CreateArray() : NULL };
	int64_t coupons_n = 1;

	if (!coupon == !args_has(&ctl->args, "all"))
		args_fail("audit takes either a coupon's ID or --all");
	audit.db = db_open("DATABASE_URL", ctl->config.database_url);
	audit.cache = cache_open(ctl->config.redis_url, error);
	if (!audit.cache)
		log_fatal("Redis, which REDIS_URL names, cannot be reached: %s", error);
	if (coupon)
		coupon_need(&audit, coupon);
	database_audit(&audit, coupon);
	if (coupon)
		coupon_audit(&audit, coupon, coupons);
	else
		coupons_n = coupons_audit(&audit, coupons);
	verdict_print(&audit, coupons_n, coupons);
	cache_close(audit.cache);
	db_close(audit.db);
	return audit.wrong_n ? 1 : 0;
}

static const struct option audit_options[] = {
	{ "all", NULL, "every coupon" },
	{ "json", NULL, "print one JSON object" },
	{ NULL, NULL, NULL },
};

const struct command audit_command = {
	.name = "audit",
	.run = audit_run,
	.argument = "[ID]",
	.options = audit_options,
	.summary = "check the promises, on a live system too",
	.detail = "P1 never oversold, P2 never over the limit, P3 no receive with two outcomes: in PostgreSQL. P4 in Redis: stock +\n"
		  "taken slots + reserved + lost = total; and when nothing is in flight, each slot is a row and each row a slot.\n"
		  "Each thing that is wrong is named. The exit status is the verdict.",
};

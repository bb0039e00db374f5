/*
 * couponctl audit: checks the promises on a live system. It names what is wrong; the exit status is
 * the verdict.
 */
#include "ctl/audit/audit.h"

#include "common/log/log.h"
#include "ctl/audit/group.h"
#include "ctl/audit/postgres.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

/* Exit statuses, besides 0 and 1. */
#define NO_VERDICT 4 /* a store could not be read, or the data is undecided */
#define STALLED 5    /* no finding, but receives are in flight without progress */

#define PATIENCE_MS 15000 /* a rebuild takes seconds */
#define RESOLVE_MS 4000   /* a receive gets its outcome within milliseconds */
#define GRACE_S 30
#define STALLED_S 60
#define SECONDS_MAX 86400

/* Reports user coupons of coupons that do not exist. Returns how many. */
static int64_t unknown_audit(struct audit *audit, const char *coupon)
{
	PGresult *rows = db_query(audit->db, sql_query_audit_unknown, 1, &coupon);
	int64_t n = PQntuples(rows);
	struct columns columns;
	struct slot slot;

	columns_find(rows, &columns);
	for (int row = 0; row < PQntuples(rows); row++) {
		slot_read(rows, row, &columns, &slot);
		finding_add(&audit->findings, FINDING_COUPON_UNKNOWN,
			    &(struct place){ .coupon = db_int(rows, row, "coupon_id"),
					     .user = &slot.user,
					     .slot = slot.number,
					     .batch = &slot.batch,
					     .index = slot.index },
			    "a user coupon of a coupon that does not exist");
	}
	PQclear(rows);
	return n;
}

static void row_audit(void *context, const PGresult *page, int row)
{
	group_audit(context, db_int(page, row, "id"));
}

static int is_known(struct audit *audit, int64_t coupon)
{
	struct audit_row row;

	audit_row_read(audit->db, coupon, &row);
	return row.known;
}

static int verdict(const struct audit *audit)
{
	if (audit->findings.n > 0)
		return 1;
	if (audit->stalled_n > 0)
		return STALLED;
	return audit->undecided_n > 0 || audit->behind > 0 ? NO_VERDICT : 0;
}

static const char *const verdict_words[] = {
	[0] = "PASS", [1] = "FAIL", [NO_VERDICT] = "UNKNOWN", [STALLED] = "STALLED"
};

static void verdict_print(struct audit *audit, int64_t coupons_n, cJSON *coupons)
{
	cJSON *object;

	if (!coupons) {
		if (audit->behind > 0)
			printf(BEHIND_TEXT "\n", (long long)audit->behind);
		printf("%s: %lld coupon%s audited, %lld wrong", verdict_words[verdict(audit)],
		       (long long)coupons_n, coupons_n == 1 ? "" : "s",
		       (long long)audit->findings.n);
		if (audit->stalled_n > 0)
			printf(", %lld with receives in flight without progress",
			       (long long)audit->stalled_n);
		printf("\n");
		return;
	}
	object = output_object();
	output_bool(object, "passed", verdict(audit) == 0);
	output_text(object, "verdict", verdict_words[verdict(audit)]);
	output_number(object, "audited", coupons_n);
	output_number(object, "behind", audit->behind);
	output_add(object, "coupons", coupons);
	findings_end(&audit->findings, object);
}

static void open_all(struct audit *audit, struct ctl *ctl)
{
	audit->db = store_postgres_open(ctl);
	audit_session_set(audit->db);
	audit->redis = store_redis_open(ctl);
	store_run_id_read(audit->redis, audit->run_id);
	audit->behind = behind_read(audit->db, audit->redis);
	store_redis_check(audit->redis, audit->behind >= 0);
	audit->broker = broker_new(ctl->config.amqp_url);
}

static void close_all(struct audit *audit)
{
	broker_free(audit->broker);
	redis_client_free(audit->redis);
	db_close(audit->db);
}

const char *audit_coupon(struct ctl *ctl, int64_t coupon)
{
	struct audit audit = { .findings.silent = 1,
			       .patience_ms = PATIENCE_MS,
			       .resolve_ms = RESOLVE_MS,
			       .resend_after_ms = ctl->config.resend_after_ms,
			       .grace_ms = 1000 * GRACE_S,
			       .stalled_ms = 1000 * STALLED_S };
	struct group group = { .audit = &audit, .coupons = cJSON_CreateArray() };

	open_all(&audit, ctl);
	group_audit(&group, coupon);
	group_end(&group);
	cJSON_Delete(group.coupons);
	close_all(&audit);
	return verdict_words[verdict(&audit)];
}

static int audit_run(struct ctl *ctl)
{
	int json = args_has(&ctl->args, "json");
	const char *coupon = args_coupon(&ctl->args) ? ctl->args.argument : NULL;
	struct audit audit = { .findings.json = json,
			       .patience_ms = PATIENCE_MS,
			       .resolve_ms = RESOLVE_MS };
	cJSON *coupons = json ? cJSON_CreateArray() : NULL;
	struct group group = { .audit = &audit, .coupons = coupons };
	int64_t coupons_n = 1;

	if (!coupon == !args_has(&ctl->args, "all"))
		args_fail("audit takes either a coupon's ID or --all");
	audit.resend_after_ms = ctl->config.resend_after_ms;
	audit.grace_ms = 1000 * args_number(&ctl->args, "grace", 0, SECONDS_MAX, GRACE_S);
	audit.stalled_ms = 1000 *
			   args_number(&ctl->args, "stalled-after-s", 0, SECONDS_MAX, STALLED_S);
	log_fatal_status(NO_VERDICT);
	open_all(&audit, ctl);
	if (!coupon) {
		unknown_audit(&audit, NULL);
		coupons_n = store_coupons_read(audit.db, sql_query_coupon_list, 0, INT64_MAX,
					       row_audit, &group);
	} else if (is_known(&audit, args_coupon(&ctl->args))) {
		group_audit(&group, args_coupon(&ctl->args));
	} else if (unknown_audit(&audit, coupon) == 0) {
		log_fatal("there is no coupon %s", coupon);
	}
	group_end(&group);
	verdict_print(&audit, coupons_n, coupons);
	close_all(&audit);
	return verdict(&audit);
}

static const struct option audit_options[] = {
	SWITCH("all", "audit every coupon"),
	OPTION("grace", "S",
	       "receives that are younger count as in flight, in seconds; 0 to 86400, default 30"),
	OPTION("stalled-after-s", "S",
	       "receives in flight without progress for longer are stalled; 0 to 86400, default "
	       "60"),
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command audit_command = {
	.name = "audit",
	.run = audit_run,
	.argument = "[ID]",
	.options = audit_options,
	.summary = "check the promises on a live system",
	.detail = "P1: nothing is oversold. P2: no user is over the limit. P3: each receive has\n"
		  "one outcome. P4: in Redis, stock + taken slots + reserved + lost = total,\n"
		  "and each slot is a user coupon or in flight. Each finding is printed;\n"
		  "nothing is changed. The last line begins with the verdict. Exit status:\n"
		  "  0  PASS     no finding\n"
		  "  1  FAIL     findings\n"
		  "  5  STALLED  no finding, but receives are in flight without progress; what\n"
		  "              they wait for is printed\n"
		  "  4  UNKNOWN  no verdict: a store could not be read, or the data is\n"
		  "              undecided",
};

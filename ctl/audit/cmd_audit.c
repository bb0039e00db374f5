/*
 * couponctl audit: checks the promises on a live system. It names what is wrong; the exit status is
 * the verdict.
 */
#include "ctl/audit/audit.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/recover/recover_keys.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 15000 /* a rebuild takes seconds */
#define RESOLVE_MS 4000   /* a receive gets its outcome within milliseconds */
#define GRACE_S 30
#define STALLED_S 60
#define SECONDS_MAX 86400

#define GROUP_MAX 1000                   /* coupons */
#define GROUP_SUSPECTS_MAX (1000 * 1000) /* 120 MB */
#define PASSES_MAX 6
#define SUSPECT_PASSES 3 /* that must find the sum wrong while receives are accepted */
#define PATIENCE_PAUSE_MS 100
#define LOOK_PAUSE_MS 250
#define STALL_PAUSE_MS (LOCKS_OPEN_MS + 100)

/*
 * Coupons that are audited together. Most are judged after one look. Those with receives that are
 * overdue or stalled need several looks with pauses in between: they are kept, and looked at
 * together, so that a pause is for all of them.
 */
struct group {
	struct audit *audit;
	cJSON *coupons;               /* the figures of each; NULL: they are printed */
	struct pass *list[GROUP_MAX]; /* the last one of each coupon */
	size_t n;
	size_t suspects_n;
};

/* Whether a keeper is about to load, verify or rebuild the coupon. */
static int is_unsettled(const struct audit_row *row, const struct cut *cut)
{
	if (!cut->keeper || cut->bad)
		return 0;
	if (!cut->present)
		return strcmp(row->status, "published") == 0 || strcmp(row->status, "paused") == 0;
	return !cut->verified || cut->coupon.generation != row->generation;
}

/*
 * After the looks: whether the coupon was rebuilt, loaded or unloaded during the pass. Then another
 * one is needed, unless there were enough.
 */
static int is_void(const struct pass *pass)
{
	struct cut now;

	if (pass->passes_n >= PASSES_MAX)
		return 0;
	cut_read(pass, &now, NULL, 0);
	return !pass->cut.bad && (now.present != pass->cut.present ||
				  now.coupon.generation != pass->cut.coupon.generation);
}

/* Repeats the pass until the sum is sure, then takes the first look. */
static void passes_run(struct pass *pass)
{
	struct audit *audit = pass->audit;
	struct audit_row row;
	struct cut cut;
	int is_sure;

	do {
		pass_fini(pass);
		for (; audit->patience_ms > 0; audit->patience_ms -= PATIENCE_PAUSE_MS) {
			row_read(pass, &row, NULL);
			cut_read(pass, &cut, NULL, 0);
			if (!is_unsettled(&row, &cut))
				break;
			store_run_id_read(audit->redis, audit->run_id);
			usleep(PATIENCE_PAUSE_MS * 1000);
		}
		pass_run(pass);
		pass->sum = pass_sum(pass);
		if (pass->sum == SUM_SUSPECT && ++pass->suspected_n == SUSPECT_PASSES)
			pass->sum = SUM_WRONG;
		is_sure = pass->sum != SUM_SUSPECT && pass->sum != SUM_UNSURE;
	} while (!is_sure && pass->passes_n < PASSES_MAX);
	slot_set_fini(&pass->set); /* it is large, and of no more use */
	pass->look.done = 1;
	if (is_sure)
		look_start(pass);
}

static void pass_end(struct pass *pass, cJSON *coupons)
{
	struct audit *audit = pass->audit;

	pass_judge(pass);
	codes_judge(pass);
	uses_judge(pass);
	audit->stalled_n += pass->stall.n > 0;
	audit->undecided_n += (pass->undecided && !pass->broker.ok) || pass->cut.held;
	if (coupons)
		check(cJSON_AddItemToArray(coupons, figures_json(pass)));
	else
		figures_print(pass);
	pass_fini(pass);
	free(pass);
}

/* Looks at the kept coupons until no look can find out more about any of them, and judges them. */
static void group_end(struct group *group)
{
	struct locks locks = { .n = 0 };
	int again, found = 0;

	if (group->n == 0)
		return;
	for (size_t i = 0; i < group->n; i++)
		if (!group->list[i]->look.done)
			look_start(group->list[i]);
	do {
		usleep(LOOK_PAUSE_MS * 1000);
		again = 0;
		for (size_t i = 0; i < group->n; i++) {
			look_again(group->list[i]);
			again |= !group->list[i]->look.done;
		}
		if (again)
			continue;
		for (size_t i = 0; i < group->n; i++)
			if (is_void(group->list[i])) {
				passes_run(group->list[i]);
				again = 1;
			}
	} while (again);

	/*
	 * Searches twice for stalled receives, with a pause in between: the second search sees
	 * which lock stays.
	 */
	for (size_t i = 0; i < group->n; i++)
		found |= stall_search(group->list[i], NULL);
	if (found) {
		locks_look(&locks, group->audit->db, clock_monotonic_ms());
		usleep(STALL_PAUSE_MS * 1000);
		for (size_t i = 0; i < group->n; i++)
			if (group->list[i]->stall.n > 0)
				(void)stall_search(group->list[i], &locks);
	}

	for (size_t i = 0; i < group->n; i++)
		pass_end(group->list[i], group->coupons);
	group->n = group->suspects_n = 0;
}

/* Audits a coupon that PostgreSQL has; keeps it for group_end() if one look does not decide. */
static void group_audit(struct group *group, int64_t coupon)
{
	struct pass *pass = checked(calloc(1, sizeof(*pass)));

	pass->audit = group->audit;
	pass->coupon = coupon;
	passes_run(pass);
	while (pass->look.done && is_void(pass))
		passes_run(pass);
	if (pass->look.done && !stall_search(pass, NULL)) {
		pass_end(pass, group->coupons);
		return;
	}
	group->list[group->n++] = pass;
	group->suspects_n += pass->open.n + pass->rows.n + pass->settled.n;
	if (group->n == GROUP_MAX || group->suspects_n >= GROUP_SUSPECTS_MAX)
		group_end(group);
}

/*
 * Reports the user coupons of a coupon that does not exist; 0: of any such coupon. Returns how many
 * there are.
 */
static int unknown_audit(struct audit *audit, int64_t coupon)
{
	PGresult *rows = db_ask(audit->db, sql_query_audit_unknown, db_id(coupon));
	int n = PQntuples(rows);
	struct slot slot;

	for (int row = 0; row < n; row++) {
		slot_read(rows, row, 1, &slot);
		finding_add(&(struct pass){ .audit = audit,
					    .coupon = column_number(rows, row, "coupon_id") },
			    FINDING_COUPON_UNKNOWN, &slot,
			    "a user coupon of a coupon that does not exist");
	}
	PQclear(rows);
	return n;
}

static void row_audit(void *context, const PGresult *page, int row)
{
	group_audit(context, column_number(page, row, "coupon"));
}

static int verdict(const struct audit *audit)
{
	if (audit->findings.n > 0)
		return CTL_FAILED;
	if (audit->stalled_n > 0)
		return CTL_STALLED;
	return audit->undecided_n > 0 || audit->behind > 0 || audit->keys_behind > 0 ? CTL_AWAY
										     : CTL_DONE;
}

static const char *const verdict_words[] = { [CTL_DONE] = "PASS",
					     [CTL_FAILED] = "FAIL",
					     [CTL_AWAY] = "UNKNOWN",
					     [CTL_STALLED] = "STALLED" };

static void open_all(struct audit *audit, struct ctl *ctl)
{
	audit->db = store_postgres_open(ctl);
	/* Sorting a million receives needs memory. */
	db_run(audit->db, "SET default_transaction_read_only = on; SET statement_timeout = '60s';"
			  "SET work_mem = '64MB'; SET cursor_tuple_fraction = 1");
	audit->redis = store_redis_open(ctl);
	store_run_id_read(audit->redis, audit->run_id);
	audit->behind = behind_read(audit->db, audit->redis);
	audit->keys_behind = keys_ahead(audit->db, audit->redis);
	store_redis_check(audit->redis, audit->behind >= 0 && audit->keys_behind >= 0);
	audit->broker.url = ctl->config.amqp_url;
	audit->resend_after_ms = ctl->config.resend_after_ms;
	audit->patience_ms = PATIENCE_MS;
	audit->resolve_ms = RESOLVE_MS;
}

static void close_all(struct audit *audit)
{
	rabbit_connection_close(audit->broker.connection);
	redis_client_free(audit->redis);
	db_close(audit->db);
}

const char *audit_coupon(struct ctl *ctl, int64_t coupon)
{
	struct audit audit = { .findings.silent = 1,
			       .grace_ms = 1000 * GRACE_S,
			       .stalled_ms = 1000 * STALLED_S };
	struct group group = { .audit = &audit, .coupons = cJSON_CreateArray() };

	open_all(&audit, ctl);
	group_audit(&group, coupon);
	group_end(&group);
	budgets_judge(&audit, coupon);
	cJSON_Delete(group.coupons);
	close_all(&audit);
	return verdict_words[verdict(&audit)];
}

static int audit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_id_argument(args), coupons_n = 1;
	struct audit audit = { .findings.json = args_has(args, "json") };
	struct group group = { .audit = &audit };
	const char *word;
	cJSON *object;

	if (!coupon == !args_has(args, "all"))
		args_fail("audit takes either a coupon's ID or --all");
	if (audit.findings.json)
		group.coupons = cJSON_CreateArray();
	audit.grace_ms = 1000 * args_number(args, "grace", 0, SECONDS_MAX, GRACE_S);
	audit.stalled_ms = 1000 * args_number(args, "stalled-after-s", 0, SECONDS_MAX, STALLED_S);
	log_fatal_status(CTL_AWAY); /* no verdict, whatever fails */
	open_all(&audit, ctl);
	if (!coupon) {
		unknown_audit(&audit, 0);
		coupons_n = store_coupons_read(audit.db, sql_query_coupon_list, 0, INT64_MAX,
					       row_audit, &group);
	} else if (db_value(audit.db, sql_query_coupon_list, postgres_number(coupon - 1),
			    postgres_number(1)) == coupon) {
		group_audit(&group, coupon);
	} else if (unknown_audit(&audit, coupon) == 0) {
		say("there is no coupon %s", args->argument);
		cJSON_Delete(group.coupons);
		close_all(&audit);
		return CTL_ABSENT;
	}
	group_end(&group);
	budgets_judge(&audit, coupon);
	close_all(&audit);

	word = verdict_words[verdict(&audit)];
	if (group.coupons) {
		object = output_object();
		output_bool(object, "passed", verdict(&audit) == CTL_DONE);
		output_text(object, "verdict", word);
		output_number(object, "audited", coupons_n);
		output_number(object, "behind", audit.behind);
		output_number(object, "keys_behind", audit.keys_behind);
		output_add(object, "coupons", group.coupons);
		findings_end(&audit.findings, object);
		return verdict(&audit);
	}
	if (audit.behind > 0)
		printf(BEHIND_TEXT "\n", (long long)audit.behind);
	if (audit.keys_behind > 0)
		printf(KEYS_AHEAD_TEXT "\n", (long long)audit.keys_behind);
	printf("%s: %lld coupon%s audited, %lld wrong", word, (long long)coupons_n,
	       coupons_n == 1 ? "" : "s", (long long)audit.findings.n);
	if (audit.stalled_n > 0)
		printf(", %lld with receives in flight without progress",
		       (long long)audit.stalled_n);
	printf("\n");
	return verdict(&audit);
}

const struct command audit_command = {
	.name = "audit",
	.run = audit_run,
	.argument = "[ID]",
	.options = OPTIONS(SWITCH("all", "audit every coupon"),
			   OPTION("grace", "S",
				  "receives that are younger count as in flight, in seconds; 0 to "
				  "86400, default 30"),
			   OPTION("stalled-after-s", "S",
				  "receives in flight without progress for longer are stalled; 0 "
				  "to 86400, default 60")),
	.summary = "check the promises on a live system",
	.detail =
		"P1: nothing is oversold. P2: no user is over the limit. P3: each receive has\n"
		"one outcome. P4: in Redis, stock + taken slots + reserved + lost = total,\n"
		"and each slot is a user coupon or in flight. P12, P13: no order has taken a\n"
		"receive from another. P14: budgets are counted right. Each finding is printed;\n"
		"nothing is changed. The last line begins with the verdict: PASS (exit status 0),\n"
		"FAIL (1: findings), STALLED (5: no finding, but receives are in flight without\n"
		"progress; what they wait for is printed), or UNKNOWN (10: a store could not be\n"
		"read, or the data is undecided).",
};

/* couponctl rush: sends the requests of many users, and checks the answers in the database. */
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/rush/report.h"

#include <string.h>
#include <unistd.h>

#define SETTLE_TIMEOUT_S 30

static int rush_run(struct ctl *ctl)
{
	int verified = !args_has(&ctl->args, "no-verify"), json = args_has(&ctl->args, "json");
	int64_t settle_timeout_s = args_number(&ctl->args, "settle-timeout-s", 0, 86400,
					       SETTLE_TIMEOUT_S);
	struct gateway_address address;
	struct rush_plan plan;
	struct rush_book book;
	struct rush_figures figures;
	struct rush_verify verify;
	struct rush_report report = {
		.plan = &plan,
		.book = &book,
		.figures = &figures,
		.verify = verified ? &verify : NULL,
	};

	rush_plan_read(&plan, &ctl->args);
	gateway_address_read(&address, ctl->config.listen);
	rush_book_init(&book, &plan);
	if (verified)
		rush_verify_begin(&verify, &plan, ctl->config.database_url, ctl->config.redis_url,
				  settle_timeout_s * 1000);
	if (rush_load_run(&book, &address, !json && isatty(STDERR_FILENO), &figures))
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s",
			  ctl->config.listen, figures.error);
	if (verified && rush_verify_end(&verify, &book))
		log_fatal("the gateway answered with a receive whose batch is not a ULID");
	report.passed = book.strange == 0 && (figures.stopped || book.ends[RUSH_NOT_SENT] == 0) &&
			(!verified || rush_verify_passed(&verify));
	if (json)
		rush_report_json(&report);
	else
		rush_report_text(&report);
	if (verified)
		rush_verify_fini(&verify);
	rush_book_fini(&book);
	rush_plan_fini(&plan);
	return report.passed ? 0 : 1;
}

static const struct option rush_options[] = {
	OPTION("coupon", "ID[,ID...]", "the coupon to request; of several each user requests one"),
	OPTION("coupons-from", "FILE",
	       "the coupons, one id a line, instead of --coupon; -: standard input"),
	OPTION("users", "N", "number of users"),
	OPTION("first-user", "U",
	       "number of the first user; the next have the numbers after it; default 1"),
	OPTION("user-ids", "FORM",
	       "int (default): a user's number is its id; uuid: a UUID that contains it"),
	OPTION("user-seed", "N",
	       "ids that look random, without any order; the same seed gives the same ids, and "
	       "of several coupons the same one to each user"),
	OPTION("codes", "FILE",
	       "redeem: each user sends the next code of this file, which codes generate has "
	       "written for the coupon"),
	OPTION("requests-per-user", "N", "requests of each user; default 1"),
	SWITCH("keys", "all requests of a user have the same idempotency key, and must get the "
		       "same receive"),
	OPTION("ack", "LEVEL", "reply when a receive is accepted (default), queued or issued"),
	OPTION("connections", "C", "connections to the gateway; default 50"),
	OPTION("pipeline", "P", "unanswered requests of one connection, at most; default 64"),
	OPTION("rate", "R",
	       "requests a second, latency from when each was due; default: as fast as answers "
	       "come"),
	OPTION("timeout-s", "S", "a later answer counts as unknown; default 10"),
	OPTION("settle-timeout-s", "S", "time to wait until all receives are settled; default 30"),
	SWITCH("no-verify", "load only: do not check the database"),
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command rush_command = {
	.name = "rush",
	.run = rush_run,
	.options = rush_options,
	.summary = "put load on one or many coupons, and check the outcomes",
	.detail = "Needs --users, and --coupon or --coupons-from. Connects to COUPON_LISTEN: "
		  "host:port, or /path\n"
		  "or unix:path of a Unix socket. Afterwards each accepted receive must be one\n"
		  "row or one recorded rejection in PostgreSQL. The exit status is the verdict.",
};

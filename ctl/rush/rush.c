/*
 * couponctl rush: users press the button, and what they were told is checked against the database.
 */
#include "common/log.h"
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
	struct rush_report report = { &plan, &book, &figures, verified ? &verify : NULL, 0 };

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
		log_fatal("the gateway names receives whose batch is not a ULID");
	report.passed = book.strange == 0 && book.ends[RUSH_NOT_SENT] == 0 &&
			(!verified || rush_verify_passed(&verify));
	if (json)
		rush_report_json(&report);
	else
		rush_report_text(&report);
	if (verified)
		rush_verify_fini(&verify);
	rush_book_fini(&book);
	return report.passed ? 0 : 1;
}

static const struct option rush_options[] = {
	OPTION("coupon", "ID", "the coupon that all want"),
	OPTION("users", "N", "how many users"),
	OPTION("first-user", "U", "the first one's id; the others follow; default 1"),
	OPTION("requests-per-user", "N", "how often each presses the button; default 1"),
	SWITCH("keys",
	       "a user's requests carry one idempotency key: all must give the same receive"),
	OPTION("ack", "LEVEL", "wait until accepted (default), queued or issued"),
	OPTION("connections", "C", "connections to the gateway; default 50"),
	OPTION("pipeline", "P", "unanswered requests of one connection at most; default 64"),
	OPTION("rate", "R",
	       "requests a second, latency from when each was due; default: as fast as answers "
	       "come"),
	OPTION("timeout-s", "S", "an answer later than this is unknown; default 10"),
	OPTION("settle-timeout-s", "S", "how long to wait until all is settled; default 30"),
	SWITCH("no-verify", "do not look into the database"),
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command rush_command = {
	.name = "rush",
	.run = rush_run,
	.options = rush_options,
	.summary = "put load on a coupon, and check the outcome",
	.detail = "Needs --coupon and --users. Connects to COUPON_LISTEN: host:port, /path or "
		  "unix:path of a Unix socket.\n"
		  "Afterwards each receive that was told accepted must be one row or one recorded "
		  "rejection in PostgreSQL; the\n"
		  "exit status is the verdict.",
};

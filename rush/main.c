/*
 * coupon-rush: puts load on coupons through the gateway, and checks the answers in the database. As
 * an operator's tool it reads its command line as couponctl does.
 */
#include "common/log/log.h"
#include "common/program/program.h"
#include "ctl/output.h"
#include "rush/report.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_TIMEOUT_S 30

static void address_read(struct gateway_address *address, const struct config *config,
			 const struct rush_plan *plan)
{
	gateway_address_read(address, config, plan->open.is_http, 1);
	if (plan->open.duration_us)
		rush_open_loop_check(plan, address);
}

static void load_run(struct rush_report *report, struct rush_requests *requests,
		     struct rush_crowd *crowd, const struct gateway_address *address,
		     struct rush_figures *figures, int progress)
{
	if (requests->plan->open.duration_us) {
		rush_crowd_init(crowd, requests);
		report->crowd = crowd;
		rush_open_loop_run(crowd, address, progress, figures);
	} else {
		rush_load_run(requests, address, progress, figures);
	}
}

/* Returns the exit status. */
static int run(const struct config *config, const struct args *args)
{
	int verified = !args_has(args, "no-verify"), json = args_has(args, "json");
	int64_t timeout_s = args_number(args, "settle-timeout-s", 0, 86400, SETTLE_TIMEOUT_S);
	struct gateway_address address;
	struct rush_plan plan;
	struct rush_requests requests;
	struct rush_crowd crowd;
	struct rush_figures figures;
	struct rush_verify verify;
	struct rush_calm calm;
	struct rush_report report = {
		.requests = &requests,
		.figures = &figures,
		.verify = verified ? &verify : NULL,
	};

	rush_plan_read(&plan, args);
	address_read(&address, config, &plan);
	rush_requests_init(&requests, &plan);
	if (verified)
		rush_verify_begin(&verify, &plan, config->database_url, config->redis_url,
				  timeout_s);
	load_run(&report, &requests, &crowd, &address, &figures, !json && isatty(STDERR_FILENO));
	if (!figures.connected)
		log_fatal("the gateway at %s, %s, cannot be reached: %s",
			  address.is_http ? "COUPON_HTTP_LISTEN" : "COUPON_LISTEN",
			  address.is_http ? config->http_listen : config->listen, figures.error);
	if (report.crowd)
		report.ping_us = rush_open_loop_calm(&plan, &address);
	if (report.crowd && verified) {
		rush_verify_calm(&verify, &calm);
		report.calm = &calm;
	}
	if (verified)
		rush_verify_end(&verify, &requests);
	report.passed = requests.strange == 0 && rush_requests_answered(&requests) > 0 &&
			(figures.stopped || report.crowd || requests.ends[RUSH_NOT_SENT] == 0) &&
			(!verified || rush_verify_passed(&verify));
	if (json)
		output_print(rush_report_json(&report));
	else
		rush_report_print(&report, rush_report_json(&report));
	if (verified)
		rush_verify_fini(&verify);
	if (report.crowd)
		rush_crowd_fini(&crowd);
	rush_requests_fini(&requests);
	rush_plan_fini(&plan);
	return report.passed ? 0 : 1;
}

static const struct option options[] = {
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
	       "claim: each user sends the next code of this file, which codes generate has "
	       "written for the coupon"),
	OPTION("receives", "FILE",
	       "use: each user uses the next receive of this file, in an order of its own; it has "
	       "the receive of each user, one a line"),
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
	SWITCH("open-loop", "users come at random times, --rate a second for --duration, whatever "
			    "the answers do, each over a connection of its own and with a key; "
			    "--connections: at once, at most; default 10000"),
	OPTION("duration", "T", "open loop: for how long users come, as 60s"),
	OPTION("give-up", "T",
	       "open loop: a user closes its connection after this time without an answer; "
	       "default 2s"),
	OPTION("retries", "N",
	       "open loop: times that it then presses again, with the same key; default 3"),
	OPTION("pause", "FORM",
	       "open loop: before that: none (default); fixed: 1 s; exponential: 1 s, then twice "
	       "as long each time"),
	SWITCH("http", "open loop: over HTTP, at COUPON_HTTP_LISTEN"),
	OPTION("sources", "N",
	       "open loop: connections come from so many addresses, 127.0.0.1 and the next ones, "
	       "each with ports of its own"),
	OPTION("settle-timeout-s", "S", "time to wait until all receives are settled; default 30"),
	SWITCH("no-verify", "load only: do not check the database"),
	OPTIONS_END,
};

static const struct command command = {
	.name = "coupon-rush",
	.options = options,
	.summary = "put load on one or many coupons, and check the outcomes",
};

static void help(void)
{
	printf("Usage: coupon-rush [OPTIONS]\n\n"
	       "Puts load on one or many coupons, and checks the outcomes. Needs --users, and "
	       "--coupon "
	       "or\n--coupons-from. Connects to COUPON_LISTEN: host:port, or /path or unix:path of "
	       "a "
	       "Unix\nsocket. Afterwards each accepted receive must be one row or one recorded "
	       "rejection in\nPostgreSQL. The exit status is the verdict.\n\n"
	       "  --help     this text\n"
	       "  --version  the version\n\nOptions:\n");
	args_options_print(&command, stdout);
	puts("\nSettings, by flag or environment:");
	config_help(CONFIG_RUSH, stdout);
	puts("\nExit status: 0 every check passed; 1 a check failed, or it could not run; 2 the "
	     "command line\nis invalid.");
}

static int takes_value(const char *word)
{
	return args_takes_value(&command, word);
}

int main(int argc, char **argv)
{
	struct config config;
	struct args args;
	int status;

	program_begin();
	log_init("coupon-rush", LOG_LEVEL_WARN, 0);
	program_answer("coupon-rush", help, argc, argv);
	signal(SIGPIPE, SIG_IGN);
	argc = config_read(&config, CONFIG_RUSH, argc, argv, takes_value);
	config_log(&config, "coupon-rush");
	program_trust_stores(&config);
	args_read(&args, &command, argc - 1, argv + 1);
	status = run(&config, &args);
	config_free(&config);
	if (fflush(stdout) != 0)
		log_fatal("standard output cannot be written");
	return status;
}

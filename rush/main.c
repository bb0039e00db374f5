/*
 * coupon-rush: puts load on coupons through the gateway, and checks the answers in the database. As
 * an operator's tool it reads its command line as couponctl does.
 */
#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/program/program.h"
#include "ctl/output.h"
#include "rush/load.h"
#include "rush/verify.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_TIMEOUT_S 30

struct report {
	const struct rush_requests *requests;
	const struct rush_figures *figures;
	const struct rush_verify *verify; /* NULL: with --no-verify */
	int passed;
};

/* The name of an end. That of code 0 is the acknowledgement level. */
static const char *end_name(const struct rush_plan *plan, int end)
{
	switch (end) {
	case RUSH_NOT_SENT:
		return "not_sent";
	case RUSH_LOST:
		return "unknown_connection_lost";
	case RUSH_LATE:
		return "unknown_no_answer";
	case 0:
		return rush_acks[plan->ack];
	}
	return answer_from_code(end) == ANSWER_COUNT ? "other"
						     : answer_status(answer_from_code(end));
}

static int64_t per_second(int64_t n, int64_t us)
{
	return us > 0 ? n * 1000000 / us : 0;
}

/* A member for the text alone. */
static void seconds_add(cJSON *object, const char *name, int64_t us)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", (double)us / 1e6);
	output_text(object, name, text);
}

static cJSON *latency_json(const struct rush_requests *requests, int code)
{
	static const char *const names[] = { "p50", "p90", "p99", "p99_9", "max" };
	static const int permyriads[] = { 5000, 9000, 9900, 9990, 10000 };
	cJSON *object = output_object();
	size_t n;
	int64_t *times_us = rush_requests_times_us(requests, code, &n);

	output_number(object, "n", (int64_t)n);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		output_number(object, names[i], rush_percentile(times_us, n, permyriads[i]));
	free(times_us);
	return object;
}

static void latency_print(const char *name, const cJSON *latency)
{
	const cJSON *member;

	printf("  %-22s", name);
	cJSON_ArrayForEach(member, latency) if (strcmp(member->string, "n") != 0)
		printf(" %9.2f", strtod(member->valuestring, NULL) / 1e3);
	putchar('\n');
}

static cJSON *answers_json(const struct report *report)
{
	cJSON *object = output_object();

	for (int end = 0; end < RUSH_ENDS; end++)
		if (report->requests->ends[end])
			output_number(object, end_name(report->requests->plan, end),
				      report->requests->ends[end]);
	return object;
}

static void answers_print(const struct report *report, const cJSON *object)
{
	const struct rush_requests *requests = report->requests;
	const struct rush_figures *figures = report->figures;
	const cJSON *answers = cJSON_GetObjectItemCaseSensitive(object, "answers"), *answer;
	uint32_t n = rush_requests_answered(requests);
	char grouped[OUTPUT_GROUPED_SIZE];

	cJSON_ArrayForEach(answer, answers)
		printf("  %-22s %12s\n", answer->string,
		       output_grouped(strtoll(answer->valuestring, NULL, 10), grouped));
	printf("  %-22s %12s", "answered", output_grouped(n, grouped));
	output_template(" in {seconds} s, {per_second:,} a second\n", object);
	if (figures->disconnections)
		printf("  %-22s %12u, the last: %s\n", "connections lost", figures->disconnections,
		       figures->error);
	if (requests->overdue)
		printf("  %-22s %12u\n", "answered too late", requests->overdue);
	if (requests->strange)
		printf("  %-22s %12u, the first: %s\n", "invalid lines", requests->strange,
		       requests->strange_first);
	printf("\n  %-22s %9s %9s %9s %9s %9s\n", "latency, ms", "p50", "p90", "p99", "p99.9",
	       "max");
	latency_print("all answers", cJSON_GetObjectItemCaseSensitive(object, "latency_us"));
	if (requests->ends[answer_code(ANSWER_OK)] > 0 &&
	    requests->ends[answer_code(ANSWER_OK)] < n)
		latency_print(rush_acks[requests->plan->ack],
			      cJSON_GetObjectItemCaseSensitive(object, "latency_accepted_us"));
}

static cJSON *verify_json(const struct report *report)
{
	const struct rush_verify *v = report->verify;
	const struct rush_tally *t = &v->tally;
	cJSON *object = output_object(), *wrong = cJSON_CreateArray();

	output_bool(object, "p1", !v->oversold && !v->rows_differ);
	output_bool(object, "p2", !v->over_limit);
	output_bool(object, "p3", !rush_tally_wrong(t) && !v->twice);
	output_number(object, "total", v->total);
	output_number(object, "issued", v->issued);
	output_number(object, "oversold", v->oversold);
	output_bool(object, "rows_differ", v->rows_differ != 0);
	output_number(object, "over_limit", v->over_limit);
	output_number(object, "accepted", t->told);
	output_number(object, "rows", t->issued);
	output_number(object, "rejected", t->rejected);
	output_number(object, "lost", t->lost);
	output_number(object, "both", t->both);
	output_number(object, "twice", t->twice + v->twice);
	output_number(object, "told_otherwise", t->other);
	output_number(object, "keys_not_kept", t->unkept);
	output_number(object, "never_told", t->stray);
	output_number(object, "behind_unknown", t->from_unknown);
	/* from the first request to the last row */
	if (v->settled_us && v->new_n > 0)
		output_number(object, "committed_us", v->settled_us - report->figures->begin_us);
	else
		output_null(object, "committed_us");
	for (size_t i = 0; i < t->wrong_n; i++)
		cJSON_AddItemToArray(wrong, cJSON_CreateString(t->wrong[i]));
	output_add(object, "wrong", wrong);
	return object;
}

static void verify_print(const struct rush_verify *v, int64_t begin_us, cJSON *object)
{
	int64_t committed_us = v->settled_us - begin_us;

	seconds_add(object, "seconds", committed_us);
	output_number(object, "per_second", per_second(v->new_n, committed_us));
	output_bool(object, "is_unsettled", !v->settled_us);
	output_number(object, "settled", v->tally.told - v->tally.lost);
	output_template("[committed_us \n  last row committed {seconds} s after the first request, "
			"{per_second:,} receives a second\n]"
			"[is_unsettled \n  not settled in time: {settled:,} of {accepted:,} "
			"receives have their outcome\n]"
			"\n  P1 [p1 ok  ][!p1 NO  ] {issued:,} issued of {total:,}"
			"[rows_differ , but the number of rows differs]\n"
			"  P2 [p2 ok  ][!p2 NO  ] {over_limit:,} users over the limit\n"
			"  P3 [p3 ok  ][!p3 NO  ] {accepted:,} accepted: {rows:,} rows, "
			"{rejected:,} recorded rejections\n"
			"[behind_unknown           and {behind_unknown:,} with unknown answers\n]",
			object);
	for (size_t i = 0; i < v->tally.wrong_n; i++)
		printf("     WRONG %s\n", v->tally.wrong[i]);
}

static void verdict_print(const struct report *report, cJSON *object, cJSON *verify)
{
	printf("\n%s: ", report->passed ? "PASS" : "FAIL");
	if (report->verify) {
		output_number(verify, "more_than_once",
			      report->verify->tally.both + report->verify->tally.twice +
				      report->verify->twice);
		output_template(
			"{accepted:,} accepted, {rows:,} rows, {oversold:,} oversold, "
			"{over_limit:,} over the limit, {lost:,} lost, {more_than_once:,} twice"
			"[rejected , {rejected:,} rejected]"
			"[never_told , {never_told:,} without an answer]"
			"[told_otherwise , {told_otherwise:,} answered wrongly]"
			"[keys_not_kept , {keys_not_kept:,} keys or codes not kept]",
			verify);
	}
	output_text(object, "why",
		    report->figures->stopped ? "stopped by a signal" : report->figures->error);
	output_template("[!verify {answered:,} answered, not verified]"
			"[answers.not_sent , {answers.not_sent:,} not sent: {why}]"
			"[not_understood , {not_understood:,} invalid lines]\n",
			object);
}

static cJSON *report_json(const struct report *report)
{
	const struct rush_plan *plan = report->requests->plan;
	const struct rush_figures *figures = report->figures;
	uint32_t answered = rush_requests_answered(report->requests);
	cJSON *object = output_object();

	output_bool(object, "passed", report->passed);
	output_id(object, "coupon", plan->coupons.n == 1 ? plan->coupons.list[0] : 0);
	output_number(object, "coupons", plan->coupons.n);
	output_number(object, "users", plan->users.n);
	output_text(object, "user_ids", rush_forms[plan->users.form]);
	if (plan->users.seeded)
		output_number(object, "user_seed", plan->users.seed);
	else
		output_null(object, "user_seed");
	output_number(object, "requests", plan->requests_n);
	output_number(object, "connections", figures->connected);
	output_number(object, "pipeline", plan->pipeline);
	output_number(object, "rate", plan->rate);
	output_text(object, "ack", rush_acks[plan->ack]);
	output_add(object, "answers", answers_json(report));
	output_number(object, "answered", answered);
	output_number(object, "unknown", rush_requests_unknown(report->requests));
	output_number(object, "begin_us", figures->begin_us);
	output_number(object, "duration_us", figures->duration_us);
	output_number(object, "per_second", per_second(answered, figures->duration_us));
	output_bool(object, "stopped", figures->stopped);
	output_number(object, "disconnections", figures->disconnections);
	output_number(object, "answered_too_late", report->requests->overdue);
	output_number(object, "not_understood", report->requests->strange);
	output_number(object, "client_cpu_us", figures->cpu_us);
	output_add(object, "latency_us", latency_json(report->requests, RUSH_ENDS));
	output_add(object, "latency_accepted_us",
		   latency_json(report->requests, answer_code(ANSWER_OK)));
	if (report->verify)
		output_add(object, "verify", verify_json(report));
	else
		output_null(object, "verify");
	return object;
}

/* The object gets further members, for the text alone. */
static void text_print(const struct report *report, cJSON *object)
{
	const struct rush_plan *plan = report->requests->plan;
	cJSON *verify = cJSON_GetObjectItemCaseSensitive(object, "verify");

	output_id(object, "first", plan->coupons.list[0]);
	output_id(object, "last", plan->coupons.list[plan->coupons.n - 1]);
	output_text(object, "form", plan->users.form == RUSH_INT ? NULL : "uuid");
	output_bool(object, "is_seeded", plan->users.seeded);
	seconds_add(object, "seconds", report->figures->duration_us);
	output_template("rush on [coupon coupon {coupon}]"
			"[!coupon {coupons:,} coupons from {first} to {last}]"
			": {requests:,} requests of {users:,} users, {connections} connections x "
			"{pipeline}[rate , {rate:,} a second][form , user ids {form}]"
			"[is_seeded , user seed {user_seed}], ack {ack}\n\n",
			object);
	answers_print(report, object);
	if (report->verify)
		verify_print(report->verify, report->figures->begin_us, verify);
	verdict_print(report, object, verify);
	cJSON_Delete(object);
}

/* Returns the exit status. */
static int run(const struct config *config, const struct args *args)
{
	int verified = !args_has(args, "no-verify"), json = args_has(args, "json");
	int64_t timeout_s = args_number(args, "settle-timeout-s", 0, 86400, SETTLE_TIMEOUT_S);
	struct gateway_address address;
	struct rush_plan plan;
	struct rush_requests requests;
	struct rush_figures figures;
	struct rush_verify verify;
	struct report report = {
		.requests = &requests,
		.figures = &figures,
		.verify = verified ? &verify : NULL,
	};

	rush_plan_read(&plan, args);
	gateway_address_read(&address, config);
	rush_requests_init(&requests, &plan);
	if (verified)
		rush_verify_begin(&verify, &plan, config->database_url, config->redis_url,
				  timeout_s);
	rush_load_run(&requests, &address, !json && isatty(STDERR_FILENO), &figures);
	if (!figures.connected)
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", config->listen,
			  figures.error);
	if (verified)
		rush_verify_end(&verify, &requests);
	report.passed = requests.strange == 0 &&
			(figures.stopped || requests.ends[RUSH_NOT_SENT] == 0) &&
			(!verified || rush_verify_passed(&verify));
	if (json)
		output_print(report_json(&report));
	else
		text_print(&report, report_json(&report));
	if (verified)
		rush_verify_fini(&verify);
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

	program_dump_nothing();
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

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

/* 1,234,567; one of the last few texts. */
static const char *grouped(int64_t number)
{
	static char texts[8][OUTPUT_GROUPED_SIZE];
	static unsigned turn;

	return output_grouped(number, texts[turn++ % 8]);
}

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
		return rush_ack_text(plan->ack);
	}
	return answer_from_code(end) == ANSWER_COUNT ? "other"
						     : answer_status(answer_from_code(end));
}

static double seconds(int64_t us)
{
	return (double)us / 1e6;
}

static int64_t per_second(int64_t n, int64_t us)
{
	return us > 0 ? n * 1000000 / us : 0;
}

/* From the first request to the last committed row; 0: unknown. */
static int64_t committed_us(const struct report *report)
{
	const struct rush_verify *v = report->verify;

	return v && v->settled_us && v->new_n > 0 ? v->settled_us - report->figures->begin_us : 0;
}

static void latency_print(const char *name, const struct rush_latency *l)
{
	printf("  %-22s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, (double)l->p50_us / 1e3,
	       (double)l->p90_us / 1e3, (double)l->p99_us / 1e3, (double)l->p999_us / 1e3,
	       (double)l->max_us / 1e3);
}

static void answers_print(const struct report *report)
{
	const struct rush_requests *requests = report->requests;
	const struct rush_figures *figures = report->figures;
	uint32_t answered = rush_requests_answered(requests);
	struct rush_latency all, accepted;

	for (int end = 0; end < RUSH_ENDS; end++)
		if (requests->ends[end])
			printf("  %-22s %12s\n", end_name(report->requests->plan, end),
			       grouped(requests->ends[end]));
	printf("  %-22s %12s in %.3f s, %s a second\n", "answered", grouped(answered),
	       seconds(figures->duration_us), grouped(per_second(answered, figures->duration_us)));
	if (figures->disconnections)
		printf("  %-22s %12u, the last: %s\n", "connections lost", figures->disconnections,
		       figures->error);
	if (requests->overdue)
		printf("  %-22s %12u\n", "answered too late", requests->overdue);
	if (requests->strange)
		printf("  %-22s %12u, the first: %s\n", "invalid lines", requests->strange,
		       requests->strange_first);
	rush_requests_latency(requests, RUSH_ENDS, &all);
	rush_requests_latency(requests, answer_code(ANSWER_OK), &accepted);
	printf("\n  %-22s %9s %9s %9s %9s %9s\n", "latency, ms", "p50", "p90", "p99", "p99.9",
	       "max");
	latency_print("all answers", &all);
	if (accepted.n > 0 && accepted.n < all.n)
		latency_print(rush_ack_text(report->requests->plan->ack), &accepted);
}

static void verify_print(const struct report *report)
{
	const struct rush_verify *v = report->verify;
	const struct rush_tally *t = &v->tally;

	if (committed_us(report))
		printf("\n  last row committed %.3f s after the first request, %s receives a "
		       "second\n",
		       seconds(committed_us(report)),
		       grouped(per_second(v->new_n, committed_us(report))));
	else if (!v->settled_us)
		printf("\n  not settled in time: %s of %s receives have their outcome\n",
		       grouped(t->told - t->lost), grouped(t->told));
	printf("\n  P1 %-4s %s issued of %s%s\n", v->oversold || v->rows_differ ? "NO" : "ok",
	       grouped(v->issued), grouped(v->total),
	       v->rows_differ ? ", but the number of rows differs" : "");
	printf("  P2 %-4s %s users over the limit\n", v->over_limit ? "NO" : "ok",
	       grouped(v->over_limit));
	printf("  P3 %-4s %s accepted: %s rows", rush_tally_wrong(t) || v->twice ? "NO" : "ok",
	       grouped(t->told), grouped(t->issued));
	printf(", %s recorded rejections\n", grouped(t->rejected));
	if (t->from_unknown)
		printf("          and %s with unknown answers\n", grouped(t->from_unknown));
	for (size_t i = 0; i < t->wrong_n; i++)
		printf("     WRONG %s\n", t->wrong[i]);
}

static void verdict_print(const struct report *report)
{
	const struct rush_verify *v = report->verify;
	const struct rush_requests *requests = report->requests;

	printf("\n%s: ", report->passed ? "PASS" : "FAIL");
	if (v) {
		printf("%s accepted, %s rows, %s oversold, %s over the limit, ",
		       grouped(v->tally.told), grouped(v->tally.issued), grouped(v->oversold),
		       grouped(v->over_limit));
		printf("%s lost, %s twice", grouped(v->tally.lost),
		       grouped(v->tally.twice + v->tally.both));
		if (v->tally.rejected)
			printf(", %s rejected", grouped(v->tally.rejected));
		if (v->tally.stray)
			printf(", %s without an answer", grouped(v->tally.stray));
		if (v->tally.other)
			printf(", %s answered wrongly", grouped(v->tally.other));
		if (v->tally.unkept)
			printf(", %s keys or codes not kept", grouped(v->tally.unkept));
	} else {
		printf("%s answered, not verified", grouped(rush_requests_answered(requests)));
	}
	if (requests->ends[RUSH_NOT_SENT])
		printf(", %s not sent: %s", grouped(requests->ends[RUSH_NOT_SENT]),
		       report->figures->stopped ? "stopped by a signal" : report->figures->error);
	if (requests->strange)
		printf(", %s invalid lines", grouped(requests->strange));
	putchar('\n');
}

static void coupons_print(const struct rush_coupons *coupons)
{
	const struct rush_coupon *list = coupons->list;

	if (coupons->n == 1)
		printf("rush on coupon %s", list[0].text);
	else
		printf("rush on %s coupons from %s to %s", grouped(coupons->n), list[0].text,
		       list[coupons->n - 1].text);
}

static void text_print(const struct report *report)
{
	const struct rush_plan *plan = report->requests->plan;

	coupons_print(&plan->coupons);
	printf(": %s requests of %s users, %u connections x %u", grouped(plan->requests_n),
	       grouped(plan->users.n), report->figures->connected, plan->pipeline);
	if (plan->rate)
		printf(", %s a second", grouped(plan->rate));
	if (plan->users.form != RUSH_INT)
		printf(", user ids %s", rush_form_text(plan->users.form));
	if (plan->users.seeded)
		printf(", user seed %lld", (long long)plan->users.seed);
	printf(", ack %s\n\n", rush_ack_text(plan->ack));
	answers_print(report);
	if (report->verify)
		verify_print(report);
	verdict_print(report);
}

static cJSON *latency_json(const struct rush_requests *requests, int code)
{
	cJSON *object = output_object();
	struct rush_latency latency;

	rush_requests_latency(requests, code, &latency);
	output_number(object, "n", (int64_t)latency.n);
	output_number(object, "p50", latency.p50_us);
	output_number(object, "p90", latency.p90_us);
	output_number(object, "p99", latency.p99_us);
	output_number(object, "p99_9", latency.p999_us);
	output_number(object, "max", latency.max_us);
	return object;
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
	if (committed_us(report))
		output_number(object, "committed_us", committed_us(report));
	else
		output_null(object, "committed_us");
	for (size_t i = 0; i < t->wrong_n; i++)
		cJSON_AddItemToArray(wrong, cJSON_CreateString(t->wrong[i]));
	output_add(object, "wrong", wrong);
	return object;
}

static void json_print(const struct report *report)
{
	const struct rush_plan *plan = report->requests->plan;
	const struct rush_figures *figures = report->figures;
	uint32_t answered = rush_requests_answered(report->requests);
	cJSON *object = output_object();

	output_bool(object, "passed", report->passed);
	if (plan->coupons.n == 1)
		output_text(object, "coupon", plan->coupons.list[0].text);
	else
		output_null(object, "coupon");
	output_number(object, "coupons", plan->coupons.n);
	output_number(object, "users", plan->users.n);
	output_text(object, "user_ids", rush_form_text(plan->users.form));
	if (plan->users.seeded)
		output_number(object, "user_seed", plan->users.seed);
	else
		output_null(object, "user_seed");
	output_number(object, "requests", plan->requests_n);
	output_number(object, "connections", figures->connected);
	output_number(object, "pipeline", plan->pipeline);
	output_number(object, "rate", plan->rate);
	output_text(object, "ack", rush_ack_text(plan->ack));
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
	output_print(object);
}

/* Returns the exit status. */
static int run(const struct config *config, const struct args *args)
{
	int verified = !args_has(args, "no-verify"), json = args_has(args, "json");
	int64_t settle_timeout_s = args_number(args, "settle-timeout-s", 0, 86400,
					       SETTLE_TIMEOUT_S);
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
	gateway_address_read(&address, config->listen);
	rush_requests_init(&requests, &plan);
	if (verified)
		rush_verify_begin(&verify, &plan, config->database_url, config->redis_url,
				  settle_timeout_s * 1000);
	if (rush_load_run(&requests, &address, !json && isatty(STDERR_FILENO), &figures))
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", config->listen,
			  figures.error);
	if (verified)
		rush_verify_end(&verify, &requests);
	report.passed = requests.strange == 0 &&
			(figures.stopped || requests.ends[RUSH_NOT_SENT] == 0) &&
			(!verified || rush_verify_passed(&verify));
	if (json)
		json_print(&report);
	else
		text_print(&report);
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
	args_read(&args, &command, argc - 1, argv + 1);
	status = run(&config, &args);
	config_free(&config);
	if (fflush(stdout) != 0)
		log_fatal("standard output cannot be written");
	return status;
}

/*
 * coupon-rush: puts load on coupons through the gateway, and checks the answers in the database. As
 * an operator's tool it reads its command line as couponctl does.
 */
#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/program/program.h"
#include "common/program/wrap.h"
#include "ctl/output.h"
#include "rush/loops.h"
#include "rush/verify.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_TIMEOUT_S 30

/* ---- what a rush has found, as JSON or for people */

struct rush_report {
	const struct rush_requests *requests;
	const struct rush_figures *figures;
	const struct rush_crowd *crowd;   /* NULL: the loop was closed */
	const struct rush_verify *verify; /* NULL: with --no-verify */
	const struct rush_calm *calm;     /* NULL: of a closed loop, or with --no-verify */
	int64_t ping_us;                  /* as rush_open_loop_calm() */
	int passed;
};

/* The name of an end. That of code 0 is the acknowledgement level. */
static const char *end_name(const struct rush_plan *plan, int end)
{
	switch (end) {
	case RUSH_NOT_SENT:
		return plan->open.duration_us ? "not_started" : "not_sent";
	case RUSH_UNCONNECTED:
		return "not_connected";
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
static void seconds_add(cJSON *object, int64_t us)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", (double)us / 1e6);
	output_text(object, "seconds", text);
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

static cJSON *open_loop_json(const struct rush_report *report)
{
	const struct rush_crowd *crowd = report->crowd;
	const struct rush_open_loop *open = &crowd->plan->open;
	const struct rush_calm *calm = report->calm;
	int64_t duration_us = report->figures->duration_us, good_n = 0,
		us = open->duration_us < duration_us ? open->duration_us : duration_us;
	uint32_t least = UINT32_MAX, most = 0, n = (uint32_t)(us / 1000000);
	cJSON *object = output_object(), *at = cJSON_CreateArray(), *seconds = cJSON_CreateArray(),
	      *after = output_object();

	output_number(object, "duration_s", open->duration_us / 1000000);
	output_bool(object, "http", open->is_http);
	output_number(object, "give_up_s", open->give_up_us / 1000000);
	output_number(object, "retries", open->retries);
	output_text(object, "pause", rush_pauses[open->pause]);
	output_number(object, "connections_most", crowd->open_most);
	output_number(object, "offered_per_second",
		      per_second(crowd->requests->next, open->duration_us));
	output_number(object, "started", crowd->started);
	output_number(object, "started_per_second", per_second(crowd->started, open->duration_us));
	output_number(object, "attempts", crowd->attempts);
	output_number(object, "gave_up", crowd->gave_up);
	output_number(object, "gave_up_connecting", crowd->gave_up_connecting);
	output_number(object, "refused", crowd->refused);
	output_number(object, "lost", crowd->lost);
	output_number(object, "no_room", crowd->no_room);
	output_number(object, "good", crowd->good);

	/* Within the whole seconds in which users came. */
	for (uint32_t i = 0; i < n; i++) {
		uint32_t good = crowd->seconds[i].good;

		good_n += good;
		least = good < least ? good : least;
		most = good > most ? good : most;
	}
	output_number(object, "goodput_per_second", n ? good_n / n : 0);
	output_number(object, "goodput_least", n ? least : 0);
	output_number(object, "goodput_most", most);
	for (uint32_t attempt = 0; attempt <= open->retries; attempt++)
		cJSON_AddItemToArray(at, cJSON_CreateNumber((double)crowd->answered_at[attempt]));
	output_add(object, "answered_at", at);

	for (uint32_t i = 0; i < crowd->seconds_n && (int64_t)i * 1000000 <= duration_us; i++) {
		const struct rush_second *second = &crowd->seconds[i];
		cJSON *one = output_object();

		output_number(one, "offered", second->offered);
		output_number(one, "attempts", second->attempts);
		output_number(one, "good", second->good);
		output_number(one, "refused", second->refused);
		output_number(one, "unanswered", second->unanswered);
		cJSON_AddItemToArray(seconds, one);
	}
	output_add(object, "seconds", seconds);

	/* RUSH_CALM_S after the end. */
	if (report->ping_us < 0)
		output_null(after, "ping_us");
	else
		output_number(after, "ping_us", report->ping_us);
	if (calm && calm->unsettled >= 0) {
		output_number(after, "accepted", calm->accepted);
		output_number(after, "unsettled", calm->unsettled);
	} else {
		output_null(after, "accepted");
		output_null(after, "unsettled");
	}
	output_bool(after, "calm",
		    report->ping_us >= 0 &&
			    (!calm || (calm->accepted == 0 && calm->unsettled == 0)));
	output_add(object, "after", after);
	return object;
}

static void open_loop_print(const struct rush_report *report, const cJSON *object)
{
	const struct rush_crowd *crowd = report->crowd;

	output_template(
		"\n  offered / started      {open_loop.offered_per_second:,} / "
		"{open_loop.started_per_second:,} users a second\n"
		"  attempts               {open_loop.attempts:,}, at most "
		"{open_loop.connections_most:,} at once\n"
		"    without an answer    {open_loop.gave_up:,} gave up, "
		"{open_loop.gave_up_connecting:,} while connecting, {open_loop.refused:,} refused, "
		"{open_loop.lost:,} cut[open_loop.no_room , {open_loop.no_room:,} had no port or "
		"descriptor]\n",
		object);
	printf("    answered             ");
	for (uint32_t attempt = 0; attempt <= crowd->plan->open.retries; attempt++)
		printf("%s%lld", attempt ? " / " : "", (long long)crowd->answered_at[attempt]);
	output_template(
		" at the first attempt and the next\n"
		"  decided in time        {open_loop.good:,}: {open_loop.goodput_per_second:,} a "
		"second, {open_loop.goodput_least:,} to {open_loop.goodput_most:,} in each\n"
		"  5 s after the end      [open_loop.after.calm calm][!open_loop.after.calm NOT "
		"calm]"
		": [open_loop.after.ping_us ping {open_loop.after.ping_us:,} us]"
		"[!open_loop.after.ping_us no answer to a ping]"
		"[verify , accepted in a second {open_loop.after.accepted|unknown}, without an "
		"outcome {open_loop.after.unsettled|unknown}]\n",
		object);
}

static cJSON *report_json(const struct rush_report *report)
{
	const struct rush_plan *plan = report->requests->plan;
	const struct rush_figures *figures = report->figures;
	const struct rush_verify *v = report->verify;
	const struct rush_tally *t;
	uint32_t answered = rush_requests_answered(report->requests);
	cJSON *object = output_object(), *answers = output_object(), *verify, *wrong;

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
	output_number(object, "connections",
		      report->crowd ? plan->connections_n : figures->connected);
	output_number(object, "pipeline", report->crowd ? 1 : plan->pipeline);
	output_number(object, "rate", plan->rate);
	output_text(object, "ack", rush_acks[plan->ack]);
	if (report->crowd)
		output_add(object, "open_loop", open_loop_json(report));
	for (int end = 0; end < RUSH_ENDS; end++)
		if (report->requests->ends[end])
			output_number(answers, end_name(plan, end), report->requests->ends[end]);
	output_add(object, "answers", answers);
	output_number(object, "answered", answered);
	output_number(object, "unknown", report->requests->doubted);
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

	if (!report->verify) {
		output_null(object, "verify");
		return object;
	}
	t = &v->tally;
	verify = output_object();
	wrong = cJSON_CreateArray();
	output_bool(verify, "p1", !v->oversold && !v->rows_differ);
	output_bool(verify, "p2", !v->over_limit);
	output_bool(verify, "p3", !rush_tally_wrong(t) && !v->twice);
	output_number(verify, "total", v->total);
	output_number(verify, "issued", v->issued);
	output_number(verify, "oversold", v->oversold);
	output_bool(verify, "rows_differ", v->rows_differ != 0);
	output_number(verify, "over_limit", v->over_limit);
	output_number(verify, "accepted", t->told);
	output_number(verify, "rows", t->issued);
	output_number(verify, "rejected", t->rejected);
	output_number(verify, "lost", t->lost);
	output_number(verify, "both", t->both);
	output_number(verify, "twice", t->twice + v->twice);
	output_number(verify, "told_otherwise", t->other);
	output_number(verify, "keys_not_kept", t->unkept);
	output_number(verify, "never_told", t->stray);
	output_number(verify, "behind_unknown", t->from_unknown);
	/* from the first request to the last row */
	if (v->settled_us && v->new_n > 0 && !report->crowd)
		output_number(verify, "committed_us", v->settled_us - figures->begin_us);
	else
		output_null(verify, "committed_us");
	for (size_t i = 0; i < t->wrong_n; i++)
		cJSON_AddItemToArray(wrong, cJSON_CreateString(t->wrong[i]));
	output_add(verify, "wrong", wrong);
	output_add(object, "verify", verify);
	return object;
}

/* For people, from its JSON, to which it adds what the text alone needs. */
static void report_print(const struct rush_report *report, cJSON *object)
{
	static const char closed_head[] =
		"{requests:,} requests of {users:,} users, {connections} connections x {pipeline}"
		"[rate , {rate:,} a second]";
	static const char open_head[] =
		"{users:,} users in {open_loop.duration_s} s, {rate:,} a second, each over a "
		"connection of its own[open_loop.http , HTTP], who give up after "
		"{open_loop.give_up_s} s and press again {open_loop.retries} times, pause "
		"{open_loop.pause}";
	const struct rush_requests *requests = report->requests;
	const struct rush_plan *plan = requests->plan;
	const struct rush_figures *figures = report->figures;
	const struct rush_verify *v = report->verify;
	const cJSON *answers = cJSON_GetObjectItemCaseSensitive(object, "answers"), *answer;
	uint32_t n = rush_requests_answered(requests);
	char grouped[OUTPUT_GROUPED_SIZE];
	cJSON *verify = cJSON_GetObjectItemCaseSensitive(object, "verify");

	output_id(object, "first", plan->coupons.list[0]);
	output_id(object, "last", plan->coupons.list[plan->coupons.n - 1]);
	output_text(object, "form", plan->users.form == RUSH_INT ? NULL : "uuid");
	output_bool(object, "is_seeded", plan->users.seeded);
	seconds_add(object, figures->duration_us);
	output_template("rush on [coupon coupon {coupon}]"
			"[!coupon {coupons:,} coupons from {first} to {last}]: ",
			object);
	output_template(report->crowd ? open_head : closed_head, object);
	output_template(
		"[form , user ids {form}][is_seeded , user seed {user_seed}], ack {ack}\n\n",
		object);

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
		latency_print(rush_acks[plan->ack],
			      cJSON_GetObjectItemCaseSensitive(object, "latency_accepted_us"));

	if (report->crowd)
		open_loop_print(report, object);

	if (v) {
		int64_t committed_us = v->settled_us - figures->begin_us;

		seconds_add(verify, committed_us);
		output_number(verify, "per_second", per_second(v->new_n, committed_us));
		output_bool(verify, "is_unsettled", !v->settled_us);
		output_number(verify, "settled", v->tally.told - v->tally.lost);
		output_template(
			"[committed_us \n  last row committed {seconds} s after the first request, "
			"{per_second:,} receives a second\n]"
			"[is_unsettled \n  not settled in time: {settled:,} of {accepted:,} "
			"receives have their outcome\n]"
			"\n  P1 [p1 ok  ][!p1 NO  ] {issued:,} issued of {total:,}"
			"[rows_differ , but the number of rows differs]\n"
			"  P2 [p2 ok  ][!p2 NO  ] {over_limit:,} users over the limit\n"
			"  P3 [p3 ok  ][!p3 NO  ] {accepted:,} accepted: {rows:,} rows, "
			"{rejected:,} recorded rejections\n"
			"[behind_unknown           and {behind_unknown:,} with unknown answers\n]",
			verify);
		for (size_t i = 0; i < v->tally.wrong_n; i++)
			printf("     WRONG %s\n", v->tally.wrong[i]);
	}

	printf("\n%s: ", report->passed ? "PASS" : "FAIL");
	if (v) {
		output_number(verify, "more_than_once", v->tally.both + v->tally.twice + v->twice);
		output_template(
			"{accepted:,} accepted, {rows:,} rows, {oversold:,} oversold, "
			"{over_limit:,} over the limit, {lost:,} lost, {more_than_once:,} twice"
			"[rejected , {rejected:,} rejected]"
			"[never_told , {never_told:,} without an answer]"
			"[told_otherwise , {told_otherwise:,} answered wrongly]"
			"[keys_not_kept , {keys_not_kept:,} keys or codes not kept]",
			verify);
	}
	output_bool(object, "is_unanswered", !n);
	output_text(object, "why", figures->stopped ? "stopped by a signal" : figures->error);
	output_template("[!verify {answered:,} answered, not verified]"
			"[is_unanswered , not one request was answered]"
			"[answers.not_sent , {answers.not_sent:,} not sent: {why}]"
			"[not_understood , {not_understood:,} invalid lines]\n",
			object);
}

/* ---- the rush */

/* Returns the exit status. */
static int run(const struct config *config, const struct args *args)
{
	int verified = !args_has(args, "no-verify"), json = args_has(args, "json"),
	    progress = !json && isatty(STDERR_FILENO);
	int64_t timeout_s = args_number(args, "settle-timeout-s", 0, 86400, SETTLE_TIMEOUT_S);
	struct gateway_address address;
	struct rush_plan plan;
	struct rush_requests requests;
	struct rush_crowd crowd;
	struct rush_figures figures;
	struct rush_verify verify;
	struct rush_calm calm;
	cJSON *object;
	struct rush_report report = {
		.requests = &requests,
		.figures = &figures,
		.verify = verified ? &verify : NULL,
	};

	rush_plan_read(&plan, args);
	gateway_address_read(&address, config, plan.open.is_http, 1);
	if (plan.open.duration_us)
		rush_open_loop_check(&plan, &address);
	rush_requests_init(&requests, &plan);
	if (verified)
		rush_verify_begin(&verify, &plan, config->database_url, config->redis_url,
				  timeout_s);

	if (plan.open.duration_us) {
		rush_crowd_init(&crowd, &requests);
		report.crowd = &crowd;
		rush_open_loop_run(&crowd, &address, progress, &figures);
	} else {
		rush_closed_loop_run(&requests, &address, progress, &figures);
	}
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

	object = report_json(&report);
	if (json) {
		output_print(object);
	} else {
		report_print(&report, object);
		cJSON_Delete(object);
	}
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
	       "number of the first user; the others follow in order; default 1"),
	OPTION_WORDS("user-ids", "FORM", rush_forms,
		     "int (default): a user's number is its id; uuid: a UUID that contains it"),
	OPTION("user-seed", "N",
	       "ids that look random, without any order; the same seed gives the same ids, and "
	       "of several coupons the same one to each user"),
	OPTION("codes", "FILE",
	       "claim: each user sends the next code of this file of codes generate"),
	OPTION("receives", "FILE",
	       "use: each user uses the next receive of this file, in an order of its own; it has "
	       "the receive of each user, one a line"),
	OPTION("requests-per-user", "N", "number of requests per user; default 1"),
	SWITCH("keys", "all requests of a user have one idempotency key and must get one receive"),
	OPTION_WORDS("ack", "LEVEL", WORDS("accepted", "queued", "issued"),
		     "reply when a receive is accepted (default), queued or issued"),
	OPTION("connections", "C", "number of connections to the gateway; default 50"),
	OPTION("pipeline", "P", "maximum unanswered requests per connection; default 64"),
	OPTION("rate", "R",
	       "requests per second; latency counts from when each request was due; default: as "
	       "fast as answers arrive"),
	OPTION("timeout-s", "S",
	       "seconds to wait for an answer; a later one counts as unknown; default 10"),
	SWITCH("open-loop",
	       "open loop: users arrive at random times, --rate per second for --duration, without "
	       "waiting for answers; each has its own connection and idempotency key; "
	       "--connections limits the open connections, default 10000"),
	OPTION("duration", "T", "open loop: time during which users arrive, for example 60s"),
	OPTION("give-up", "T",
	       "open loop: a user closes its connection after this time without an answer; "
	       "default 2s"),
	OPTION("retries", "N",
	       "open loop: number of times that a user then tries again, with the same key; "
	       "default 3"),
	OPTION_WORDS("pause", "FORM", rush_pauses,
		     "open loop: pause before a user tries again: none (default); fixed: 1 s; "
		     "exponential: 1 s, then twice as long each time"),
	SWITCH("http", "open loop: send requests over HTTP to COUPON_HTTP_LISTEN"),
	OPTION("sources", "N",
	       "open loop: number of local addresses that connections come from, 127.0.0.1 and the "
	       "next ones; each has its own ports"),
	OPTION("settle-timeout-s", "S", "time to wait until all receives are settled; default 30"),
	SWITCH("no-verify", "only put load; do not check the database"),
	OPTIONS_END,
};

static const char summary[] =
	"Puts load on one or many coupons, and checks the outcomes. Needs --users, and --coupon or "
	"--coupons-from. Connects to COUPON_LISTEN: host:port, /path or unix:path. Afterwards each "
	"accepted receive must be one row or one recorded rejection in "
	"PostgreSQL. The exit status is the verdict: 0 every check passed; 1 a check failed, or it "
	"could not run; 2 the command line is invalid.";

static const struct command command = {
	.name = "coupon-rush",
	.options = options,
	.summary = "put load on one or many coupons, and check the outcomes",
};

#define OPEN_LOOP "open loop: " /* how the help of its options begins */
#define TOPIC "open-loop"

/* The options without those of the open loop, or these alone. */
static void help(const char *topic)
{
	struct option chosen[sizeof(options) / sizeof(options[0])];
	struct command part = { .options = chosen, .has_no_json = topic != NULL };
	size_t n = 0;

	for (const struct option *one = options; one->name; one++)
		if ((strncmp(one->help, OPEN_LOOP, strlen(OPEN_LOOP)) == 0) == (topic != NULL))
			chosen[n++] = *one;
	chosen[n] = (struct option)OPTIONS_END;
	if (!topic) {
		puts("Usage: coupon-rush [OPTIONS]\n");
		wrap_print(summary, 0, stdout);
		puts("\nOptions:");
	}
	args_options_print(&part, stdout);
	if (!topic)
		puts("\nMore: --help " TOPIC ", --help settings, --version; coupon-rush(1).");
}

static cJSON *options_list(void)
{
	return args_options_list(&command);
}

static const struct program_manual manual = {
	.name = "coupon-rush",
	.summary = summary,
	.program = CONFIG_RUSH,
	.help = help,
	.topic = TOPIC,
	.options = options_list,
};

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
	program_answer(&manual, argc, argv);
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

#include "ctl/rush/report.h"

#include "common/message/answer.h"
#include "ctl/output.h"

#include <string.h>

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
static int64_t committed_us(const struct rush_report *report)
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

static void answers_print(const struct rush_report *report)
{
	char n[OUTPUT_GROUPED_SIZE], rate[OUTPUT_GROUPED_SIZE];
	const struct rush_book *book = report->book;
	const struct rush_figures *figures = report->figures;
	uint32_t answered = rush_book_answered(book);
	struct rush_latency all, accepted;

	for (int end = 0; end < RUSH_ENDS; end++)
		if (book->ends[end])
			printf("  %-22s %12s\n", end_name(report->plan, end),
			       output_grouped(book->ends[end], n));
	printf("  %-22s %12s in %.3f s, %s a second\n", "answered", output_grouped(answered, n),
	       seconds(figures->duration_us),
	       output_grouped(per_second(answered, figures->duration_us), rate));
	if (figures->disconnections)
		printf("  %-22s %12u, the last: %s\n", "connections lost", figures->disconnections,
		       figures->error);
	if (book->overdue)
		printf("  %-22s %12u\n", "answered too late", book->overdue);
	if (book->strange)
		printf("  %-22s %12u, the first: %s\n", "invalid lines", book->strange,
		       book->strange_first);
	rush_book_latency(book, RUSH_ENDS, &all);
	rush_book_latency(book, answer_code(ANSWER_OK), &accepted);
	printf("\n  %-22s %9s %9s %9s %9s %9s\n", "latency, ms", "p50", "p90", "p99", "p99.9",
	       "max");
	latency_print("all answers", &all);
	if (accepted.n > 0 && accepted.n < all.n)
		latency_print(rush_ack_text(report->plan->ack), &accepted);
}

static void verify_print(const struct rush_report *report)
{
	char a[OUTPUT_GROUPED_SIZE], b[OUTPUT_GROUPED_SIZE], c[OUTPUT_GROUPED_SIZE];
	const struct rush_verify *v = report->verify;
	const struct rush_tally *t = &v->tally;

	if (committed_us(report))
		printf("\n  last row committed %.3f s after the first request, %s receives a "
		       "second\n",
		       seconds(committed_us(report)),
		       output_grouped(per_second(v->new_n, committed_us(report)), a));
	else if (!v->settled_us)
		printf("\n  not settled in time: %s of %s receives have their outcome\n",
		       output_grouped(t->told - t->lost, a), output_grouped(t->told, b));
	printf("\n  P1 %-4s %s issued of %s%s\n", v->oversold || v->rows_differ ? "NO" : "ok",
	       output_grouped(v->issued, a), output_grouped(v->total, b),
	       v->rows_differ ? ", but the number of rows differs" : "");
	printf("  P2 %-4s %s users over the limit\n", v->over_limit ? "NO" : "ok",
	       output_grouped(v->over_limit, a));
	printf("  P3 %-4s %s accepted: %s rows", rush_tally_wrong(t) || v->twice ? "NO" : "ok",
	       output_grouped(t->told, a), output_grouped(t->issued, b));
	printf(", %s recorded rejections\n", output_grouped(t->rejected, c));
	if (t->from_unknown)
		printf("          and %s with unknown answers\n",
		       output_grouped(t->from_unknown, a));
	for (size_t i = 0; i < t->wrong_n; i++)
		printf("     WRONG %s\n", t->wrong[i]);
}

static void verdict_print(const struct rush_report *report)
{
	char a[OUTPUT_GROUPED_SIZE], b[OUTPUT_GROUPED_SIZE], c[OUTPUT_GROUPED_SIZE],
		d[OUTPUT_GROUPED_SIZE];
	const struct rush_verify *v = report->verify;
	const struct rush_book *book = report->book;

	printf("\n%s: ", report->passed ? "PASS" : "FAIL");
	if (v) {
		printf("%s accepted, %s rows, %s oversold, %s over the limit, ",
		       output_grouped(v->tally.told, a), output_grouped(v->tally.issued, b),
		       output_grouped(v->oversold, c), output_grouped(v->over_limit, d));
		printf("%s lost, %s twice", output_grouped(v->tally.lost, a),
		       output_grouped(v->tally.twice + v->tally.both, b));
		if (v->tally.rejected)
			printf(", %s rejected", output_grouped(v->tally.rejected, c));
		if (v->tally.stray)
			printf(", %s without an answer", output_grouped(v->tally.stray, c));
		if (v->tally.other)
			printf(", %s answered wrongly", output_grouped(v->tally.other, c));
		if (v->tally.unkept)
			printf(", %s keys or codes not kept", output_grouped(v->tally.unkept, c));
	} else {
		printf("%s answered, not verified", output_grouped(rush_book_answered(book), a));
	}
	if (book->ends[RUSH_NOT_SENT])
		printf(", %s not sent: %s", output_grouped(book->ends[RUSH_NOT_SENT], a),
		       report->figures->stopped ? "stopped by a signal" : report->figures->error);
	if (book->strange)
		printf(", %s invalid lines", output_grouped(book->strange, a));
	putchar('\n');
}

static void coupons_print(const struct rush_coupons *coupons)
{
	const struct rush_coupon *list = coupons->list;
	char n[OUTPUT_GROUPED_SIZE];

	if (coupons->n == 1)
		printf("rush on coupon %s", list[0].text);
	else
		printf("rush on %s coupons from %s to %s", output_grouped(coupons->n, n),
		       list[0].text, list[coupons->n - 1].text);
}

void rush_report_text(const struct rush_report *report)
{
	const struct rush_plan *plan = report->plan;
	char requests[OUTPUT_GROUPED_SIZE], users[OUTPUT_GROUPED_SIZE], rate[OUTPUT_GROUPED_SIZE];

	coupons_print(&plan->coupons);
	printf(": %s requests of %s users, %u connections x %u",
	       output_grouped(plan->requests_n, requests), output_grouped(plan->users.n, users),
	       report->figures->connected, plan->pipeline);
	if (plan->rate)
		printf(", %s a second", output_grouped(plan->rate, rate));
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

static cJSON *latency_json(const struct rush_book *book, int code)
{
	cJSON *object = output_object();
	struct rush_latency latency;

	rush_book_latency(book, code, &latency);
	output_number(object, "n", (int64_t)latency.n);
	output_number(object, "p50", latency.p50_us);
	output_number(object, "p90", latency.p90_us);
	output_number(object, "p99", latency.p99_us);
	output_number(object, "p99_9", latency.p999_us);
	output_number(object, "max", latency.max_us);
	return object;
}

static cJSON *answers_json(const struct rush_report *report)
{
	cJSON *object = output_object();

	for (int end = 0; end < RUSH_ENDS; end++)
		if (report->book->ends[end])
			output_number(object, end_name(report->plan, end), report->book->ends[end]);
	return object;
}

static cJSON *verify_json(const struct rush_report *report)
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

void rush_report_json(const struct rush_report *report)
{
	const struct rush_plan *plan = report->plan;
	const struct rush_figures *figures = report->figures;
	uint32_t answered = rush_book_answered(report->book);
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
	output_number(object, "unknown", rush_book_unknown(report->book));
	output_number(object, "begin_us", figures->begin_us);
	output_number(object, "duration_us", figures->duration_us);
	output_number(object, "per_second", per_second(answered, figures->duration_us));
	output_bool(object, "stopped", figures->stopped);
	output_number(object, "disconnections", figures->disconnections);
	output_number(object, "answered_too_late", report->book->overdue);
	output_number(object, "not_understood", report->book->strange);
	output_number(object, "client_cpu_us", figures->cpu_us);
	output_add(object, "latency_us", latency_json(report->book, RUSH_ENDS));
	output_add(object, "latency_accepted_us",
		   latency_json(report->book, answer_code(ANSWER_OK)));
	if (report->verify)
		output_add(object, "verify", verify_json(report));
	else
		output_null(object, "verify");
	output_print(object);
}

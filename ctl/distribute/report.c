#include "ctl/distribute/report.h"

#include "ctl/ctl.h"
#include "ctl/output.h"

#include <string.h>

/* The number of users with this status: some have it for several reasons. */
static int64_t status_count(const struct state *state, const char *status)
{
	int64_t n = 0;

	for (int end = END_ISSUED; end < ENDS_N; end++)
		if (strcmp(end_status((enum end)end), status) == 0)
			n += state->counts[end];
	return n;
}

/* Whether this end is the first that has its status. */
static int is_first(int end)
{
	for (int other = END_ISSUED; other < end; other++)
		if (strcmp(end_status((enum end)other), end_status((enum end)end)) == 0)
			return 0;
	return 1;
}

static int64_t refused_count(const struct state *state)
{
	return state->settled - state->counts[END_ISSUED];
}

static double rate_of(const struct run_report *run)
{
	return run->duration_us > 0 ? (double)run->sent_ended * 1e6 / (double)run->duration_us : 0;
}

static void count_print(const char *name, int64_t n)
{
	char text[OUTPUT_GROUPED_SIZE];

	printf("%-16s %12s\n", name, output_grouped(n, text));
}

static void text_print(const struct report *report)
{
	const struct state *state = report->state;
	char text[OUTPUT_GROUPED_SIZE];

	printf("coupon %lld, distribution %s\n", (long long)state->coupon, state->name);
	count_print("listed", state->users);
	count_print("issued", state->counts[END_ISSUED]);
	if (report->issued_before > 0)
		count_print("  before this run", report->issued_before);
	for (int end = END_ISSUED + 1; end < ENDS_N; end++) {
		const char *status = end_status((enum end)end);

		if (is_first(end) && status_count(state, status) > 0)
			count_print(status, status_count(state, status));
	}
	if (state->settled < state->users)
		count_print("left", state->users - state->settled);
	if (refused_count(state) > 0)
		printf("the users without a coupon are in %s\n", report->refused_path);
	if (report->run->duration_us > 0)
		printf("%.1f s, %s users/s\n", (double)report->run->duration_us / 1e6,
		       output_grouped((int64_t)rate_of(report->run), text));
}

static void json_print(const struct report *report)
{
	const struct state *state = report->state;
	cJSON *root = output_object(), *refused = output_object();

	output_id(root, "coupon", state->coupon);
	output_text(root, "name", state->name);
	output_number(root, "listed", state->users);
	output_number(root, "settled", state->settled);
	output_number(root, "issued", state->counts[END_ISSUED]);
	output_number(root, "issued_before", report->issued_before);
	for (int end = END_ISSUED + 1; end < ENDS_N; end++) {
		const char *status = end_status((enum end)end);

		if (is_first(end) && status_count(state, status) > 0)
			output_number(refused, status, status_count(state, status));
	}
	output_add(root, "refused", refused);
	output_bool(root, "finished", state->settled == state->users);
	output_text(root, "state_file", report->state_path);
	output_text(root, "refused_file", report->refused_path);
	output_number(root, "duration_us", report->run->duration_us);
	output_number(root, "rate", (int64_t)rate_of(report->run));
	output_print(root);
}

void report_print(const struct report *report, int is_json)
{
	if (is_json)
		json_print(report);
	else
		text_print(report);
}

int report_status(const struct report *report)
{
	const struct run_report *run = report->run;

	switch (run->end) {
	case RUN_DONE:
		return refused_count(report->state) > 0 ? CTL_REFUSED : 0;
	case RUN_INTERRUPTED:
		fputs("couponctl: interrupted; run the same command again to go on\n", stderr);
		return CTL_STOPPED;
	case RUN_IMPATIENT:
		fprintf(stderr,
			"couponctl: stopped, because nothing was issued or refused for "
			"--patience-s: %s; run the same command again to go on\n",
			run->why);
		return CTL_STOPPED;
	case RUN_FAILED:
		fprintf(stderr, "couponctl: stopped: %s\n", run->why);
		return 1;
	}
	return 1;
}

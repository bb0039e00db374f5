/* couponctl events: how far the publishing of events is behind. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

static void lag_json(const PGresult *lag, int64_t allowed)
{
	cJSON *object = output_object();

	output_number(object, "waiting", db_int(lag, 0, "events_num"));
	output_number(object, "allowed", allowed);
	output_number(object, "transactions", db_int(lag, 0, "rows_num"));
	output_number(object, "oldest_ms", db_int(lag, 0, "age_ms"));
	output_number(object, "bytes", db_int(lag, 0, "size_bytes"));
	output_number(object, "relays", db_int(lag, 0, "relays_num"));
	output_print(object);
}

static void lag_text(const PGresult *lag, int64_t allowed)
{
	char waiting[OUTPUT_GROUPED_SIZE], most[OUTPUT_GROUPED_SIZE], bytes[OUTPUT_GROUPED_SIZE];

	printf("events that wait    %s of %s transactions; %s are allowed\n",
	       output_grouped(db_int(lag, 0, "events_num"), waiting), db_text(lag, 0, "rows_num"),
	       output_grouped(allowed, most));
	printf("the oldest          %s ms\n", db_text(lag, 0, "age_ms"));
	printf("log on disk         %s bytes\n",
	       output_grouped(db_int(lag, 0, "size_bytes"), bytes));
	printf("workers' relays     %s\n", db_text(lag, 0, "relays_num"));
}

static int events_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	PGresult *lag = db_query(db, sql_query_event_log_lag, 0, NULL);
	int64_t allowed = ctl->config.event_log_max;
	int is_full = db_int(lag, 0, "events_num") > allowed;

	if (args_has(&ctl->args, "json"))
		lag_json(lag, allowed);
	else
		lag_text(lag, allowed);
	if (is_full)
		fputs("couponctl: more events wait than COUPON_EVENT_LOG_MAX allows\n", stderr);
	PQclear(lag);
	db_close(db);
	return is_full ? 1 : 0;
}

static const struct option events_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command events_command = {
	.name = "events",
	.run = events_run,
	.options = events_options,
	.summary = "print how many events wait to be published, and for how long",
	.detail =
		"The exit status is 1 when more wait than COUPON_EVENT_LOG_MAX. Whether a coupon\n"
		"has events: couponctl create and edit, --events on|off.",
};

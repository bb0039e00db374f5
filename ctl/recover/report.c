#include "ctl/recover/report.h"

#include "ctl/output.h"

#include <inttypes.h>
#include <stdio.h>

void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail)
{
	cJSON *object;

	progress_hide(&recover->progress);
	if (!recover->is_json) {
		printf("%s: coupon %" PRId64 "%s%s\n", what, coupon, detail ? ", " : "",
		       detail ? detail : "");
		return;
	}
	object = output_object();
	output_text(object, "what", what);
	output_id(object, "coupon", coupon);
	output_text(object, "detail", detail);
	output_print(object);
}

void report_receive(struct recover *recover, const char *what, int64_t coupon,
		    const struct held *held, const char *reason)
{
	const struct receive receive = { .coupon = coupon,
					 .user = held->user,
					 .batch = held->record.batch,
					 .index = held->record.index };
	char text[RECEIVE_SIZE];
	cJSON *object;

	progress_hide(&recover->progress);
	receive_format(&receive, text);
	if (!recover->is_json) {
		printf("%s: receive %s, user %s, slot %d%s%s\n", what, text, held->user.text,
		       held->record.slot, reason ? ": " : "", reason ? reason : "");
		return;
	}
	object = output_object();
	output_text(object, "what", what);
	output_text(object, "receive", text);
	output_id(object, "coupon", coupon);
	output_text(object, "user", held->user.text);
	output_number(object, "slot", held->record.slot);
	output_text(object, "reason", reason);
	output_print(object);
}

static void json_print(const struct recover *recover, int64_t ms)
{
	const struct recover_counts *counts = &recover->counts;
	cJSON *object = output_object();

	output_text(object, "what", "end");
	output_bool(object, "dry_run", recover->is_dry);
	output_number(object, "coupons", counts->coupons);
	output_number(object, "created", counts->created);
	output_number(object, "changed", counts->changed);
	output_number(object, "deleted", counts->deleted);
	output_number(object, "left", counts->left);
	output_number(object, "receives", counts->receives);
	output_number(object, "receives_there", counts->receives_there);
	output_number(object, "receives_rejected", counts->receives_rejected);
	output_number(object, "receives_lost", counts->receives_lost);
	output_number(object, "rejections", counts->rejections);
	output_number(object, "rejections_there", counts->rejections_there);
	output_number(object, "unreadable", counts->unreadable);
	output_number(object, "ms", ms);
	output_print(object);
}

void report_end(struct recover *recover, int64_t ms)
{
	const struct recover_counts *counts = &recover->counts;

	progress_end(&recover->progress);
	if (recover->is_json) {
		json_print(recover, ms);
		return;
	}
	printf("coupons in Redis: %" PRId64 ", created in PostgreSQL %" PRId64
	       ", terms changed %" PRId64 ", deleted in Redis %" PRId64
	       "; in PostgreSQL alone, left as they are: %" PRId64 "\n",
	       counts->coupons, counts->created, counts->changed, counts->deleted, counts->left);
	printf("receives: brought back %" PRId64 ", there already %" PRId64 ", rejected %" PRId64
	       ", lost %" PRId64 "\n",
	       counts->receives, counts->receives_there, counts->receives_rejected,
	       counts->receives_lost);
	printf("earlier rejections: brought back %" PRId64 ", there already %" PRId64 "\n",
	       counts->rejections, counts->rejections_there);
	if (counts->unreadable > 0)
		printf("unreadable records in Redis: %" PRId64 "\n", counts->unreadable);
	printf("%s in %.1f s\n", recover->is_dry ? "nothing was changed; looked" : "recovered",
	       (double)ms / 1000);
}

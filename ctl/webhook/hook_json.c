#include "ctl/webhook/hook_json.h"

#include "common/check.h"
#include "ctl/output.h"
#include "ctl/postgres.h"

#include <string.h>

/* The types, which are separated by commas; none: all of them. */
static cJSON *types_json(const char *types)
{
	cJSON *list = cJSON_CreateArray();

	check(list != NULL);
	while (*types) {
		char one[64];
		size_t len = strcspn(types, ",");

		snprintf(one, sizeof(one), "%.*s", (int)len, types);
		cJSON_AddItemToArray(list, cJSON_CreateString(one));
		types += len + (types[len] == ',');
	}
	return list;
}

cJSON *hook_json(const PGresult *rows, int row)
{
	cJSON *object = output_object();

	output_id(object, "webhook", db_int(rows, row, "id"));
	output_text(object, "url", db_text(rows, row, "url"));
	output_id(object, "coupon", db_int(rows, row, "coupon_id"));
	output_add(object, "types", types_json(db_text(rows, row, "types")));
	output_text(object, "state", db_text(rows, row, "state"));
	output_text(object, "why", db_text(rows, row, "state_why"));
	output_text(object, "state_by", db_text(rows, row, "state_by"));
	output_text(object, "state_at", db_text(rows, row, "state_at"));
	output_number(object, "batch", db_int(rows, row, "batch_max"));
	output_number(object, "queue", db_int(rows, row, "queue_max"));
	output_number(object, "waiting", db_int(rows, row, "waiting_num"));
	output_number(object, "given_up", db_int(rows, row, "failed_num"));
	output_number(object, "failures", db_int(rows, row, "failures_num"));
	output_text(object, "failing_since", db_text(rows, row, "failing_since"));
	output_text(object, "paused_until", db_text(rows, row, "pause_until"));
	output_number(object, "delivered_events", db_int(rows, row, "delivered_num"));
	output_text(object, "delivered_at", db_text(rows, row, "delivered_at"));
	output_number(object, "dropped_events", db_int(rows, row, "dropped_num"));
	output_text(object, "dropped_at", db_text(rows, row, "dropped_at"));
	output_text(object, "created_by", db_text(rows, row, "created_by"));
	output_text(object, "created_at", db_text(rows, row, "created_at"));
	return object;
}

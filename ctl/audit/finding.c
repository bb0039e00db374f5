#include "ctl/audit/finding.h"

#include "common/check.h"
#include "common/message/receive.h"

#include <stdarg.h>
#include <string.h>

static const struct {
	const char *word, *promise;
} kinds[] = {
#define FINDING(name, word, promise, meaning) { word, promise },
#include "ctl/audit/finding_table.h"
#undef FINDING
};

static void json_print(struct findings *findings, enum finding finding, int64_t coupon,
		       const struct slot *slot, const char *receive, const char *text)
{
	cJSON *object = output_object();
	char *line;

	output_text(object, "kind", kinds[finding].word);
	output_text(object, "promise", kinds[finding].promise);
	output_id(object, "coupon", coupon);
	output_text(object, "user", slot->user.len > 0 ? slot->user.text : "");
	if (slot->number > 0)
		output_number(object, "slot", slot->number);
	else
		output_null(object, "slot");
	output_text(object, "receive", receive);
	output_text(object, "text", text);
	line = cJSON_PrintUnformatted(object);
	check(line != NULL);
	printf("%s%s", findings->begun ? "," : "{\"wrong\":[", line);
	findings->begun = 1;
	cJSON_free(line);
	cJSON_Delete(object);
}

void finding_add(struct findings *findings, enum finding finding, int64_t coupon,
		 const struct slot *slot, const char *format, ...)
{
	static const struct slot none;
	char text[512], receive[RECEIVE_SIZE] = "";
	va_list list;

	findings->n++;
	if (findings->silent)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (!slot)
		slot = &none;
	if (slot->number > 0)
		slot_receive_format(slot, coupon, receive);
	if (findings->json) {
		json_print(findings, finding, coupon, slot, receive, text);
		return;
	}
	printf("WRONG %s: coupon %lld", kinds[finding].promise, (long long)coupon);
	if (slot->user.len > 0)
		printf(", user %s", slot->user.text);
	if (slot->number > 0)
		printf(", slot %d, receive %s", slot->number, receive);
	printf(": %s (%s)\n", text, kinds[finding].word);
}

void findings_end(struct findings *findings, cJSON *rest)
{
	char *text = cJSON_PrintUnformatted(rest);

	check(text != NULL && text[0] == '{');
	printf("%s],%s\n", findings->begun ? "" : "{\"wrong\":[", text + 1);
	cJSON_free(text);
	cJSON_Delete(rest);
}

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

static const char *receive_text(const struct place *place, char out[RECEIVE_SIZE])
{
	struct receive receive = { .coupon = place->coupon, .index = place->index };

	out[0] = '\0';
	if (place->batch && place->user) {
		receive.user = *place->user;
		receive.batch = *place->batch;
		receive_format(&receive, out);
	}
	return out;
}

static void number_add(cJSON *object, const char *name, int64_t number)
{
	if (number > 0)
		output_number(object, name, number);
	else
		output_null(object, name);
}

static void json_print(struct findings *findings, enum finding finding, const struct place *place,
		       const char *receive, const char *text)
{
	cJSON *object = output_object();
	char *line;

	output_text(object, "kind", kinds[finding].word);
	output_text(object, "promise", kinds[finding].promise);
	output_id(object, "coupon", place->coupon);
	output_text(object, "user", place->user ? place->user->text : "");
	number_add(object, "slot", place->slot);
	output_text(object, "receive", receive);
	output_text(object, "text", text);
	line = cJSON_PrintUnformatted(object);
	check(line != NULL);
	printf("%s%s", findings->begun ? "," : "{\"wrong\":[", line);
	findings->begun = 1;
	cJSON_free(line);
	cJSON_Delete(object);
}

/* "coupon 1001, user 42, slot 1, receive 1001.42.01JD….0". */
static void place_format(const struct place *place, const char *receive, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "coupon %lld", (long long)place->coupon);

	if (place->user)
		n += (size_t)snprintf(out + n, size - n, ", user %s", place->user->text);
	if (place->slot > 0)
		n += (size_t)snprintf(out + n, size - n, ", slot %d", place->slot);
	if (*receive)
		snprintf(out + n, size - n, ", receive %s", receive);
}

void finding_add(struct findings *findings, enum finding finding, const struct place *place,
		 const char *format, ...)
{
	char text[512], where[RECEIVE_SIZE + USER_ID_SIZE + 100], receive[RECEIVE_SIZE];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	receive_text(place, receive);
	findings->n++;
	if (findings->silent)
		return;
	if (findings->json) {
		json_print(findings, finding, place, receive, text);
		return;
	}
	place_format(place, receive, where, sizeof(where));
	printf("WRONG %s: %s: %s (%s)\n", kinds[finding].promise, where, text, kinds[finding].word);
}

void findings_end(struct findings *findings, cJSON *rest)
{
	char *text = cJSON_PrintUnformatted(rest);

	check(text != NULL && text[0] == '{');
	printf("%s],%s\n", findings->begun ? "" : "{\"wrong\":[", text + 1);
	cJSON_free(text);
	cJSON_Delete(rest);
}

#include "ctl/output.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

cJSON *output_object(void)
{
	cJSON *object = cJSON_CreateObject();

	check(object != NULL);
	return object;
}

void output_text(cJSON *object, const char *name, const char *text)
{
	if (text && *text)
		check(cJSON_AddStringToObject(object, name, text) != NULL);
	else
		output_null(object, name);
}

void output_number(cJSON *object, const char *name, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)number);
	check(cJSON_AddRawToObject(object, name, text) != NULL);
}

void output_id(cJSON *object, const char *name, int64_t id)
{
	char text[24] = "";

	if (id > 0)
		snprintf(text, sizeof(text), "%lld", (long long)id);
	output_text(object, name, text);
}

void output_bool(cJSON *object, const char *name, int truth)
{
	check(cJSON_AddBoolToObject(object, name, truth) != NULL);
}

void output_null(cJSON *object, const char *name)
{
	check(cJSON_AddNullToObject(object, name) != NULL);
}

void output_add(cJSON *object, const char *name, cJSON *child)
{
	check(child != NULL && cJSON_AddItemToObject(object, name, child));
}

void output_print(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);

	check(text != NULL);
	puts(text);
	cJSON_free(text);
	cJSON_Delete(object);
}

char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE])
{
	char digits[24];
	size_t n = (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)number), k = 0;
	size_t first = digits[0] == '-' ? 1 : 0;

	for (size_t i = 0; i < n; i++) {
		if (i > first && (n - i) % 3 == 0)
			out[k++] = ',';
		out[k++] = digits[i];
	}
	out[k] = '\0';
	return out;
}

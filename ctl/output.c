#include "ctl/output.h"

#include "common/check.h"
#include "ctl/postgres.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN_NAME_SIZE 32
#define BAR_WIDTH 40 /* characters */
#define LINE_WIDTH (sizeof("couponctl:  [] 100 %") + PROGRESS_WHAT_SIZE + BAR_WIDTH)

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

static cJSON *list_make(const char *text)
{
	cJSON *list = cJSON_CreateArray();

	check(list != NULL);
	while (*text) {
		int len = (int)strcspn(text, ",");
		char one[64];

		snprintf(one, sizeof(one), "%.*s", len, text);
		cJSON_AddItemToArray(list, cJSON_CreateString(one));
		text += len + (text[len] == ',');
	}
	return list;
}

static void column_add(cJSON *object, const struct column *column, const PGresult *rows, int row)
{
	switch (column->kind) {
	case COLUMN_TEXT:
		output_text(object, column->name, db_text(rows, row, column->column));
		return;
	case COLUMN_NUMBER:
		output_number(object, column->name, db_int(rows, row, column->column));
		return;
	case COLUMN_SOME:
		if (db_int(rows, row, column->column))
			output_number(object, column->name, db_int(rows, row, column->column));
		else
			output_null(object, column->name);
		return;
	case COLUMN_ID:
		output_id(object, column->name, db_int(rows, row, column->column));
		return;
	case COLUMN_BOOL:
		output_bool(object, column->name, db_is_true(rows, row, column->column));
		return;
	case COLUMN_LIST:
		output_add(object, column->name, list_make(db_text(rows, row, column->column)));
		return;
	case COLUMN_RAW:
		if (db_is_null(rows, row, column->column))
			output_null(object, column->name);
		else
			output_add(object, column->name,
				   cJSON_CreateRaw(db_text(rows, row, column->column)));
	}
}

void output_columns(cJSON *object, const struct column *columns, const PGresult *rows, int row)
{
	for (const struct column *column = columns; column->name; column++)
		column_add(object, column, rows, row);
}

/* Copies the name of a column. Returns what follows it. */
static const char *name_take(const char *text, char name[COLUMN_NAME_SIZE])
{
	size_t len = strcspn(text, "|:}] ");

	check(len < COLUMN_NAME_SIZE);
	memcpy(name, text, len);
	name[len] = '\0';
	return text + len;
}

/* Prints a field, whose text begins after its brace. Returns what follows it. */
static const char *field_print(const char *text, const PGresult *rows, int row)
{
	char name[COLUMN_NAME_SIZE], grouped[OUTPUT_GROUPED_SIZE], *end;
	const char *value;
	int width = 0;

	text = name_take(text, name);
	value = db_text(rows, row, name);
	if (*text == ':' && text[1] == ',') {
		value = output_grouped(db_int(rows, row, name), grouped);
		text += 2;
	} else if (*text == ':') {
		width = (int)strtol(text + 1, &end, 10);
		text = end;
	}
	end = strchr(text, '}');
	check(end != NULL);
	if (*text == '|' && !*value)
		printf("%*.*s", width, (int)(end - text - 1), text + 1);
	else
		printf("%*s", width, value);
	return end + 1;
}

/* What follows the bracket that ends the text. */
static const char *condition_skip(const char *text)
{
	for (int depth = 1; depth > 0; text++) {
		check(*text);
		depth += (*text == '[') - (*text == ']');
	}
	return text;
}

/* The text after the name of a column in brackets, or what follows them. */
static const char *condition_enter(const char *text, const PGresult *rows, int row)
{
	char name[COLUMN_NAME_SIZE];
	const char *value;

	text = name_take(text, name);
	value = db_text(rows, row, name);
	return *value && strcmp(value, "0") != 0 ? text + 1 : condition_skip(text);
}

void output_template(const char *template, const PGresult *rows, int row)
{
	while (*template) {
		char c = *template ++;

		if (c == '{')
			template = field_print(template, rows, row);
		else if (c == '[')
			template = condition_enter(template, rows, row);
		else if (c != ']')
			putchar(c);
	}
}

void output_row(const PGresult *rows, int row, const struct column *columns, const char *template,
		int as_json)
{
	cJSON *object;

	if (!as_json) {
		output_template(template, rows, row);
		return;
	}
	object = output_object();
	output_columns(object, columns, rows, row);
	output_print(object);
}

void output_rows(const PGresult *rows, const struct column *columns, const char *template,
		 int as_json)
{
	for (int row = 0; row < PQntuples(rows); row++)
		output_row(rows, row, columns, template, as_json);
}

static void bar_draw(const struct progress *progress)
{
	static const char full[] = "########################################";
	int filled = progress->percent * BAR_WIDTH / 100;

	_Static_assert(sizeof(full) - 1 == BAR_WIDTH, "a character for each step of the bar");
	fprintf(stderr, "\rcouponctl: %s [%.*s%*s] %3d %%", progress->what, filled, full,
		BAR_WIDTH - filled, "", progress->percent);
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total)
{
	int percent = total > 0 ? (int)((double)done / (double)total * 100) : 100;
	int is_terminal = isatty(STDERR_FILENO);

	if (strcmp(progress->what, what) != 0) {
		progress_end(progress);
		snprintf(progress->what, sizeof(progress->what), "%s", what);
		progress->percent = -1;
	}
	if (percent == progress->percent)
		return;
	if (is_terminal || percent / 10 != progress->percent / 10 || progress->percent < 0) {
		progress->percent = percent;
		if (is_terminal)
			bar_draw(progress);
		else
			fprintf(stderr, "couponctl: %s: %d %%\n", what, percent);
	}
}

void progress_hide(struct progress *progress)
{
	if (!progress->what[0] || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%*s\r", (int)LINE_WIDTH, "");
	progress->percent = -1;
}

void progress_end(struct progress *progress)
{
	if (progress->what[0] && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	progress->what[0] = '\0';
}

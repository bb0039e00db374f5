#include "ctl/output.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "ctl/ctl.h"
#include "ctl/money.h"
#include "ctl/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_SIZE 48
#define BAR_WIDTH 40 /* characters */
#define LINE_WIDTH (sizeof("couponctl:  [] 100 %") + PROGRESS_WHAT_SIZE + BAR_WIDTH)

cJSON *output_object(void)
{
	return checked(cJSON_CreateObject());
}

void output_text(cJSON *object, const char *name, const char *text)
{
	if (text && *text)
		check(cJSON_AddStringToObject(object, name, text) != NULL);
	else
		output_null(object, name);
}

void output_raw(cJSON *object, const char *name, const char *json)
{
	check(cJSON_AddRawToObject(object, name, *json ? json : "null") != NULL);
}

void output_number(cJSON *object, const char *name, int64_t number)
{
	char text[NUMBER_SIZE];

	output_raw(object, name, number_text(number, text));
}

void output_id(cJSON *object, const char *name, int64_t id)
{
	char text[NUMBER_SIZE];

	output_text(object, name, id > 0 ? number_text(id, text) : NULL);
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
	char *text = checked(json_write(object));

	/* PostgreSQL and cJSON do not escape U+007F to U+009F, and terminals obey some of them. */
	for (const char *p = text; *p; p++)
		if (*p == '\x7f')
			fputs("\\u007f", stdout);
		else if (*p == '\xc2' && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xa0)
			printf("\\u%04x", (unsigned char)*++p);
		else
			putchar(*p);
	putchar('\n');
	cJSON_free(text);
	cJSON_Delete(object);
}

char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE])
{
	char digits[NUMBER_SIZE], *at = out;
	size_t n = strlen(number_text(number, digits));

	for (size_t i = 0; i < n; i++) {
		if (i > (number < 0) && (n - i) % 3 == 0)
			*at++ = ',';
		*at++ = digits[i];
	}
	*at = '\0';
	return out;
}

/* Types of PostgreSQL, as in its pg_type.dat. */
enum {
	OF_BOOL = 16,
	OF_INT8 = 20,
	OF_INT2 = 21,
	OF_INT4 = 23,
	OF_JSON = 114,
	OF_TEXTS = 1009,
	OF_NUMERIC = 1700,
	OF_JSONB = 3802
};

static void value_add(cJSON *object, const char *name, const PGresult *rows, int row, int column)
{
	const char *text = PQgetvalue(rows, row, column);
	cJSON *list;

	if (PQgetisnull(rows, row, column)) {
		output_null(object, name);
		return;
	}
	switch (PQftype(rows, column)) {
	case OF_BOOL:
		output_bool(object, name, *text == 't');
		return;
	case OF_INT2:
	case OF_INT4:
	case OF_INT8:
	case OF_NUMERIC:
	case OF_JSON:
	case OF_JSONB:
		output_raw(object, name, text);
		return;
	case OF_TEXTS: /* {a,b}: the elements have no special characters */
		list = checked(cJSON_CreateArray());
		for (text++; *text && *text != '}';) {
			int len = (int)strcspn(text, ",}");
			char one[64];

			snprintf(one, sizeof(one), "%.*s", len, text);
			cJSON_AddItemToArray(list, cJSON_CreateString(one));
			text += len + (text[len] == ',');
		}
		output_add(object, name, list);
		return;
	}
	output_text(object, name, text);
}

void output_row(cJSON *object, const PGresult *rows, int row)
{
	for (int column = 0; column < PQnfields(rows); column++) {
		const char *name = PQfname(rows, column), *dot = strchr(name, '.');
		char part[NAME_SIZE];
		cJSON *parent = object;

		if (dot) {
			snprintf(part, sizeof(part), "%.*s", (int)(dot - name), name);
			parent = cJSON_GetObjectItemCaseSensitive(object, part);
			if (!parent)
				parent = cJSON_AddObjectToObject(object, part);
			check(parent != NULL);
			name = dot + 1;
		}
		value_add(parent, name, rows, row, column);
	}
}

/* Copies the name of a member. Returns what follows it. */
static const char *name_take(const char *text, char name[NAME_SIZE])
{
	size_t len = strcspn(text, "|:}] ");

	check(len < NAME_SIZE);
	memcpy(name, text, len);
	name[len] = '\0';
	return text + len;
}

/* Finds a member; "a.b" names the member b of the object a. */
static const cJSON *member_find(const cJSON *object, char name[NAME_SIZE])
{
	for (char *rest = name, *part; (part = strsep(&rest, ".")) != NULL;)
		object = cJSON_GetObjectItemCaseSensitive(object, part);
	return object;
}

/* The text of a member for a terminal, to be freed. Commas separate the elements of an array. */
static char *text_of(const cJSON *member)
{
	char number[NUMBER_SIZE], *plain;
	const cJSON *element;
	const char *text;
	size_t size;
	FILE *out = checked(open_memstream(&plain, &size));

	if (cJSON_IsRaw(member) && strcmp(member->valuestring, "null") == 0)
		member = NULL;
	text = cJSON_IsString(member) || cJSON_IsRaw(member) ? member->valuestring
	       : cJSON_IsNumber(member) ? number_text((int64_t)member->valuedouble, number)
	       : cJSON_IsTrue(member)   ? "true"
	       : cJSON_IsFalse(member)  ? "false"
	       : cJSON_IsObject(member) ? "{}"
					: "";
	text_print_plain(text, strlen(text), out);
	if (cJSON_IsArray(member))
		cJSON_ArrayForEach(element, member)
		{
			if (element != member->child)
				putc(',', out);
			text_print_plain(element->valuestring, strlen(element->valuestring), out);
		}
	check(fclose(out) == 0);
	return plain;
}

void output_money(cJSON *object, const char *path, const char *currency)
{
	const char *dot = strchr(path, '.');
	cJSON *parent = object, *text = NULL;
	char name[NAME_SIZE], money[MONEY_SIZE], *units;

	snprintf(name, sizeof(name), "%.*s", dot ? (int)(dot - path) : 0, path);
	if (dot)
		parent = cJSON_GetObjectItemCaseSensitive(object, name);
	path = dot ? dot + 1 : path;
	units = text_of(cJSON_GetObjectItemCaseSensitive(parent, path));
	if (*units && currency && *currency)
		text = checked(
			cJSON_CreateString(money_text(strtoll(units, NULL, 10), currency, money)));
	else if (*units)
		text = checked(cJSON_CreateNull());
	if (text)
		check(cJSON_ReplaceItemInObjectCaseSensitive(parent, path, text));
	free(units);
}

/* Prints the field whose text begins after the brace. Returns what follows the field. */
static const char *field_print(const char *text, const cJSON *object)
{
	char name[NAME_SIZE], grouped[OUTPUT_GROUPED_SIZE], *value, *end;
	int width = 0, is_grouped = 0;

	text = name_take(text, name);
	value = text_of(member_find(object, name));
	if (*text == ':') {
		is_grouped = text[1] == ',';
		width = (int)strtol(text + 1 + is_grouped, &end, 10);
		text = end;
	}
	end = strchr(text, '}');
	check(end != NULL);
	if (*text == '|' && !*value)
		printf("%*.*s", width, (int)(end - text - 1), text + 1);
	else if (is_grouped)
		printf("%*s", width, output_grouped(strtoll(value, NULL, 10), grouped));
	else
		printf("%*s", width, value);
	free(value);
	return end + 1;
}

/*
 * Returns the text after the name of a member in brackets, or, if the condition does not hold, what
 * follows the brackets.
 */
static const char *condition_enter(const char *text, const cJSON *object)
{
	int wanted = *text != '!', holds;
	char name[NAME_SIZE], *value;
	const cJSON *member;

	text = name_take(text + !wanted, name);
	member = member_find(object, name);
	value = text_of(member);
	holds = *value && strcmp(value, "0") != 0 && !cJSON_IsFalse(member);
	free(value);
	if (holds == wanted)
		return text + 1;
	for (int depth = 1; depth > 0; text++) {
		check(*text);
		depth += (*text == '[') - (*text == ']');
	}
	return text;
}

void output_template(const char *template, const cJSON *object)
{
	while (*template) {
		char c = *template ++;

		if (c == '{')
			template = field_print(template, object);
		else if (c == '[')
			template = condition_enter(template, object);
		else if (c != ']')
			putchar(c);
	}
}

void output_say(cJSON *object, const char *template, int as_json)
{
	if (as_json) {
		output_print(object);
		return;
	}
	output_template(template, object);
	cJSON_Delete(object);
}

void output_rows(PGresult *rows, const char *head, const char *template, int as_json)
{
	if (head && !as_json)
		fputs(head, stdout);
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = output_object();

		output_row(object, rows, row);
		output_say(object, template, as_json);
	}
	PQclear(rows);
}

cJSON *output_array(PGresult *rows)
{
	cJSON *array = checked(cJSON_CreateArray());

	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = output_object();

		output_row(object, rows, row);
		cJSON_AddItemToArray(array, object);
	}
	PQclear(rows);
	return array;
}

static char made[256];

void output_made(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(made, sizeof(made), format, list);
	va_end(list);
}

int output_has_made(void)
{
	return *made != '\0';
}

int output_end(int status, int has_changed)
{
	int failed = ferror(stdout); /* a write before, whose reason is no longer known */

	if (fflush(stdout) == 0 && !failed)
		return status;
	if (*made || has_changed)
		log_fatal_status(CTL_UNKNOWN);
	log_fatal("standard output cannot be written%s%s%s%s", failed ? "" : ": ",
		  failed ? "" : strerror(errno), *made || has_changed ? "; " : "",
		  *made         ? made
		  : has_changed ? "what the command was asked for is done"
				: "");
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total)
{
	static const char full[] = "########################################";
	int percent = total > 0 ? (int)((double)done / (double)total * 100) : 100;
	int is_terminal = isatty(STDERR_FILENO), filled = percent * BAR_WIDTH / 100;

	_Static_assert(sizeof(full) - 1 == BAR_WIDTH, "a character for each step of the bar");

	if (strcmp(progress->what, what) != 0) {
		progress_end(progress);
		snprintf(progress->what, sizeof(progress->what), "%s", what);
		progress->percent = -1;
	}
	if (percent == progress->percent ||
	    (!is_terminal && progress->percent >= 0 && percent / 10 == progress->percent / 10))
		return;
	progress->percent = percent;
	if (is_terminal)
		fprintf(stderr, "\rcouponctl: %s [%.*s%*s] %3d %%", progress->what, filled, full,
			BAR_WIDTH - filled, "", percent);
	else
		fprintf(stderr, "%s%s: %d %%\n", say_is_collected() ? "" : "couponctl: ", what,
			percent);
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

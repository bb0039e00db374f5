#include "ctl/api.h"

#include "common/array.h"
#include "common/check.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "ctl/output.h"
#include "ctl/say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX (4 << 20)

/* ---- values */

static const struct option *option_find(const struct command *command, const char *name)
{
	for (const struct option *o = command->options; o && o->name; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	return NULL;
}

char *api_member(const struct option *option, char name[API_NAME_SIZE])
{
	snprintf(name, API_NAME_SIZE, "%s", option->name);
	for (char *at = name; *at; at++)
		if (*at == '-')
			*at = '_';
	return name;
}

const struct option *api_option(const struct command *command, const char *member)
{
	char name[API_NAME_SIZE];

	for (const struct option *o = command->options; o && o->name; o++)
		if (strcmp(api_member(o, name), member) == 0)
			return o;
	return NULL;
}

const struct option *api_mode(const struct command *command)
{
	const char *mode = strstr(command->name, " --");

	return mode ? option_find(command, mode + 3) : NULL;
}

int api_takes_number(const struct option *option)
{
	static const char values[] = " N S P V ID SET DELIVERY USER ";
	char word[32];

	snprintf(word, sizeof(word), " %s ", option->value);
	return strstr(values, word) != NULL;
}

/* Whether no number in it is one that a double may have changed. */
static int is_exact(const cJSON *value)
{
	const cJSON *item;

	if (cJSON_IsNumber(value))
		return value->valuedouble <= JSON_INTEGER_MAX &&
		       value->valuedouble >= -JSON_INTEGER_MAX;
	cJSON_ArrayForEach(item, value)
	{
		if (!is_exact(item))
			return 0;
	}
	return 1;
}

/* A text or a number as a text (malloc); NULL: it is neither. */
static char *scalar_text(const cJSON *value)
{
	char *text = NULL;
	int64_t number;

	if (cJSON_IsString(value))
		text = checked(strdup(value->valuestring));
	else if (json_integer(value, -JSON_INTEGER_MAX, JSON_INTEGER_MAX, &number) == 0)
		check(asprintf(&text, "%lld", (long long)number) > 0);
	else if (cJSON_IsNumber(value))
		check(asprintf(&text, "%.15g", value->valuedouble) > 0);
	return text;
}

/* The elements, joined by commas (malloc); NULL: it is no list of texts and numbers. */
static char *list_text(const cJSON *value)
{
	char *text = cJSON_IsArray(value) ? checked(strdup("")) : NULL;
	const cJSON *item;

	for (item = value->child; item && text; item = item->next) {
		char *element = scalar_text(item), *joined = NULL;

		if (element)
			check(asprintf(&joined, "%s%s%s", text, *text ? "," : "", element) >= 0);
		free(element);
		free(text);
		text = joined;
	}
	return text;
}

/* An amount after ARGS_MINOR (malloc); NULL: it is no integer in the smallest unit. */
static char *amount_text(const cJSON *value)
{
	char *given = scalar_text(value), *text = NULL;
	int64_t units;

	if (given && (*given != '0' || !given[1]) &&
	    number_parse(given, JSON_INTEGER_MAX, &units) == 0)
		check(asprintf(&text, ARGS_MINOR "%lld", (long long)units) > 0);
	free(given);
	return text;
}

char *api_text(const struct option *option, const cJSON *value, char why[API_WHY_SIZE])
{
	const char *bar = option->value ? strchr(option->value, '|') : NULL, *allowed;
	char name[API_NAME_SIZE], *text = NULL, *given;
	int is_text = cJSON_IsString(value);

	*why = '\0';
	api_member(option, name);
	if (!is_exact(value)) {
		snprintf(why, API_WHY_SIZE,
			 "%s: a number beyond 2^53 - 1 is not exact: send a string", name);
		return NULL;
	}
	/* On a command line this word is no text, but removes. */
	if (option->takes_none && is_text &&
	    (!*value->valuestring || strcmp(value->valuestring, "none") == 0)) {
		snprintf(why, API_WHY_SIZE, "%s is \"%s\": this text is reserved; null means none",
			 name, value->valuestring);
		return NULL;
	}

	if (option->takes_none && cJSON_IsNull(value))
		return checked(strdup("none"));
	if (!option->value) {
		allowed = "true and false";
		if (cJSON_IsTrue(value))
			return checked(strdup(""));
		if (cJSON_IsFalse(value))
			return NULL;
	} else if (bar) {
		allowed = "true and false";
		if (cJSON_IsTrue(value))
			text = checked(strndup(option->value, (size_t)(bar - option->value)));
		else if (cJSON_IsFalse(value))
			text = checked(strdup(bar + 1));
	} else if (strcmp(option->value, "LIST") == 0) {
		allowed = "a list of texts";
		text = list_text(value);
	} else if (strcmp(option->value, "JSON") == 0) {
		allowed = "an object, and null";
		text = cJSON_IsObject(value) ? json_write(value) : NULL;
	} else if (strcmp(option->value, ARGS_MONEY) == 0) {
		text = amount_text(value);
		if (!text) {
			given = checked(json_write(value));
			snprintf(why, API_WHY_SIZE,
				 "%s is %.60s: allowed is an integer from 0 to 9007199254740991, "
				 "in the smallest unit of the currency%s",
				 name, given, option->takes_none ? ", and null" : "");
			cJSON_free(given);
			return NULL;
		}
	} else {
		int takes_number = api_takes_number(option);

		allowed = takes_number ? (option->takes_none ? "a text, a number and null"
							     : "a text and a number")
				       : (option->takes_none ? "a text and null" : "texts");
		text = is_text || takes_number ? scalar_text(value) : NULL;
	}
	if (!text)
		snprintf(why, API_WHY_SIZE, "%s: allowed are %s", name, allowed);
	return text;
}

/* ---- the answer */

static struct {
	FILE *out; /* standard output; what commands print goes through a stream before it */
	int line_ended;
	pid_t pid;
	struct sentence {
		char *text;
		int is_warning;
	} * sentences;
	size_t n, size, bytes, left_out;
} answer;

/* Writes the printed objects, with a comma between two lines. */
static ssize_t members_write(void *unused, const char *bytes, size_t len)
{
	(void)unused;
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != '\n' && answer.line_ended)
			fputs(",\n", answer.out);
		answer.line_ended = bytes[i] == '\n';
		if (!answer.line_ended)
			putc(bytes[i], answer.out);
	}
	return fflush(answer.out) == 0 ? (ssize_t)len : 0;
}

static void sentence_take(const char *text, int is_warning)
{
	struct sentence *one;

	answer.sentences = array_room(answer.sentences, answer.n, &answer.size,
				      sizeof(*answer.sentences));
	one = &answer.sentences[answer.n++];
	one->text = checked(strdup(text));
	one->is_warning = is_warning;
	json_text_mend(one->text); /* it may quote a part of a character */
	answer.bytes += strlen(one->text);
	while (answer.bytes > API_SENTENCES_BYTES && answer.n - answer.left_out > 1) {
		one = &answer.sentences[answer.left_out++];
		answer.bytes -= strlen(one->text);
		free(one->text);
	}
}

static void answer_end(int status, void *unused)
{
	cJSON *object = checked(cJSON_CreateObject()), *warnings;
	const char *detail = NULL;
	char count[64], *text;

	(void)unused;
	if (getpid() != answer.pid)
		return; /* a process that searches for this one (ctl/dead) */
	fflush(stdout);
	for (size_t i = answer.left_out; i < answer.n && status != CTL_DONE; i++)
		if (!answer.sentences[i].is_warning)
			detail = answer.sentences[i].text;
	output_number(object, "status", status);
	output_text(object, "detail", detail);
	warnings = checked(cJSON_AddArrayToObject(object, "warnings"));
	if (answer.left_out > 0) {
		snprintf(count, sizeof(count), "%zu earlier lines are left out", answer.left_out);
		cJSON_AddItemToArray(warnings, checked(cJSON_CreateString(count)));
	}
	for (size_t i = answer.left_out; i < answer.n; i++) {
		const struct sentence *one = &answer.sentences[i];

		if (one->text != detail && (one->is_warning || status != CTL_DONE))
			cJSON_AddItemToArray(warnings, checked(cJSON_CreateString(one->text)));
	}
	text = checked(json_write(object));
	fprintf(answer.out, "%s],%s\n", answer.line_ended ? "\n" : "", text + 1);
	if (fflush(answer.out) || ferror(answer.out)) /* nobody knows the status otherwise */
		_exit(status != CTL_DONE                         ? status
		      : store_is_recorded() || output_has_made() ? CTL_UNKNOWN
								 : CTL_FAILED);
	cJSON_free(text);
	cJSON_Delete(object);
}

void api_begin(void)
{
	answer.out = stdout;
	answer.pid = getpid();
	stdout = checked(fopencookie(NULL, "w", (cookie_io_functions_t){ .write = members_write }));
	fputs("{\"members\":[\n", answer.out);
	say_to(sentence_take);
	check(on_exit(answer_end, NULL) == 0);
}

/* ---- the request */

static const cJSON *request_read(void)
{
	static char text[REQUEST_BYTES_MAX + 1];
	size_t len = fread(text, 1, sizeof(text), stdin);
	const char *error = "it is longer than allowed";
	struct json_arena *arena = json_arena_new(); /* it lives as long as the process */
	const cJSON *request = NULL;

	json_decimals_allow(arena);
	if (len < sizeof(text))
		request = json_parse(arena, text, len, &error);
	if (!request)
		args_fail("the request: %s", error);
	if (!cJSON_IsObject(request))
		args_fail("the request: allowed is an object");
	return request;
}

/* The member of this name, which is a list of texts or is missing. */
static const cJSON *list_read(const cJSON *request, const char *name)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(request, name), *item;

	if (list && !cJSON_IsArray(list))
		args_fail("%s: allowed is a list of texts", name);
	cJSON_ArrayForEach(item, list)
	{
		if (!cJSON_IsString(item))
			args_fail("%s: allowed is a list of texts", name);
	}
	return list;
}

/* The name of a file in memory with a line for each value (malloc). It lives as the process. */
static char *file_make(const cJSON *values)
{
	int fd = memfd_create("lines", MFD_CLOEXEC);
	const cJSON *value;
	char *path;
	FILE *out;

	if (!cJSON_IsArray(values))
		args_fail("lines: allowed is a list");
	check(fd >= 0);
	out = checked(fdopen(dup(fd), "w"));
	cJSON_ArrayForEach(value, values)
	{
		char *line = checked(json_write(value));

		fprintf(out, "%s\n", line);
		cJSON_free(line);
	}
	check(fclose(out) == 0);
	check(asprintf(&path, "/dev/fd/%d", fd) > 0);
	return path;
}

int api_command_run(struct ctl *ctl, const cJSON *request, int as_json)
{
	const cJSON *lines, *item;
	const char *name = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(request, "command"));
	const struct command *command = name ? command_find(name) : NULL;
	const char *format;
	const struct option *mode, *option;
	char member[API_NAME_SIZE], why[API_WHY_SIZE], *value_text;
	const cJSON *value;

	if (!name)
		args_fail("command: allowed is a text");
	if (!command || !command->run)
		args_fail("there is no command \"%s\"", name);
	if (command->takes_words || (command->has_no_json && !option_find(command, "format")))
		args_fail("%s runs another program: it has a command line only", name);

	args_begin(&ctl->args, command);
	cJSON_ArrayForEach(item, list_read(request, "arguments"))
	{
		args_argument(&ctl->args, item->valuestring);
	}
	lines = cJSON_GetObjectItemCaseSensitive(request, "lines");
	option = api_option(ctl->args.command, "users");
	if (lines && option)
		args_option(&ctl->args, option, file_make(lines));
	else if (lines)
		args_argument(&ctl->args, file_make(lines));
	if (!command->has_no_json && as_json)
		args_json(&ctl->args);

	/* The other members are options of the command. */
	mode = api_mode(ctl->args.command);
	cJSON_ArrayForEach(value, request)
	{
		if (strcmp(value->string, "command") == 0 ||
		    strcmp(value->string, "arguments") == 0 || strcmp(value->string, "lines") == 0)
			continue;
		option = api_option(ctl->args.command, value->string);
		if (!option)
			args_fail("%s has no member \"%s\"", ctl->args.command->name,
				  value->string);
		value_text = api_text(option, value, why);
		if (*why)
			args_fail("%s", why);
		if (value_text)
			args_option(&ctl->args, option, value_text);
	}
	if (mode && !args_has(&ctl->args, mode->name)) {
		if (mode->value)
			args_fail("%s is missing", api_member(mode, member));
		args_option(&ctl->args, mode, "");
	}

	option = api_option(ctl->args.command, "format");
	if (lines && option && !args_has(&ctl->args, "format"))
		args_option(&ctl->args, option, "jsonl");

	args_end(&ctl->args);
	if (command->has_no_json) { /* it writes a file, or the same to standard output */
		format = args_text(&ctl->args, "format");
		if (!format || strcmp(format, "jsonl") != 0)
			args_fail("format is \"%s\": allowed is jsonl, whose lines are objects",
				  format ? format : "");
	}
	return command->run(ctl);
}

int api_run(struct ctl *ctl)
{
	return api_command_run(ctl, request_read(), 1);
}

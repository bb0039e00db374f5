#include "admin/route.h"

#include "common/array.h"
#include "common/check.h"
#include "common/api_keys.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "ctl/ctl.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define PROGRAM "couponctl: "
#define OF_KEY "Idempotency-Key"

const struct route routes[] = {
#define ROUTE(method_, path_, role_, command_, ...) \
	{ .method = EVHTTP_REQ_##method_,           \
	  .path = path_,                            \
	  .role = KEY_ROLE_##role_,                 \
	  .command = command_,                      \
	  __VA_ARGS__ },
#include "admin/route_table.h"
#undef ROUTE
};

const size_t routes_n = sizeof(routes) / sizeof(routes[0]);

/* ---- paths */

size_t route_part_next(const char **path, const char **name)
{
	size_t len;

	*name = strchr(*path, '{');
	if (!*name)
		return 0;
	++*name;
	len = strcspn(*name, "}");
	*path = *name + len + 1;
	return len;
}

void route_match_fini(struct route_match *match)
{
	for (size_t i = 0; i < match->parts_n; i++)
		free(match->parts[i]);
	match->parts_n = 0;
}

/* Compares segment by segment, and takes those in braces. */
static int path_match(struct route_match *match, const char *form, const char *path)
{
	while (*form && *path) {
		size_t form_len = strcspn(form + 1, "/") + 1, len = strcspn(path + 1, "/") + 1;

		if (*path != '/')
			return 0;
		if (form[1] == '{') {
			char *segment = checked(strndup(path + 1, len - 1));
			size_t part_len;
			char *part = checked(evhttp_uridecode(segment, 0, &part_len));

			free(segment);
			match->parts[match->parts_n++] = part;
			if (part_len == 0 || strlen(part) != part_len) /* no text can be that */
				return 0;
		} else if (form_len != len || memcmp(form, path, len) != 0) {
			return 0;
		}
		form += form_len;
		path += len;
	}
	return !*form && !*path;
}

void route_match(struct route_match *match, enum evhttp_cmd_type method, const char *path)
{
	memset(match, 0, sizeof(*match));
	if (method == EVHTTP_REQ_HEAD)
		method = EVHTTP_REQ_GET;
	for (size_t i = 0; i < routes_n; i++) {
		if (path_match(match, routes[i].path, path)) {
			match->methods |= routes[i].method;
			if (routes[i].method == method) {
				match->route = &routes[i];
				match->command = checked((void *)command_find(routes[i].command));
				return;
			}
		}
		route_match_fini(match);
	}
}

const char *route_part(const struct route_match *match, const char *name)
{
	const char *path = match->route->path, *first;
	size_t len = route_part_next(&path, &first);

	return len > 0 && len == strlen(name) && memcmp(first, name, len) == 0 ? match->parts[0]
									       : NULL;
}

/* ---- members */

static const struct option *option_find(const struct command *command, const char *name, size_t len)
{
	for (const struct option *o = command->options; o && o->name; o++)
		if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
			return o;
	return NULL;
}

const struct option *route_mode(const struct command *command)
{
	const char *mode = strstr(command->name, " --");

	return mode ? option_find(command, mode + 3, strlen(mode + 3)) : NULL;
}

int route_has_member(const struct route *route, const struct command *command,
		     const struct option *option)
{
	static const char *const own[] = { "csv",       "by",     "version",      "format",
					   "delimiter", "column", "without-words" };
	const char *path = route->path, *name;
	size_t len;

	/* Idempotency-Key; what orders do with receives has it as a member, too. */
	if (strcmp(option->name, "key") == 0)
		return strncmp(command->name, "receive ", 8) == 0;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(option->name, own[i]) == 0)
			return 0;
	if (option == route_mode(command) && !option->value)
		return 0;
	if (option->is_of_terminal || (option->value && strcmp(option->value, "FILE") == 0))
		return 0;
	/* What a body has is a list of codes without columns. */
	if (route->input && strcmp(option->name, "metadata") == 0)
		return 0;
	if (route->word && strcmp(route->word + 2, option->name) == 0)
		return 0;
	/* The path of "void --coupon C --user U" has either the argument or both options. */
	if (command->argument && option_find(command, "coupon", 6) &&
	    (strcmp(option->name, "coupon") == 0 || strcmp(option->name, "user") == 0) &&
	    command->argument[0] == '[')
		return 0;
	while ((len = route_part_next(&path, &name)))
		if (strlen(option->name) == len && memcmp(option->name, name, len) == 0)
			return 0;
	return 1;
}

int route_argument(const struct route *route, const struct command *command,
		   char name[ROUTE_NAME_SIZE], int *is_list)
{
	const char *text = command->argument, *path = route->path, *part;
	size_t len, n = 0;

	if (route->input) {
		*is_list = 1;
		return snprintf(name, ROUTE_NAME_SIZE, "%ss", route->input);
	}
	/* The path has the first ones. */
	while ((len = route_part_next(&path, &part)))
		if (!option_find(command, part, len)) {
			text = text ? strchr(text, ' ') : NULL;
			text = text ? text + 1 : NULL;
		} else {
			text = NULL; /* instead of the argument */
		}
	if (!text || strchr(text, '|') || strcmp(text, "[ID]") == 0)
		return 0;
	*is_list = strstr(text, "…") != NULL;
	for (text += *text == '['; isalpha((unsigned char)*text) && n < ROUTE_NAME_SIZE - 2; text++)
		name[n++] = (char)tolower((unsigned char)*text);
	if (*is_list)
		name[n++] = 's';
	name[n] = '\0';
	return (int)n;
}

/* The option of a member, as valid_days; NULL: there is none. */
static const struct option *member_find(const struct route_match *match, const char *member)
{
	const struct option *option;
	char name[ROUTE_NAME_SIZE];
	size_t len = strlen(member);

	if (len >= sizeof(name) || strchr(member, '-'))
		return NULL;
	for (size_t i = 0; i <= len; i++)
		name[i] = member[i] == '_' ? '-' : member[i];
	option = option_find(match->command, name, len);
	return option && route_has_member(match->route, match->command, option) ? option : NULL;
}

/* ---- words */

void words_fini(struct words *words)
{
	for (size_t i = 0; i < words->n; i++)
		free(words->list[i]);
	free(words->list);
	free(words->input);
}

static int words_fail(struct words *words, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int words_fail(struct words *words, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(words->why, sizeof(words->why), format, list);
	va_end(list);
	return -1;
}

static void word_add(struct words *words, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void word_add(struct words *words, const char *format, ...)
{
	va_list list;

	words->list = array_room(words->list, words->n + 1, &words->size, sizeof(*words->list));
	va_start(list, format);
	check(vasprintf(&words->list[words->n++], format, list) >= 0);
	va_end(list);
	words->list[words->n] = NULL;
}

/* An argument must not be taken for an option. */
static int argument_add(struct words *words, const char *name, const char *text)
{
	if (*text == '-' || !*text)
		return words_fail(words,
				  "%s is \"%.100s\": a text that begins with - is not allowed",
				  name, text);
	word_add(words, "%s", text);
	return 0;
}

int words_begin(struct words *words, const struct route_match *match, const struct visitor *visitor,
		const char *version, const char *key)
{
	const struct command *command = match->command;
	const struct option *mode = route_mode(command);
	const char *rest = match->route->command, *path = match->route->path, *name;
	size_t len, part = 0;

	word_add(words, "couponctl");
	while (*rest) {
		len = strcspn(rest, " ");
		if (*rest != '-' || !mode->value) /* that has a member */
			word_add(words, "%.*s", (int)len, rest);
		rest += len + (rest[len] == ' ');
	}
	if (match->route->word)
		word_add(words, "%s", match->route->word);
	if (!command->has_no_json)
		word_add(words, "--json");
	if (option_find(command, "by", 2))
		word_add(words, "--by=%s", visitor->key);
	/* Anybody who knows a word can use it: only an admin, who may read all codes, gets it. */
	if (!(visitor->roles & KEY_ROLE_ADMIN) && option_find(command, "without-words", 13))
		word_add(words, "--without-words");
	if (version && !option_find(command, "version", 7))
		return words_fail(words, "If-Match is \"%.40s\": this resource has no versions",
				  version);
	if (version)
		word_add(words, "--version=%s", version);
	if (key && option_find(command, "key", 3))
		word_add(words, "--key=%s", key);
	while ((len = route_part_next(&path, &name))) {
		const char *text = match->parts[part++];

		if (option_find(command, name, len))
			word_add(words, "--%.*s=%s", (int)len, name, text);
		else if (argument_add(words, "the path", text))
			return -1;
	}
	if (match->route->input)
		word_add(words, "/dev/stdin");
	return 0;
}

static void count_add(struct words *words, const struct route_match *match, int has_count)
{
	if (match->route->count && !has_count)
		word_add(words, "--count=%s", match->route->count);
}

#define AMOUNT_ALLOWED "an integer from 0 to 9007199254740991, in the smallest unit of the currency"

/* An amount as the value of an option (malloc); NULL: it is no integer in the smallest unit. */
static char *amount_text(const char *text)
{
	int64_t units;
	char *value = NULL;

	if ((*text != '0' || !text[1]) && number_parse(text, JSON_INTEGER_MAX, &units) == 0)
		check(asprintf(&value, ARGS_MINOR "%lld", (long long)units) > 0);
	return value;
}

int words_of_query(struct words *words, const struct route_match *match,
		   const struct evkeyvalq *query)
{
	const struct evkeyval *pair;
	int has_count = 0;

	TAILQ_FOREACH (pair, query, next) {
		const struct option *option = member_find(match, pair->key);

		if (!option)
			return words_fail(words, "%.60s: there is no such parameter", pair->key);
		has_count |= strcmp(option->name, "count") == 0;
		if (option->value && strcmp(option->value, ARGS_MONEY) == 0) {
			char *amount = amount_text(pair->value);

			if (!amount)
				return words_fail(words,
						  "%s is \"%.60s\": allowed is " AMOUNT_ALLOWED,
						  pair->key, pair->value);
			word_add(words, "--%s=%s", option->name, amount);
			free(amount);
		} else if (option->value)
			word_add(words, "--%s=%s", option->name, pair->value);
		else if (strcmp(pair->value, "true") == 0)
			word_add(words, "--%s", option->name);
		else if (strcmp(pair->value, "false") != 0)
			return words_fail(words, "%s is \"%.60s\": allowed are true and false",
					  pair->key, pair->value);
	}
	count_add(words, match, has_count);
	return 0;
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

/* A value as the text of a word (malloc); NULL: no option has such a value. */
static char *value_text(const cJSON *value)
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

int option_takes_number(const struct option *option)
{
	static const char values[] = " N S P ID SET DELIVERY USER ";
	char word[32];

	snprintf(word, sizeof(word), " %s ", option->value);
	return strstr(values, word) != NULL;
}

/* The text of the option's value (malloc), or NULL: what `*allowed` says. */
static char *member_text(const struct option *option, const cJSON *value, const char **allowed)
{
	const char *bar = strchr(option->value, '|');
	const cJSON *item;
	char *text = NULL;

	if (bar) {
		*allowed = "true and false";
		if (cJSON_IsTrue(value))
			text = checked(strndup(option->value, (size_t)(bar - option->value)));
		else if (cJSON_IsFalse(value))
			text = checked(strdup(bar + 1));
	} else if (strcmp(option->value, "LIST") == 0) {
		*allowed = "a list of texts";
		text = cJSON_IsArray(value) ? checked(strdup("")) : NULL;
		for (item = value->child; item && text; item = item->next) {
			char *element = value_text(item), *joined = NULL;

			if (element)
				check(asprintf(&joined, "%s%s%s", text, *text ? "," : "",
					       element) >= 0);
			free(element);
			free(text);
			text = joined;
		}
	} else if (strcmp(option->value, "JSON") == 0) {
		*allowed = "an object, and null";
		text = cJSON_IsObject(value) ? json_write(value) : NULL;
	} else {
		int is_taken = cJSON_IsString(value) || option_takes_number(option);

		*allowed = option_takes_number(option)
				   ? (option->takes_none ? "a text, a number and null"
							 : "a text and a number")
				   : (option->takes_none ? "a text and null" : "texts");
		text = is_taken ? value_text(value) : NULL;
	}
	return text;
}

static int member_add(struct words *words, const struct option *option, const cJSON *value)
{
	const char *allowed = "true and false";
	char *given, *text;

	if (!option->value) {
		if (!cJSON_IsBool(value))
			return words_fail(words, "%s: allowed are %s", value->string, allowed);
		if (cJSON_IsTrue(value))
			word_add(words, "--%s", option->name);
		return 0;
	}
	/* The word of the command line is a text like any other here: null removes. */
	if (option->takes_none && cJSON_IsString(value) &&
	    (!*value->valuestring || strcmp(value->valuestring, "none") == 0))
		return words_fail(words, "%s is \"%s\": this text is reserved; null means none",
				  value->string, value->valuestring);
	if (option->takes_none && cJSON_IsNull(value)) {
		text = checked(strdup("none"));
	} else if (strcmp(option->value, ARGS_MONEY) == 0) {
		given = value_text(value);
		text = given ? amount_text(given) : NULL;
		free(given);
		if (!text) {
			given = checked(json_write(value));
			words_fail(words, "%s is %.60s: allowed is " AMOUNT_ALLOWED "%s",
				   value->string, given, option->takes_none ? ", and null" : "");
			cJSON_free(given);
			return -1;
		}
	} else {
		text = member_text(option, value, &allowed);
		if (!text)
			return words_fail(words, "%s: allowed are %s", value->string, allowed);
	}
	word_add(words, "--%s=%s", option->name, text);
	free(text);
	return 0;
}

/* Adds the argument of the command, which is this member, or its arguments. */
static int arguments_add(struct words *words, const cJSON *value, int is_list)
{
	const cJSON *item = value;
	int rc = 0;

	if (is_list != cJSON_IsArray(value))
		return words_fail(words, "%s: allowed is a %s", value->string,
				  is_list ? "list of texts" : "text");
	for (item = is_list ? value->child : value; item && !rc; item = is_list ? item->next : NULL)
		rc = cJSON_IsString(item)
			     ? argument_add(words, value->string, item->valuestring)
			     : words_fail(words, "%s: allowed are texts", value->string);
	return rc;
}

/* Writes the file that the command reads: a line for each text of the list. */
static int input_add(struct words *words, const char *name, const cJSON *list)
{
	const cJSON *text;
	size_t size;
	FILE *out;

	if (!cJSON_IsArray(list) || !list->child)
		return words_fail(words, "%s: allowed is a list of one text or more", list->string);
	cJSON_ArrayForEach(text, list)
	{
		if (!cJSON_IsString(text))
			return words_fail(words, "%s: allowed are texts", list->string);
	}
	out = checked(open_memstream(&words->input, &size));
	cJSON_ArrayForEach(text, list)
	{
		char *quoted = checked(json_write(text));

		fprintf(out, "{\"%s\":%s}\n", name, quoted);
		cJSON_free(quoted);
	}
	check(fclose(out) == 0);
	return 0;
}

int words_of_body(struct words *words, const struct route_match *match, const cJSON *body,
		  const char *key)
{
	char argument[ROUTE_NAME_SIZE] = "";
	const struct option *mode = route_mode(match->command);
	const cJSON *value;
	int is_list = 0, rc = 0;

	route_argument(match->route, match->command, argument, &is_list);
	if (mode && mode->value && !cJSON_HasObjectItem(body, mode->name))
		return words_fail(words, "%s is missing", mode->name);
	if (key && cJSON_HasObjectItem(body, "key"))
		return words_fail(words,
				  "key: give either this member or the header Idempotency-Key");
	cJSON_ArrayForEach(value, body)
	{
		const struct option *option = member_find(match, value->string);

		if (!is_exact(value))
			rc = words_fail(
				words,
				"%.60s: a number beyond 2^53 - 1 is not exact: send a string",
				value->string);
		else if (*argument && strcmp(value->string, argument) == 0)
			rc = match->route->input ? input_add(words, match->route->input, value)
						 : arguments_add(words, value, is_list);
		else if (option)
			rc = member_add(words, option, value);
		else
			rc = words_fail(words, "%.60s: there is no such member", value->string);
		if (rc)
			return -1;
	}
	if (match->route->input && !words->input)
		return words_fail(words, "%s is missing", argument);
	count_add(words, match, cJSON_HasObjectItem(body, "count"));
	return 0;
}

const char *words_option(const struct words *words, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < words->n; i++) {
		const char *word = words->list[i];

		if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, len) == 0 &&
		    word[2 + len] == '=')
			return word + 2 + len + 1;
	}
	return NULL;
}

char *words_translate(const char *text, size_t len)
{
	char *out = checked(malloc(len * 3 + 1)), *at = out; /* --key grows most */
	const char *end = text + len, *see;

	if (len > strlen(PROGRAM) && memcmp(text, PROGRAM, strlen(PROGRAM)) == 0)
		text += strlen(PROGRAM);
	see = memmem(text, (size_t)(end - text), "; see couponctl ", 16);
	if (see && memmem(see, (size_t)(end - see), " --help", 7))
		end = see;
	while (text < end) {
		if (end - text > 6 && memcmp(text, "--key ", 6) == 0) {
			at = mempcpy(at, OF_KEY, strlen(OF_KEY));
			text += 5;
		} else if (end - text > 2 && memcmp(text, "--", 2) == 0 &&
			   islower((unsigned char)text[2]))
			for (text += 2;
			     text < end && (islower((unsigned char)*text) || *text == '-'); text++)
				*at++ = *text == '-' ? '_' : *text;
		else
			*at++ = *text++;
	}
	*at = '\0';
	json_text_mend(out); /* it may begin or end within a character */
	return out;
}

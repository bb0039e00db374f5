#include "admin/route.h"

#include "common/check.h"
#include "common/message/json.h"
#include "common/api_keys.h"
#include "ctl/api.h"
#include "ctl/output.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

const struct route routes[] = {
#define ROUTE(method_, path_, role_, command_, name_, ...) \
	{ .method = EVHTTP_REQ_##method_,                  \
	  .path = path_,                                   \
	  .role = KEY_ROLE_##role_,                        \
	  .command = command_,                             \
	  .name = name_,                                   \
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

int route_has_member(const struct route *route, const struct command *command,
		     const struct option *option)
{
	static const char *const own[] = { "csv",        "by",     "version",     "format",
					   "delimiter",  "column", "spreadsheet", "without-words",
					   "of-campaign" };
	const char *path = route->path, *name;
	size_t len;

	/* Idempotency-Key; what orders do with receives has it as a member, too. */
	if (strcmp(option->name, "key") == 0)
		return strncmp(command->name, "receive ", 8) == 0;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(option->name, own[i]) == 0)
			return 0;
	if (option == api_mode(command) && !option->value)
		return 0;
	if (option->is_of_terminal || (option->value && strcmp(option->value, "FILE") == 0))
		return 0;
	/* What a body has is a list without columns. */
	if (route->input &&
	    (strcmp(option->name, "metadata") == 0 || strcmp(option->name, "no-heading") == 0))
		return 0;
	if (route->option && strcmp(route->option, option->name) == 0)
		return 0;
	/* Instead of the campaign in the path. */
	if (command->argument && strcmp(command->argument, "[ID]") == 0 &&
	    strcmp(option->name, "all") == 0)
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
	const struct option *option = api_option(match->command, member);

	return option && route_has_member(match->route, match->command, option) ? option : NULL;
}

/* ---- requests of couponctl --api */

static int command_fail(struct command_request *request, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int command_fail(struct command_request *request, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(request->why, sizeof(request->why), format, list);
	va_end(list);
	return -1;
}

static void option_add(struct command_request *request, const char *name, const char *text)
{
	char member[API_NAME_SIZE];

	output_text(request->json, api_member(&(struct option){ .name = name }, member), text);
}

int command_request_begin(struct command_request *request, const struct route_match *match,
			  const struct visitor *visitor, const char *version, const char *key)
{
	const struct command *command = match->command;
	const struct route *route = match->route;
	const char *path = route->path, *name;
	size_t len, part = 0;

	request->json = output_object();
	output_text(request->json, "command", route->command);
	request->arguments = checked(cJSON_AddArrayToObject(request->json, "arguments"));
	if (route->value)
		option_add(request, route->option, route->value);
	else if (route->option)
		output_bool(request->json, route->option, 1);
	if (option_find(command, "by", 2))
		option_add(request, "by", visitor->by);
	/* Anybody who knows a word can use it: only those who may read all codes get it. */
	if (!auth_may(visitor->roles, KEY_ROLE_CAMPAIGN) &&
	    option_find(command, "without-words", 13))
		output_bool(request->json, "without_words", 1);
	if (!auth_may(visitor->roles, KEY_ROLE_ADMIN) && option_find(command, "of-campaign", 11))
		output_bool(request->json, "of_campaign", 1);
	if (version && !option_find(command, "version", 7))
		return command_fail(request, "If-Match is \"%.40s\": this resource has no versions",
				    version);
	if (version)
		option_add(request, "version", version);
	if (key && option_find(command, "key", 3))
		option_add(request, "key", key);
	while ((len = route_part_next(&path, &name))) {
		const struct option *option = option_find(command, name, len);
		const char *text = match->parts[part++];

		if (!json_text_is_valid(text))
			return command_fail(request, "the path: allowed is text in UTF-8");
		if (option)
			option_add(request, option->name, text);
		else
			cJSON_AddItemToArray(request->arguments, checked(cJSON_CreateString(text)));
	}
	return 0;
}

void command_request_fini(struct command_request *request)
{
	cJSON_Delete(request->json);
}

/* Adds what the client has sent, if couponctl will take it. The value becomes the request's. */
static int member_add(struct command_request *request, const struct option *option, cJSON *value)
{
	char name[API_NAME_SIZE];

	output_add(request->json, api_member(option, name), value);
	free(api_text(option, value, request->why));
	return *request->why ? -1 : 0;
}

static void count_add(struct command_request *request, const struct route_match *match)
{
	if (match->route->count && !cJSON_HasObjectItem(request->json, "count"))
		option_add(request, "count", match->route->count);
}

int command_request_query(struct command_request *request, const struct route_match *match,
			  const struct evkeyvalq *query)
{
	const struct evkeyval *pair;

	TAILQ_FOREACH (pair, query, next) {
		const struct option *option = member_find(match, pair->key);
		int is_true = strcmp(pair->value, "true") == 0, is_bool;

		if (!option)
			return command_fail(request, "%.60s: there is no such parameter",
					    pair->key);
		if (!json_text_is_valid(pair->value))
			return command_fail(request, "%s: allowed is text in UTF-8", pair->key);
		is_bool = !option->value || strchr(option->value, '|');
		if (is_bool && !is_true && strcmp(pair->value, "false") != 0)
			return command_fail(request, "%s is \"%.60s\": allowed are true and false",
					    pair->key, pair->value);
		if (member_add(request, option,
			       checked(is_bool ? cJSON_CreateBool(is_true)
					       : cJSON_CreateString(pair->value))))
			return -1;
	}
	count_add(request, match);
	return 0;
}

/* Adds the argument of the command, which is this member, or its arguments. */
static int arguments_add(struct command_request *request, const cJSON *value, int is_list)
{
	const cJSON *item;

	if (is_list != cJSON_IsArray(value))
		return command_fail(request, "%s: allowed is a %s", value->string,
				    is_list ? "list of texts" : "text");
	for (item = is_list ? value->child : value; item; item = is_list ? item->next : NULL) {
		if (!cJSON_IsString(item) || !*item->valuestring)
			return command_fail(request, "%s: allowed are texts of 1 byte and more",
					    value->string);
		cJSON_AddItemToArray(request->arguments,
				     checked(cJSON_CreateString(item->valuestring)));
	}
	return 0;
}

/* Adds the lines of the file that the command reads: one for each text of the list. */
static int lines_add(struct command_request *request, const char *name, const cJSON *list)
{
	cJSON *lines = checked(cJSON_AddArrayToObject(request->json, "lines"));
	const cJSON *text;

	if (!cJSON_IsArray(list) || !list->child)
		return command_fail(request, "%s: allowed is a list of one text or more",
				    list->string);
	cJSON_ArrayForEach(text, list)
	{
		cJSON *line;

		if (!cJSON_IsString(text))
			return command_fail(request, "%s: allowed are texts", list->string);
		line = output_object();
		checked(cJSON_AddStringToObject(line, name, text->valuestring));
		cJSON_AddItemToArray(lines, line);
	}
	return 0;
}

int command_request_body(struct command_request *request, const struct route_match *match,
			 const cJSON *body, const char *key)
{
	char argument[ROUTE_NAME_SIZE] = "", name[API_NAME_SIZE];
	const struct option *mode = api_mode(match->command), *option;
	const cJSON *value;
	int is_list = 0, rc = 0;

	route_argument(match->route, match->command, argument, &is_list);
	if (mode && mode->value && !cJSON_HasObjectItem(body, mode->name))
		return command_fail(request, "%s is missing", mode->name);
	if (key && cJSON_HasObjectItem(body, "key"))
		return command_fail(request,
				    "key: give either this member or the header Idempotency-Key");
	cJSON_ArrayForEach(value, body)
	{
		if (*argument && strcmp(value->string, argument) == 0)
			rc = match->route->input ? lines_add(request, match->route->input, value)
						 : arguments_add(request, value, is_list);
		else if (!member_find(match, value->string))
			rc = command_fail(request, "%.60s: there is no such member", value->string);
		if (rc)
			return -1;
	}
	/* In the order of the table: a job that is sent again is compared as a text. */
	for (option = match->command->options; option && option->name; option++) {
		value = cJSON_GetObjectItemCaseSensitive(body, api_member(option, name));
		if (value && member_find(match, name) == option &&
		    member_add(request, option, checked(cJSON_Duplicate(value, 1))))
			return -1;
	}
	if (match->route->input && !cJSON_HasObjectItem(request->json, "lines"))
		return command_fail(request, "%s is missing", argument);
	count_add(request, match);
	return 0;
}

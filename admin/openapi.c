/* Makes the description of the API by OpenAPI 3.1 from the routes and the options of commands. */
#include "admin/route.h"

#include "common/check.h"
#include "common/api_keys.h"
#include "common/program/program.h"
#include "ctl/ctl.h"
#include "ctl/output.h"
#include "embed.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *child_of(cJSON *object, const char *name)
{
	cJSON *child = cJSON_GetObjectItemCaseSensitive(object, name);

	return child ? child : checked(cJSON_AddObjectToObject(object, name));
}

static cJSON *reference(const char *kind, const char *name)
{
	cJSON *object = output_object();
	char text[96];

	snprintf(text, sizeof(text), "#/components/%s/%s", kind, name);
	output_text(object, "$ref", text);
	return object;
}

static cJSON *types(const char *first, const char *second, int takes_none)
{
	cJSON *schema = output_object(), *list;

	if (!second && !takes_none) {
		output_text(schema, "type", first);
		return schema;
	}
	list = checked(cJSON_AddArrayToObject(schema, "type"));
	cJSON_AddItemToArray(list, cJSON_CreateString(first));
	if (second)
		cJSON_AddItemToArray(list, cJSON_CreateString(second));
	if (takes_none)
		cJSON_AddItemToArray(list, cJSON_CreateString("null"));
	return schema;
}

static cJSON *schema_of(const struct option *option)
{
	cJSON *schema, *items, *list;

	if (!option->value || strchr(option->value, '|'))
		return types("boolean", NULL, 0);
	if (strcmp(option->value, "LIST") == 0) {
		schema = types("array", NULL, 0);
		items = option->words ? output_object() : types("string", "integer", 0);
		list = option->words ? checked(cJSON_AddArrayToObject(items, "enum")) : NULL;
		for (const char *const *word = option->words; word && *word; word++)
			cJSON_AddItemToArray(list, checked(cJSON_CreateString(*word)));
		output_add(schema, "items", items);
		return schema;
	}
	if (strcmp(option->value, "JSON") == 0)
		return types("object", NULL, option->takes_none);
	if (strcmp(option->value, ARGS_MONEY) == 0)
		return types("integer", "string", option->takes_none);
	return types("string", api_takes_number(option) ? "number" : NULL, option->takes_none);
}

/*
 * Adds what an option is for, without the ends of lines that --help has; amounts are not written as
 * for people.
 */
static void about_add(cJSON *object, const struct option *option)
{
	int is_money = option->value && strcmp(option->value, ARGS_MONEY) == 0;
	char about[512], *to = about;

	snprintf(about, sizeof(about), "%s%s", option->help,
		 is_money ? "; an integer in the smallest unit of the currency: 700 is 7.00 EUR"
			  : "");
	for (const char *from = about; *from; from++)
		if (*from != '\n')
			*to++ = *from;
		else
			while (from[1] == ' ' && from[2] == ' ')
				from++;
	*to = '\0';
	output_text(object, "description", about);
}

/* `option` NULL: it is in the path. */
static cJSON *parameter(const char *name, const struct option *option, cJSON *schema)
{
	cJSON *object = output_object();

	output_text(object, "name", name);
	output_text(object, "in", option ? "query" : "path");
	if (option) {
		about_add(object, option);
	} else {
		output_bool(object, "required", 1);
		output_text(object, "description", name);
	}
	output_add(object, "schema", schema);
	return object;
}

static cJSON *content(cJSON *schema)
{
	cJSON *object = output_object();

	output_add(child_of(object, "application/json"), "schema", schema);
	return object;
}

static void body_add(cJSON *operation, const struct route *route, const struct command *command)
{
	cJSON *schema = types("object", NULL, 0), *properties = child_of(schema, "properties"),
	      *one;
	char name[ROUTE_NAME_SIZE];
	int is_list;

	if (route_argument(route, command, name, &is_list)) {
		one = types(is_list ? "array" : "string", NULL, 0);
		if (is_list)
			output_add(one, "items", types("string", NULL, 0));
		output_add(properties, name, one);
	}
	for (const struct option *o = command->options; o && o->name; o++) {
		if (!route_has_member(route, command, o))
			continue;
		one = schema_of(o);
		about_add(one, o);
		output_add(properties, api_member(o, name), one);
	}
	output_bool(schema, "additionalProperties", 0);
	if (properties->child)
		output_add(child_of(operation, "requestBody"), "content", content(schema));
	else
		cJSON_Delete(schema);
}

/*
 * What the command prints: the schema of its name, which openapi.json has; of one campaign, where
 * the command also does without.
 */
static cJSON *printed_schema(const struct route *route)
{
	const char *argument = command_find(route->command)->argument;
	int is_of_one = argument && strcmp(argument, "[ID]") == 0 && strchr(route->path, '{');
	char name[2 * ROUTE_NAME_SIZE], *to = name;

	for (const char *from = route->command; *from; from++)
		if (*from != '-')
			*to++ = *from == ' ' ? '_' : *from;
	snprintf(to, sizeof(name) - (size_t)(to - name), "%s", is_of_one ? "_campaign" : "");
	return reference("schemas", name);
}

static void operation_add(cJSON *paths, const struct route *route)
{
	static const char *const problems[] = { "400", "401", "403", "404", "409",
						"411", "412", "414", "415", "421",
						"422", "428", "500", "503", "504" };
	const struct command *command = command_find(route->command);
	const char *method = route->method == EVHTTP_REQ_GET     ? "get"
			     : route->method == EVHTTP_REQ_POST  ? "post"
			     : route->method == EVHTTP_REQ_PUT   ? "put"
			     : route->method == EVHTTP_REQ_PATCH ? "patch"
								 : "delete";
	cJSON *operation, *list, *responses, *response, *schema, *items, *properties;
	char path[96], name[ROUTE_NAME_SIZE];
	const char *rest, *part;
	size_t len;

	snprintf(path, sizeof(path), ROUTE_PREFIX "%s", route->path);
	operation = child_of(child_of(paths, path), method);

	output_text(operation, "operationId", route->name);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(operation, "tags"),
			     cJSON_CreateString(auth_role_name(route->role)));
	output_text(operation, "summary", command->summary);
	if (command->detail)
		output_text(operation, "description", command->detail);

	/* The parameters: parts of the path, headers, and for GET the options of the command. */
	list = cJSON_CreateArray();
	rest = route->path;
	while ((len = route_part_next(&rest, &part))) {
		snprintf(name, sizeof(name), "%.*s", (int)len, part);
		cJSON_AddItemToArray(list, parameter(name, NULL, types("string", NULL, 0)));
	}
	for (const struct option *o = command->options; o && o->name; o++) {
		if (strcmp(o->name, "version") == 0)
			cJSON_AddItemToArray(list, reference("parameters",
							     route->flags & ROUTE_NEEDS_VERSION
								     ? "IfMatchNeeded"
								     : "IfMatch"));
		else if (route->method == EVHTTP_REQ_GET && route_has_member(route, command, o))
			cJSON_AddItemToArray(list, parameter(api_member(o, name), o, schema_of(o)));
	}
	if (route->method == EVHTTP_REQ_POST)
		cJSON_AddItemToArray(list, reference("parameters", "IdempotencyKey"));
	if (list->child)
		output_add(operation, "parameters", list);
	else
		cJSON_Delete(list);

	if (route->method != EVHTTP_REQ_GET && route->method != EVHTTP_REQ_DELETE)
		body_add(operation, route, command);

	/* The answers: what the command prints, and the errors. */
	responses = child_of(operation, "responses");
	if (route->flags & ROUTE_JOB) {
		output_add(responses, "202", reference("responses", "Job"));
	} else {
		schema = printed_schema(route);
		if (route->list) {
			items = types("array", NULL, 0);
			output_add(items, "items", schema);
			schema = types("object", NULL, 0);
			properties = child_of(schema, "properties");
			output_add(properties, route->list, items);
			output_add(properties, "warnings", reference("schemas", "Warnings"));
			cJSON_AddItemToArray(cJSON_AddArrayToObject(schema, "required"),
					     cJSON_CreateString(route->list));
			output_bool(schema, "additionalProperties", 0);
		}
		response = child_of(responses, route->made ? "201" : "200");
		output_text(response, "description",
			    route->made ? "Created: see Location." : "Done.");
		output_add(response, "content", content(schema));
	}
	if (ctl_is_approvable(route->command))
		output_add(responses, "202", reference("responses", "Approval"));
	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++)
		output_add(responses, problems[i], reference("responses", "Problem"));
}

cJSON *openapi_json(void)
{
	cJSON *document = checked(cJSON_Parse(admin_openapi)), *info = child_of(document, "info");

	cJSON_DeleteItemFromObject(info, "version");
	output_text(info, "version", PROGRAM_VERSION);
	for (size_t i = 0; i < routes_n; i++)
		operation_add(child_of(document, "paths"), &routes[i]);
	return document;
}

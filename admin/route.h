/*
 * The operations of /admin/v1, each a command of couponctl: which of them a request is for, and
 * what couponctl --api gets for it.
 *
 *	PATCH /campaigns/1001 {"name":"Noon"}, If-Match: "3"
 *	{"command":"edit","arguments":["1001"],"by":"3k9v0d7xqa","version":"3","name":"Noon"}
 *
 * Which members there are is told by the table of options of the command. Not among them are what
 * the program itself gives, and what names files.
 */
#pragma once

#include "admin/auth.h"
#include "ctl/api.h"

#include <cjson/cJSON.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#define ROUTE_PREFIX "/admin/v1"
#define ROUTE_PARTS_MAX 2 /* in braces, of a path */

enum route_flag {
	ROUTE_NEEDS_VERSION = 1, /* If-Match */
	ROUTE_VERDICT = 2,       /* it may have answered, whatever its verdict is: see outcome.c */
	ROUTE_JOB = 4,           /* it may take long: see job.h */
	ROUTE_PARTIAL = 8        /* it answers what it could read, where a store is away */
};

struct route {
	enum evhttp_cmd_type method;
	const char *path; /* without the prefix */
	unsigned role;    /* the least, of enum key_role: see auth.h */
	const char *command;
	const char *name; /* in the description by OpenAPI */
	const char *list; /* the member with the objects that are printed; NULL: it is one object */
	const char *made; /* it makes something, whose id is in this member */
	const char *count; /* --count, where none is given */
	/* One more option of the command, and its value; NULL: it is a switch. */
	const char *option, *value;
	/*
	 * The command reads a file, which has a line for each text of a list in the body: an object
	 * with this member. The list has its name and an s.
	 */
	const char *input;
	unsigned flags;
};

extern const struct route routes[];
extern const size_t routes_n;

/* A route, and what its path has in the place of the braces. */
struct route_match {
	const struct route *route; /* NULL: there is no such path, or not with this method */
	const struct command *command;
	unsigned methods; /* that the path has */
	char *parts[ROUTE_PARTS_MAX];
	size_t parts_n;
};

/* `path` is that of the request, after the prefix. To be freed by route_match_fini(). */
void route_match(struct route_match *match, enum evhttp_cmd_type method, const char *path);
void route_match_fini(struct route_match *match);

/* The first part of the path, if it is this name in braces; NULL: it is not. */
const char *route_part(const struct route_match *match, const char *name);

/* The description of all routes by OpenAPI 3.1, with the options of their commands (openapi.c). */
cJSON *openapi_json(void);

/* The next name in braces, without them, at or after `*path`, which moves on. 0: there is none. */
size_t route_part_next(const char **path, const char **name);

/* Whether the option is a member of requests of this route. */
int route_has_member(const struct route *route, const struct command *command,
		     const struct option *option);
#define ROUTE_NAME_SIZE 32
/* The name of the argument that is a member; 0: none is. `*is_list`: there may be several. */
int route_argument(const struct route *route, const struct command *command,
		   char name[ROUTE_NAME_SIZE], int *is_list);

/* A request of couponctl --api (ctl/api.h). All zero at first. */
struct command_request {
	cJSON *json, *arguments;
	char why[API_WHY_SIZE]; /* why the request of the client cannot become one */
};

/*
 * What comes before the members. `version` NULL: none is given; `key`, that of Idempotency-Key: the
 * same. Each 0, or -1 and `why`.
 */
int command_request_begin(struct command_request *request, const struct route_match *match,
			  const struct visitor *visitor, const char *version, const char *key);
int command_request_query(struct command_request *request, const struct route_match *match,
			  const struct evkeyvalq *query);
int command_request_body(struct command_request *request, const struct route_match *match,
			 const cJSON *body, const char *key);
void command_request_fini(struct command_request *request);

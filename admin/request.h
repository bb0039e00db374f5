/*
 * One HTTP request: what it has, who sent it, and how it is answered. A change is logged with its
 * answer, and so is what failed.
 */
#pragma once

#include "admin/access.h"
#include "common/message/json.h"

#include <event2/http.h>

#define REQUEST_PATH_UNKNOWN "?" /* of no operation: it may have anything in it */

struct request {
	struct evhttp_request *http; /* NULL: its client has gone */
	const char *path;            /* for the log, without exchange codes and keys */
	int changes;                 /* it is neither GET nor HEAD */
	struct visitor visitor;      /* `key` "": it is not known whose it is */
	int64_t begin_ms;
	int is_asked;            /* for its key: of struct credentials */
	enum access_answer asks; /* ACCESS_NEW, ACCESS_KNOWN: the stores are to be asked first */
};

/* Each is lent by the request; NULL: it has none. */
const char *request_header(const struct request *request, const char *name);
const char *request_query(const struct request *request);
const char *request_cookie(const struct request *request, char value[SESSION_TEXT_SIZE]);

/*
 * The object that the body is; `*answered` if it is none. NULL: there is no body. Until the next
 * use of the arena.
 */
const cJSON *request_body(struct request *request, struct json_arena *arena, int *answered);

/*
 * Whether its sender may do what needs the role (access.h): request_access() tells,
 * request_admit() answers if he may not.
 */
enum access_answer request_access(struct request *request, struct access *access, unsigned role,
				  const struct access_about *about);
int request_admit(struct request *request, struct access *access, unsigned role,
		  const struct access_about *about);

/* Each ends the request. The text, a problem from 400 on, and the object are taken. */
void request_header_add(struct request *request, const char *name, const char *value);
void request_reply(struct request *request, int status, char *text);
void request_reply_object(struct request *request, int status, cJSON *object);
void request_refuse(struct request *request, int status, const char *detail);
void request_refuse_access(struct request *request, enum access_answer answer);
/* `methods` of enum evhttp_cmd_type that the path has. */
void request_refuse_method(struct request *request, unsigned methods);

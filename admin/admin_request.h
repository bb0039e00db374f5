/*
 * One HTTP request: what it has, who sent it, and how it is answered. A change is logged with its
 * answer, and so is what failed.
 */
#pragma once

#include "admin/auth.h"
#include "common/message/json.h"
#include "ctl/ctl.h"

#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#define REQUEST_VERSION_SIZE 24
#define REQUEST_PATH_UNKNOWN "?" /* of no operation: it may have anything in it */

struct admin_request {
	struct evhttp_request *http; /* NULL: its client has gone */
	const char *path;            /* for the log, without exchange codes and keys */
	int changes;                 /* it is neither GET nor HEAD */
	struct visitor visitor;      /* `key` "": it is not known whose it is */
	int64_t begin_ms;
	int is_asked;          /* for its key: of struct credentials */
	enum auth_answer asks; /* AUTH_NEW, AUTH_KNOWN: the stores are to be asked first */
};

/* Each is lent by the request; NULL: it has none. */
const char *request_header(const struct admin_request *request, const char *name);
const char *request_cookie(const struct admin_request *request, char value[SESSION_TEXT_SIZE]);

/*
 * The object that the body is; `*answered` if it is none. NULL: there is no body. Until the next
 * use of the arena.
 */
const cJSON *request_body(struct admin_request *request, struct json_arena *arena, int *answered);

/*
 * Each returns 0, or -1 when it has refused the request, because this part of it is wrong.
 * request_parameters() reads the query, for evhttp_clear_headers().
 */
int request_parameters(struct admin_request *request, struct evkeyvalq *pairs);
/*
 * The number in If-Match, "" for `*`, which every version matches, and where none is needed and
 * none given. Tags are compared as RFC 9110 wants it here: a weak one is no version, and neither is
 * one that no campaign has.
 */
int request_version(struct admin_request *request, int is_needed,
		    char version[REQUEST_VERSION_SIZE]);
/*
 * Idempotency-Key of a POST (draft-ietf-httpapi-idempotency-key-header): a string of RFC 9651, in
 * quotes and without parameters, or bare, as most clients send it. "": there is none.
 */
int request_command_key(struct admin_request *request, char key[COMMAND_KEY_MAX + 1]);

/*
 * Whether its sender may do what needs the role (auth.h): request_auth() tells,
 * request_admit() answers if he may not.
 */
enum auth_answer request_auth(struct admin_request *request, struct auth *auth, unsigned role,
			      const struct auth_about *about);
int request_admit(struct admin_request *request, struct auth *auth, unsigned role,
		  const struct auth_about *about);

/* Each ends the request. The text, a problem from 400 on, and the object are taken. */
void request_header_add(struct admin_request *request, const char *name, const char *value);
void request_reply(struct admin_request *request, int status, char *text);
void request_reply_object(struct admin_request *request, int status, cJSON *object);
void request_refuse(struct admin_request *request, int status, const char *detail);
void request_refuse_auth(struct admin_request *request, enum auth_answer answer);
/* `methods` of enum evhttp_cmd_type that the path has. */
void request_refuse_method(struct admin_request *request, unsigned methods);

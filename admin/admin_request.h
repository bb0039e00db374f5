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
	struct visitor visitor;      /* `by` "": it is not known whose it is */
	int64_t begin_ms;
	int is_asked;          /* for its key: of struct credentials */
	enum auth_answer asks; /* AUTH_NEW, AUTH_KNOWN: the stores are to be asked first */
};

/* The values are lent by the request; NULL: the request has no such header or cookie. */
const char *request_header(const struct admin_request *request, const char *name);
const char *request_cookie(const struct admin_request *request, char value[SESSION_TEXT_SIZE]);

/*
 * Returns the object in the body, which is valid until the next use of the arena, or NULL: there is
 * no body, or it is no object, and then `*answered` is set and the request is refused.
 */
const cJSON *request_body(struct admin_request *request, struct json_arena *arena, int *answered);

/*
 * The next three functions return 0, or -1 when they have refused the request, because this part of
 * it is wrong. request_parameters() reads the query; free the pairs by evhttp_clear_headers().
 */
int request_parameters(struct admin_request *request, struct evkeyvalq *pairs);
/*
 * Reads the number in If-Match; it is "" for `*`, which every version matches, and where no version
 * is needed and none is given. Tags are compared as RFC 9110 says: a weak tag is no version, and
 * neither is a tag that no campaign can have.
 */
int request_version(struct admin_request *request, int is_needed,
		    char version[REQUEST_VERSION_SIZE]);
/*
 * Reads Idempotency-Key of a POST (draft-ietf-httpapi-idempotency-key-header): a string of RFC
 * 9651, in quotes and without parameters, or bare, as most clients send it. "": there is none.
 */
int request_command_key(struct admin_request *request, char key[COMMAND_KEY_MAX + 1]);

/* Whether it has the header in which a proxy names its user, wherever it comes from. */
int request_has_user(const struct admin_request *request, struct auth *auth);
/*
 * request_auth() tells whether the sender may do what needs the role (auth.h). request_admit()
 * returns that as a truth value, and refuses the request if he may not.
 */
enum auth_answer request_auth(struct admin_request *request, struct auth *auth, unsigned role,
			      const struct auth_about *about);
int request_admit(struct admin_request *request, struct auth *auth, unsigned role,
		  const struct auth_about *about);

void request_header_add(struct admin_request *request, const char *name, const char *value);
/*
 * These functions end the request. They take over the text, which is a problem from status 400 on,
 * and the object.
 */
void request_reply(struct admin_request *request, int status, char *text);
void request_reply_object(struct admin_request *request, int status, cJSON *object);
void request_refuse(struct admin_request *request, int status, const char *detail);
void request_refuse_auth(struct admin_request *request, enum auth_answer answer);
/* `methods` of enum evhttp_cmd_type that the path has. */
void request_refuse_method(struct admin_request *request, unsigned methods);

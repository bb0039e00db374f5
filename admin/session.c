#include "admin/session.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/output.h"

#include <stdio.h>

static cJSON *session_json(const struct visitor *visitor)
{
	cJSON *object = output_object();
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, "key", visitor->key);
	output_text(object, "role", visitor->roles & KEY_ROLE_ADMIN ? "admin" : "monitor");
	output_text(object, "csrf_token", visitor->token);
	output_text(object, "ends_at",
		    visitor->ends_ms ? clock_rfc3339(visitor->ends_ms, text) : NULL);
	return object;
}

/* `ends_ms` by the wall clock; 0: the browser forgets it at once. */
static void cookie_set(struct request *request, const char *value, int64_t ends_ms, int is_secure)
{
	int64_t seconds = ends_ms ? (ends_ms - clock_wall_ms()) / 1000 : 0;
	char text[192];

	snprintf(text, sizeof(text),
		 SESSION_COOKIE "=%s; Path=/admin; Max-Age=%lld; HttpOnly; SameSite=Strict%s",
		 value, (long long)seconds, is_secure ? "; Secure" : "");
	request_header_add(request, "Set-Cookie", text);
}

static void session_begin(struct request *request, struct access *access, struct json_arena *arena,
			  int is_secure)
{
	int answered;
	const cJSON *body = request_body(request, arena, &answered);
	const cJSON *key = cJSON_GetObjectItemCaseSensitive(body, "key");
	char session[SESSION_TEXT_SIZE];
	enum access_answer answer;

	if (answered)
		return;
	if (!cJSON_IsString(key) || cJSON_GetArraySize(body) != 1) {
		request_refuse(request, 400, "the body must be {\"key\":\"…\"}, with an API key");
		return;
	}
	answer = access_session_begin(access, key->valuestring, request->is_asked, session,
				      &request->visitor);
	json_arena_wipe(arena);
	if (answer != ACCESS_OK) {
		request_refuse_access(request, answer);
		return;
	}
	cookie_set(request, session, request->visitor.ends_ms, is_secure);
	request_reply_object(request, 200, session_json(&request->visitor));
}

static void session_end(struct request *request, struct access *access, int is_secure)
{
	char session[SESSION_TEXT_SIZE];

	if (!request_admit(request, access, 0, NULL))
		return;
	if (request_cookie(request, session))
		access_session_end(access, session);
	cookie_set(request, "", 0, is_secure);
	request_reply(request, 204, NULL);
}

void session_answer(struct request *request, struct access *access, struct json_arena *arena,
		    int is_secure)
{
	switch (evhttp_request_get_command(request->http)) {
	case EVHTTP_REQ_POST:
		session_begin(request, access, arena, is_secure);
		return;
	case EVHTTP_REQ_GET:
	case EVHTTP_REQ_HEAD:
		if (request_admit(request, access, 0, NULL))
			request_reply_object(request, 200, session_json(&request->visitor));
		return;
	case EVHTTP_REQ_DELETE:
		session_end(request, access, is_secure);
		return;
	case EVHTTP_REQ_PUT:
	case EVHTTP_REQ_OPTIONS:
	case EVHTTP_REQ_TRACE:
	case EVHTTP_REQ_CONNECT:
	case EVHTTP_REQ_PATCH:
		break;
	}
	request_refuse_method(request, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_DELETE);
}

/* What a reply says beside its body: the head, and the body of what is not done as a problem. */
#include "gateway/listen/http.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "gateway/listen/http_value.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define HEADER_SIZE 64                                          /* of one more header */
#define LIMITS_SIZE (LIMIT_POLICY_SIZE + LIMIT_STATE_SIZE + 64) /* of those with the limits */
#define TYPE_SIZE 128
#define PROBLEM_SIZE 256               /* what a problem has beside what is in the line, or twice */
#define PROBLEM_TYPES "/openapi.json#" /* and the name of the answer: its schema there */

#define RETRY_BUSY "Retry-After: 1" /* what is under way ends within a second */

/*
 * Headers of replies to preflights. A preflight carries no identity: what a request may do is
 * decided when the request comes.
 */
#define PREFLIGHT                                                                          \
	"\r\nAccess-Control-Allow-Methods: GET, HEAD, POST"                                \
	"\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, Idempotency-Key, " \
	"X-Request-Id, traceparent"                                                        \
	"\r\nAccess-Control-Max-Age: 7200"
#define READABLE                                                                        \
	"\r\nAccess-Control-Expose-Headers: RateLimit, RateLimit-Policy, Retry-After, " \
	"WWW-Authenticate, X-Request-Id"

void http_ids_init(struct http_ids *ids)
{
	uint64_t process;

	check(getrandom(&process, sizeof(process), 0) == sizeof(process));
	snprintf(ids->text, sizeof(ids->text), "%016llx-%014d", (unsigned long long)process, 0);
}

const char *http_request_name(const struct http_request *request)
{
	const char *id = request->complete ? http_request_one(request, TEXT_REQUEST_ID) : NULL;

	return id && request_name_valid(id, request->texts[TEXT_REQUEST_ID].len) ? id : NULL;
}

/*
 * The id of the request: the same in the log and in the reply, which follows at once. After the
 * last one that the gateway makes come zeros again.
 */
static char *id_append(char *at, struct http_connection *connection)
{
	struct http_ids *ids = &connection->http->ids;
	struct http_manner *manner = &connection->request.reply;
	const char *given = http_request_name(&connection->request);
	char *digit = ids->text + sizeof(ids->text) - 2;

	if (given)
		return text_append(at, given);
	if (!manner->has_id) {
		while (*digit == '9')
			*digit-- = '0';
		if (*digit != '-')
			++*digit;
	}
	manner->has_id = 1;
	return mempcpy(at, ids->text, sizeof(ids->text) - 1);
}

size_t http_head_write(struct http_connection *connection, int status, const char *type,
		       const char *extra, size_t len, char out[HTTP_HEAD_SIZE])
{
	static _Thread_local char date[64]; /* formatted once a second */
	static _Thread_local time_t formatted;
	const struct http_request *request = &connection->request;
	const http_parser *parser = &request->parser;
	const struct http_manner *manner = &request->reply;
	int is_old = parser->http_major == 1 && parser->http_minor == 0;
	int by_origin = *connection->http->config->http_origins != '\0';
	int by_accept = status >= 400 && request->complete;
	char *at = text_append(out, is_old ? "HTTP/1.0 " : "HTTP/1.1 ");
	time_t now = time(NULL);
	struct tm tm;

	if (now != formatted) {
		gmtime_r(&now, &tm);
		strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		formatted = now;
	}
	check(strlen(type) < TYPE_SIZE && (!extra || strlen(extra) < HEADER_SIZE + LIMITS_SIZE));
	at = text_append(number_append(at, status), " ");
	at = text_append(at, http_status_str((enum http_status)status));
	if (status != 204) {
		at = text_append(text_append(at, "\r\nContent-Type: "), type);
		at = number_append(text_append(at, "\r\nContent-Length: "), (int64_t)len);
	}
	at = text_append(text_append(at, "\r\nDate: "), date);
	at = id_append(text_append(at, "\r\nX-Request-Id: "), connection);
	if (connection->is_last)
		at = text_append(at, "\r\nConnection: close");
	else if (is_old)
		at = text_append(at, "\r\nConnection: keep-alive");
	if (extra)
		at = text_append(text_append(at, "\r\n"), extra);
	if (manner->origin) {
		at = text_append(at, "\r\nAccess-Control-Allow-Origin: ");
		at = mempcpy(at, manner->origin, manner->origin_len);
		at = text_append(at, parser->method == HTTP_OPTIONS ? PREFLIGHT : READABLE);
	}

	/* By which headers of the request the reply was chosen, for caches. */
	if (by_origin || by_accept)
		at = text_append(at, "\r\nVary: ");
	if (by_accept)
		at = text_append(at, by_origin ? "Accept, " : "Accept");
	if (by_origin)
		at = text_append(at, "Origin");
	return (size_t)(text_append(at, "\r\n\r\n") - out);
}

/*
 * Where the value of a member of the line begins; NULL: it has none of this name. `name` is written
 * as behind another member: no string contains that, because there each quotation mark has a
 * backslash before it.
 */
static const char *value_find(const char *line, size_t len, const char *name)
{
	const char *at = memmem(line, len, name, strlen(name));

	return at ? at + strlen(name) : NULL;
}

/*
 * The line as RFC 9457 has it (malloc); NULL: it has no message. There `status` would be that of
 * HTTP, a number; it is left out, and the status of the answer is in `answer`. A status that is not
 * the answer's own is about HTTP alone. Not by cJSON, which would round ids.
 */
static char *problem_text(int status, enum answer answer, const char *line, size_t len,
			  size_t *text_len)
{
	static const char name[] = ",\"status\":";
	const char *rest = value_find(line, len, name), *end = line + len;
	const char *detail = value_find(line, len, ",\"message\":"), *detail_end;
	int is_own = status == answer_http(answer);
	char *text, *at;

	if (!rest || !detail)
		return NULL;
	for (detail_end = detail + 1; detail_end < end && *detail_end != '"';)
		detail_end += *detail_end == '\\' ? 2 : 1;

	text = checked(malloc(2 * len + PROBLEM_SIZE));
	at = text_append(text, "{\"type\":\"");
	at = text_append(at, is_own ? PROBLEM_TYPES : "about:blank");
	at = text_append(at, is_own ? answer_status(answer) : "");
	at = text_append(at, "\",\"title\":\"");
	at = text_append(at,
			 is_own ? answer_text(answer) : http_status_str((enum http_status)status));
	at = text_append(at, "\",\"detail\":");
	at = mempcpy(at, detail, (size_t)(detail_end - detail) + 1);
	at = mempcpy(text_append(at, ","), line + 1, (size_t)(rest - line) - sizeof(name));
	at = text_append(at, ",\"answer\":");
	at = mempcpy(at, rest, (size_t)(end - rest));
	*text_len = (size_t)(at - text);
	return text;
}

/* Before the reply, which may free the connection. */
static void answer_log(struct http_connection *connection, const struct request *answered,
		       int status, enum answer answer)
{
	const struct http_request *request = &connection->request;
	const char *parent = request->complete ? http_request_one(request, TEXT_TRACEPARENT) : NULL;
	int is_failure = status == 429 || status == 503 || status == 504,
	    is_logged = intake_logs(connection->http->intake);
	struct access_http http = { .of = request->reply.of, .status = status };

	if (!is_failure && !is_logged)
		return;
	*id_append(http.id, connection) = '\0';
	if (parent)
		trace_context_parse(parent, request->texts[TEXT_TRACEPARENT].len, &http.trace);
	if (request->is_identified)
		http.key = connection->base.responder.identity.grant.key;

	/*
	 * What was not done, and not for what the request says: whoever names its requests finds it
	 * by that name.
	 */
	if (is_failure && (*http.trace.trace_id || http_request_name(request)))
		log_warn("http_request", LOG_S("of", http.of), LOG_I("http", http.status),
			 LOG_S("answer", answer_status(answer)), LOG_S("request_id", http.id),
			 LOG_S("trace", http.trace.trace_id), LOG_S("span", http.trace.span_id),
			 LOG_S("key", http.key ? http.key->id : ""));
	if (is_logged)
		access_log(&connection->base, answered, answer, &http);
}

void http_connection_answer(struct http_connection *connection, const struct request *request,
			    int status, enum answer answer, const char *extra, const char *line,
			    size_t len)
{
	const struct auth_answer *limited = intake_limited(connection->http->intake);
	char header[HEADER_SIZE + LIMITS_SIZE], policy[LIMIT_POLICY_SIZE], state[LIMIT_STATE_SIZE];
	const char *retry;
	char *problem = NULL, *at;
	size_t problem_len = 0;
	long long ms;

	/* When to ask again: when the answer says so, or after a time that depends on its kind. */
	if (status == 429 || status == 503) {
		retry = value_find(line, len, ",\"retry_after_ms\":");
		ms = retry ? strtoll(retry, NULL, 10) : 0;
		if (ms > 0)
			snprintf(header, sizeof(header), "Retry-After: %lld", (ms - 1) / 1000 + 1);
		else
			strcpy(header, status == 429 ? RETRY_BUSY : HTTP_RETRY_UNAVAILABLE);
		extra = header;
		/* Which rates there are, and how much of them is left. */
		if (ms > 0 && answer == ANSWER_RATE_LIMITED &&
		    limit_policy_write(limited->limits, limited->limits_n, policy) > 0) {
			limit_state_write(&limited->verdict, state);
			at = text_append(header + strlen(header), "\r\nRateLimit-Policy: ");
			at = text_append(text_append(at, policy), "\r\nRateLimit: ");
			*text_append(at, state) = '\0';
		}
	} else if (status == 401) {
		extra = "WWW-Authenticate: Bearer realm=\"couponmq\""; /* RFC 6750 */
	}

	answer_log(connection, request, status, answer);
	if (answer != ANSWER_OK && connection->request.reply.is_problem)
		problem = problem_text(status, answer, line, len, &problem_len);
	if (problem)
		http_connection_reply(connection, status, HTTP_PROBLEM, extra, problem,
				      problem_len);
	else
		http_connection_reply(connection, status, NULL, extra, line, len);
	free(problem);
}

void http_connection_refuse(struct http_connection *connection, int status, const char *extra,
			    const char *message)
{
	enum answer answer = status == 403   ? ANSWER_FORBIDDEN
			     : status == 413 ? ANSWER_TOO_LARGE
			     : status == 429 ? ANSWER_BUSY
					     : ANSWER_BAD_REQUEST;
	char *text = answer_message_line("", answer, message);

	http_connection_answer(connection, NULL, status, answer, extra, text, strlen(text));
	cJSON_free(text);
}

#include "admin/outcome.h"

#include "common/check.h"
#include "common/message/answer.h"
#include "common/message/json.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *problem_title(int status)
{
	static const struct {
		int status;
		const char *title;
	} titles[] = {
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 409, "Conflict" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 428, "Precondition Required" },
		{ 500, "Internal Server Error" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
	};

	for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
		if (titles[i].status == status)
			return titles[i].title;
	return NULL;
}

char *problem_make(int status, const char *detail)
{
	cJSON *object = output_object();
	char *text, *sentence = checked(strdup(detail));

	json_text_mend(sentence); /* it may quote what was sent, or be cut */
	output_text(object, "type", "about:blank");
	output_text(object, "title", problem_title(status));
	output_number(object, "status", status);
	if (status == 422) /* as the gateway calls it */
		output_number(object, "code", answer_code(ANSWER_KEY_REUSED));
	output_text(object, "detail", sentence);
	free(sentence);
	text = checked(json_write(object));
	cJSON_Delete(object);
	return text;
}

/* What couponctl --api has printed: see ctl/api.h. */
struct answer_parts {
	const char *members; /* objects with commas between them, as they were printed; lent */
	size_t members_len;
	const char *detail; /* NULL: none */
	cJSON *root, *warnings;
};

/* 0, or -1: it has printed no answer. */
static int answer_read(struct answer_parts *parts, const struct child_result *result)
{
	static const char begin[] = "{\"members\":[\n";
	size_t len = result->out_len, begin_len = strlen(begin), end;
	char *last;

	memset(parts, 0, sizeof(*parts));
	if (len < begin_len || memcmp(result->out, begin, begin_len) != 0)
		return -1;
	end = len - (result->out[len - 1] == '\n');
	while (end > 0 && result->out[end - 1] != '\n')
		end--;
	if (end < begin_len)
		return -1;
	parts->members = result->out + begin_len;
	parts->members_len = end - begin_len;
	check(asprintf(&last, "{\"members\":[%s", result->out + end) > 0);
	parts->root = cJSON_Parse(last);
	free(last);
	parts->detail = cJSON_GetStringValue(cJSON_GetObjectItem(parts->root, "detail"));
	parts->warnings = cJSON_GetObjectItem(parts->root, "warnings");
	return parts->warnings ? 0 : -1;
}

/* The answer of the API (malloc), or NULL: there are no members for it. */
static char *answer_make(const struct route *route, const struct answer_parts *parts)
{
	size_t len = parts->members_len;
	const char *members = parts->members;
	cJSON *warnings = checked(cJSON_Duplicate(parts->warnings, 1));
	char *list = NULL, *text = NULL;

	if (parts->detail)
		cJSON_AddItemToArray(warnings, checked(cJSON_CreateString(parts->detail)));
	if (warnings->child)
		list = checked(json_write(warnings));
	cJSON_Delete(warnings);
	len -= len > 0 && members[len - 1] == '\n';
	if (route->list)
		check(asprintf(&text, "{\"%s\":[%.*s]%s%s}", route->list, (int)len, members,
			       list ? ",\"warnings\":" : "", list ? list : "") > 0);
	else if (len >= 2 && members[len - 1] == '}') /* one object, which gets a member */
		check(asprintf(&text, "%.*s%s%s%s}", (int)len - 1, members,
			       list && len > 2 ? "," : "", list ? "\"warnings\":" : "",
			       list ? list : "") > 0);
	cJSON_free(list);
	return text;
}

/* The HTTP status for an exit status other than success. */
static int status_http(enum exit_status status)
{
	switch (status) {
	case CTL_INVALID:
		return 400;
	case CTL_OTHER_VERSION:
		return 412;
	case CTL_ABSENT:
		return 404;
	case CTL_KEY_REUSED:
		return 422;
	case CTL_AWAY:
	case CTL_STOPPED:
		return 503;
	case CTL_FAILED:
	case CTL_REFUSED:
	case CTL_STALLED:
	case CTL_NO_TAIL:
		return 409;
	case CTL_DONE:
	case CTL_NOT_IN_REDIS:
	case CTL_UNKNOWN:
		return 500;
	}
	return 500;
}

static char *failure_make(const struct route *route, const struct child_result *result,
			  const struct answer_parts *parts, int *status)
{
	const cJSON *last;
	char *sentence, *problem;

	*status = 500;
	switch (result->end) {
	case CHILD_EXITED:
		*status = status_http((enum exit_status)result->status);
		last = cJSON_GetArrayItem(parts->warnings, cJSON_GetArraySize(parts->warnings) - 1);
		if (parts->detail)
			sentence = strdup(parts->detail);
		else if (last)
			sentence = strdup(last->valuestring);
		else
			check(asprintf(&sentence, "the command has ended with exit status %d",
				       result->status) > 0);
		break;
	case CHILD_LATE:
		*status = 504;
		sentence = strdup("the command took too long and was killed: what it changed is "
				  "unknown, so check before you repeat it");
		break;
	case CHILD_WORDY:
		if (route->method != EVHTTP_REQ_GET) {
			sentence = strdup("the command wrote more than 4 MiB and was killed: what "
					  "it changed is unknown, so check before you repeat it");
			break;
		}
		*status = 400;
		sentence = strdup("the answer would be larger than 4 MiB: ask for less");
		break;
	case CHILD_CRASHED:
		check(asprintf(&sentence,
			       "the command was killed by signal %d: what it changed is unknown, "
			       "so check before you repeat it",
			       result->status) > 0);
		break;
	case CHILD_NOT_STARTED:
		*status = 503;
		check(asprintf(&sentence, "couponctl cannot be started: %s",
			       strerror(result->status)) > 0);
		break;
	case CHILD_REFUSED:
		*status = 401;
		sentence = strdup("nothing was done: while the command waited, the client left, "
				  "the key was revoked or the session ended");
		break;
	case CHILD_STOPPED:
		*status = 503;
		sentence = strdup("coupon-admin is stopping: nothing was done");
		break;
	}
	problem = problem_make(*status, checked(sentence));
	free(sentence);
	return problem;
}

char *outcome_make(const struct route *route, const struct child_result *result, int *status,
		   int64_t *version)
{
	/* What it has printed is the answer with these statuses as well. */
	static const int answers[] = {
		[CTL_FAILED] = ROUTE_VERDICT,
		[CTL_STALLED] = ROUTE_VERDICT,
		[CTL_REFUSED] = ROUTE_VERDICT,
		[CTL_STOPPED] = ROUTE_VERDICT,
		[CTL_ABSENT] = ROUTE_VERDICT,
		[CTL_AWAY] = ROUTE_PARTIAL,
		[CTL_UNKNOWN] = 0,
	};
	struct answer_parts parts;
	int is_read = answer_read(&parts, result) == 0 && result->end == CHILD_EXITED;
	/* With nothing but warnings it has made its change. */
	int is_done = is_read &&
		      (result->status == CTL_DONE ||
		       (result->status == CTL_NOT_IN_REDIS && !parts.detail) ||
		       (result->status == CTL_UNKNOWN && !parts.detail && parts.warnings->child));
	int is_answered = is_read && result->status <= CTL_UNKNOWN &&
			  route->flags & (unsigned)answers[result->status];
	char *text = NULL;
	const cJSON *number;
	cJSON *root;

	*version = 0;
	if (is_done || (is_answered && parts.members_len > 0))
		text = answer_make(route, &parts);
	root = text ? cJSON_Parse(text) : NULL; /* one that failed may have printed a part */
	if (!root) {
		free(text);
		text = failure_make(route, result, &parts, status);
		goto out;
	}
	number = cJSON_GetObjectItemCaseSensitive(root, "version");
	if (!number)
		number = cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(root, "postgresql"), "version");
	if (cJSON_IsNumber(number))
		*version = (int64_t)number->valuedouble;
	*status = route->made ? 201 : 200;
	cJSON_Delete(root);
out:
	cJSON_Delete(parts.root);
	return text;
}

#include "admin/outcome.h"

#include "common/check.h"
#include "common/message/answer.h"
#include "common/message/json.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARNING "couponctl: warning: "

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

/* What couponctl says on standard error: its warnings, or all of it. NULL: nothing. */
static cJSON *warnings_read(const char *text, int all)
{
	cJSON *array = NULL;

	while (*text) {
		size_t len = strcspn(text, "\n");
		int is_warning = strncmp(text, WARNING, strlen(WARNING)) == 0,
		    is_progress = len > 2 && memcmp(text + len - 2, " %", 2) == 0;

		if (is_warning || (all && len > 0 && !is_progress)) {
			size_t skipped = is_warning ? strlen(WARNING) : 0;
			char *sentence = words_translate(text + skipped, len - skipped);

			if (!array)
				array = cJSON_CreateArray();
			cJSON_AddItemToArray(array, cJSON_CreateString(sentence));
			free(sentence);
		}
		text += len + (text[len] == '\n');
	}
	return array;
}

/* Whether it has said nothing but warnings: it has made its change. */
static int has_only_warnings(const char *text)
{
	cJSON *warnings = warnings_read(text, 0), *all = warnings_read(text, 1);
	int is_only = cJSON_GetArraySize(all) == cJSON_GetArraySize(warnings);

	cJSON_Delete(warnings);
	cJSON_Delete(all);
	return is_only;
}

/* What was printed, with the warnings (malloc), or NULL: it is no answer. */
static char *answer_make(const struct route *route, const struct child_result *result)
{
	cJSON *warnings = warnings_read(result->err, result->status != CTL_DONE);
	const char *printed = result->out;
	size_t len = result->out_len;
	char *text = NULL;

	while (!route->list && len > 0 && printed[len - 1] == '\n')
		len--;
	if (route->list) { /* objects, one a line */
		cJSON *object = output_object(), *list = checked(cJSON_CreateArray());

		while (*printed) {
			char *line;

			len = strcspn(printed, "\n");
			line = checked(strndup(printed, len));
			cJSON_AddItemToArray(list, checked(cJSON_CreateRaw(line)));
			free(line);
			printed += len + (printed[len] == '\n');
		}
		output_add(object, route->list, list);
		if (warnings)
			output_add(object, "warnings", cJSON_Duplicate(warnings, 1));
		text = checked(json_write(object));
		cJSON_Delete(object);
	} else if (len >= 2 && printed[0] == '{' && printed[len - 1] == '}') {
		/* One object, as it was printed: numbers keep all their digits. */
		char *list = warnings ? checked(json_write(warnings)) : NULL;

		if (list)
			check(asprintf(&text, "%.*s%s\"warnings\":%s}", (int)len - 1, printed,
				       len > 2 ? "," : "", list) > 0);
		else
			text = checked(strndup(printed, len));
		cJSON_free(list);
	}
	cJSON_Delete(warnings);
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

static char *failure_make(const struct route *route, const struct child_result *result, int *status)
{
	const char *err = result->err;
	size_t len = strlen(err), begin;
	char *sentence, *problem;

	*status = 500;
	switch (result->end) {
	case CHILD_EXITED:
		*status = status_http((enum exit_status)result->status);
		/* The last line is the reason, in the words of this API. */
		while (len > 0 && err[len - 1] == '\n')
			len--;
		for (begin = len; begin > 0 && err[begin - 1] != '\n'; begin--)
			;
		sentence = words_translate(err + begin, len - begin);
		if (!*sentence) {
			free(sentence);
			check(asprintf(&sentence, "the command has ended with exit status %d",
				       result->status) > 0);
		}
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
	int is_done = result->end == CHILD_EXITED &&
		      (result->status == CTL_DONE ||
		       ((result->status == CTL_NOT_IN_REDIS ||
			 (result->status == CTL_UNKNOWN && *result->err)) &&
			has_only_warnings(result->err)));
	int is_answered = result->end == CHILD_EXITED && result->out_len > 0 &&
			  result->status <= CTL_UNKNOWN &&
			  route->flags & (unsigned)answers[result->status];
	char *text = NULL;
	const cJSON *number;
	cJSON *root;

	*version = 0;
	if (is_done || is_answered)
		text = answer_make(route, result);
	root = text ? cJSON_Parse(text) : NULL; /* one that failed may have printed a part */
	if (!root) {
		free(text);
		return failure_make(route, result, status);
	}
	number = cJSON_GetObjectItemCaseSensitive(root, "version");
	if (!number)
		number = cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(root, "postgresql"), "version");
	if (cJSON_IsNumber(number))
		*version = (int64_t)number->valuedouble;
	*status = route->made ? 201 : 200;
	cJSON_Delete(root);
	return text;
}

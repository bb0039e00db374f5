#include "common/message/answer.h"

#include "common/check.h"
#include "common/message/json.h"

#include <stddef.h>
#include <string.h>

static const struct {
	int code;
	int http;
	const char *status;
	const char *text;
} answers[] = {
#define ANSWER(name, code, status, http, text) [name] = { code, http, status, text },
#include "common/message/answer_table.h"
#undef ANSWER
};

int answer_code(enum answer answer)
{
	check(answer < ANSWER_COUNT);
	return answers[answer].code;
}

const char *answer_status(enum answer answer)
{
	check(answer < ANSWER_COUNT);
	return answers[answer].status;
}

int answer_http(enum answer answer)
{
	check(answer < ANSWER_COUNT);
	return answers[answer].http;
}

const char *answer_text(enum answer answer)
{
	check(answer < ANSWER_COUNT);
	return answers[answer].text;
}

enum answer answer_from_code(int code)
{
	for (size_t i = 0; i < ANSWER_COUNT; i++)
		if (answers[i].code == code)
			return (enum answer)i;
	return ANSWER_COUNT;
}

static const char *const reasons[] = { [REASON_NONE] = "",
#define REASON(name, text) [REASON_##name] = text,
				       REASONS(REASON)
#undef REASON
};

const char *reason_text(enum reason reason)
{
	return reasons[reason];
}

enum reason reason_find(const char *text)
{
	int reason = REASON_COUNT - 1;

	while (reason > REASON_NONE && strcmp(reasons[reason], text) != 0)
		reason--;
	return (enum reason)reason;
}

const char *reason_known(const char *text)
{
	enum reason reason = reason_find(text);

	return reason ? reason_text(reason) : "other";
}

char *answer_line(const char *id, enum answer answer, const char *status, cJSON *object)
{
	cJSON *line = checked(cJSON_CreateObject()), *member;
	char *text;

	if (*id)
		cJSON_AddRawToObject(line, "id", id);
	cJSON_AddNumberToObject(line, "code", answer_code(answer));
	cJSON_AddStringToObject(line, "status", status ? status : answer_status(answer));
	while (object && (member = object->child)) {
		cJSON_DetachItemViaPointer(object, member);
		cJSON_AddItemToObject(line, member->string, member);
	}
	cJSON_Delete(object);
	text = checked(json_write(line));
	cJSON_Delete(line);
	return text;
}

char *answer_message_line(const char *id, enum answer answer, const char *message)
{
	cJSON *object = checked(cJSON_CreateObject());

	cJSON_AddStringToObject(object, "message", message ? message : answer_text(answer));
	return answer_line(id, answer, NULL, object);
}

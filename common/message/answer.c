#include "common/message/answer.h"

#include "common/check.h"

#include <stddef.h>

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

/*
 * The answers to a request: one table (answer_table.h) for socket, HTTP, CLI and docs.
 */
#ifndef COMMON_MESSAGE_ANSWER_H
#define COMMON_MESSAGE_ANSWER_H

enum answer {
#define ANSWER(name, code, status, http, text) name,
#include "common/message/answer_table.h"
#undef ANSWER
	ANSWER_COUNT
};

int answer_code(enum answer answer);           /* the number on the wire */
const char *answer_status(enum answer answer); /* its name, for instance "out_of_stock" */
int answer_http(enum answer answer);           /* HTTP status */
const char *answer_text(enum answer answer);   /* a readable line */

/* The answer with this number, or ANSWER_COUNT. */
enum answer answer_from_code(int code);

#endif

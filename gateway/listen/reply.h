/*
 * Replies: the line that goes to the responder of a request (a socket connection or an HTTP
 * exchange). Each request is answered exactly once; the functions that take a request also free it.
 */
#ifndef GATEWAY_LISTEN_REPLY_H
#define GATEWAY_LISTEN_REPLY_H

#include "gateway/listen/request.h"

/* The fields of the answer to an issue, beside its code. */
struct result {
	enum answer answer;
	enum request_ack reached; /* ANSWER_OK: accepted, queued or issued */
	int slot;                 /* 0: the answer names no receive */
	struct receive receive;
	const char *reason; /* ANSWER_REJECTED */
};

/* Answers an issue. */
void request_answer(struct request *request, const struct result *result);
/* Answers with a code and a sentence; NULL: the code's own text. */
void request_fail(struct request *request, enum answer answer, const char *message);
/*
 * Answers with id, code, status (NULL: the answer's own) and the members of `object`. Takes the
 * object.
 */
void request_answer_object(struct request *request, enum answer answer, const char *status,
			   cJSON *object);

#endif

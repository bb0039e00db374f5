#include "gateway/listen/request.h"

#include "common/check.h"
#include "common/clock.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

void identity_forget(struct identity *identity)
{
	token_drop(identity->token);
	identity->token = NULL;
	memset(&identity->grant, 0, sizeof(identity->grant));
}

int identity_has_coupon(const struct identity *identity, int64_t coupon)
{
	if (identity->grant.key)
		return key_has_coupon(identity->grant.key, coupon);
	if (identity->token)
		return token_is_for(identity->token, coupon);
	return !identity->is_needed;
}

void responder_line(struct responder *responder, const struct request *request, enum answer answer,
		    char *line)
{
	responder->reply(responder, request, answer, line, strlen(line));
	cJSON_free(line);
}

#define ABANDONED_MS 1000

const struct request_operation request_operations[] = {
#define OP(name, text, reads, cost) [name] = { text, reads, cost },
#include "gateway/listen/op_table.h"
#undef OP
};

const char *const request_ack_names[] = { "accepted", "queued", "issued" };

const char *request_key(const struct request *request)
{
	return request->text + request->id_len + 1;
}

const char *request_trace(const struct request *request)
{
	return request_key(request) + request->key_len + 1;
}

const char *request_code(const struct request *request)
{
	return request_trace(request) + request->trace_len + 1;
}

void request_code_wipe(struct request *request)
{
	OPENSSL_cleanse((char *)(uintptr_t)request_code(request), request->code_len);
}

void request_code_set(struct request *request, const char *code)
{
	request->code_len = strlen(code);
	check(request->code_len <= RECEIVE_CODE_MAX);
	memcpy((char *)(uintptr_t)request_code(request), code, request->code_len + 1);
}

enum request_op request_op_find(const char *name)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (strcmp(request_operations[op].name, name) == 0)
			return (enum request_op)op;
	return OP_COUNT;
}

int request_is_abandoned(const struct request *request, int64_t now_us)
{
	const struct responder *responder = request->responder;

	return responder->has_left &&
	       responder->left_waited_ms + (now_us - request->begun_us) / 1000 >= ABANDONED_MS;
}

int request_is_http(const char *line, size_t len)
{
	static const char *const begins[] = { "GET ",     "HEAD ",    "POST ",  "PUT ",
					      "DELETE ",  "OPTIONS ", "PATCH ", "TRACE ",
					      "CONNECT ", "PRI ",     "Host:" };

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (len >= strlen(begins[i]) &&
		    strncasecmp(line, begins[i], strlen(begins[i])) == 0)
			return 1;
	return 0;
}

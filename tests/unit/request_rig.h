/* A client whose requests are parsed, and whose replies are kept. */
#pragma once

#include "gateway/listen/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"

/* A client that keeps its last reply. */
static struct {
	struct responder responder; /* first */
	int replies;
	enum answer answer;
	char line[8192];
} client;

static void client_reply(struct responder *responder, const struct request *request,
			 enum answer answer, const char *line, size_t len)
{
	(void)request;
	assert_ptr_equal(responder, &client.responder);
	assert_true(len < sizeof(client.line));
	client.replies++;
	client.answer = answer;
	memcpy(client.line, line, len);
	client.line[len] = '\0';
}

static int setup(void **state)
{
	memset(&client, 0, sizeof(client));
	client.responder.reply = client_reply;
	*state = json_arena_new();
	return 0;
}

static int teardown(void **state)
{
	json_arena_free(*state);
	return 0;
}

static struct request *parse_as(struct json_arena *arena, const char *text, enum request_op op)
{
	client.replies = 0;
	client.line[0] = '\0';
	return request_parse(arena, text, strlen(text), op, &client.responder);
}

static struct request *parse(struct json_arena *arena, const char *text)
{
	struct request *request = parse_as(arena, text, OP_COUNT);

	if (!request)
		fail_msg("%s was refused: %s", text, client.line);
	assert_int_equal(client.replies, 0);
	assert_ptr_equal(request->responder, &client.responder);
	return request;
}

static void refuse_as(struct json_arena *arena, const char *text, enum request_op op,
		      const char *line)
{
	struct request *request = parse_as(arena, text, op);

	if (request)
		fail_msg("%s was taken", text);
	assert_int_equal(client.replies, 1);
	assert_int_equal(client.answer, ANSWER_BAD_REQUEST);
	if (!strstr(client.line, line))
		fail_msg("%s: the reply is %s, wanted: %s", text, client.line, line);
}

static void refuse(struct json_arena *arena, const char *text, const char *line)
{
	refuse_as(arena, text, OP_COUNT, line);
}

/* A request, and words of the reply that refuses it. */
struct refusal {
	const char *text, *line;
};

static void refuse_each(struct json_arena *arena, const struct refusal *refusals, size_t n)
{
	for (size_t i = 0; i < n; i++)
		refuse(arena, refusals[i].text, refusals[i].line);
}

static struct result result_make(enum answer answer, enum request_ack reached, int slot)
{
	struct result result = { .answer = answer,
				 .reached = reached,
				 .slot = slot,
				 .receive = { 1001, user_id_of_number(42), { { 0 } }, 3 } };

	ulid_parse(&result.receive.batch, BATCH, ULID_LEN);
	return result;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

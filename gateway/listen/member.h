/* The members of a request's object: each has a function that takes it. Part of parse. */
#pragma once

#include "common/message/trace_context.h"
#include "common/message/use.h"
#include "gateway/listen/request.h"

#define PARSE_WHY_SIZE 256
#define USE_TTL_DEFAULT_S 900

/* What was taken, before the request is made. */
struct parse {
	char id[REQUEST_ID_SIZE]; /* as JSON */
	const char *key;
	char trace[TRACE_SIZE];
	const char *code;
	const cJSON *cursor; /* checked when the user is known; NULL: none */
	struct use use;      /* without its action and key; only of what an order asks for */
	struct receive receives[USE_RECEIVES_MAX];
	char why[PARSE_WHY_SIZE]; /* what is wrong with a member */
	struct request request;   /* last: its text is not here */
};

/* NULL, or what is allowed. */
typedef const char *member_fn(struct parse *parse, const cJSON *item);

member_fn id_member, op_member;
member_fn coupon_member, code_member, user_member, receive_member, receives_member;
member_fn key_member, order_member, by_member, amount_member, currency_member, ttl_member;
member_fn reason_member, trace_member, ack_member, limit_member, usable_member, cursor_member;
member_fn token_member;

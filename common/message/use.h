/*
 * Uses of receives: hold, use, release and rollback, each of one receive or of several for one
 * order, in messages of `coupon.use.queue`. A gateway gathers what arrives together:
 *
 *	{"v":1,"batch":"01JD…","at":1700000000123,"uses":[
 *	 ["use","order-77","key-1","3k9v0d7xqa",0,12900,"EUR","",[["1001","42","01JC…",0]]],
 *	 ["hold","order-78","01JD….1","",900,null,"","",[["1001","43"]]]]}
 *
 * A use is action, order, key, who asked, seconds that it holds for, the order's amount in minor
 * units and its currency, reason, and receives. One without batch and index is any receive of its
 * user. These messages are packed, and have "traces" by the index of the use, as messages of
 * receives do (message.h).
 *
 * A worker replies to each batch that a gateway waits for, of receives or of uses. To receives:
 *
 *	{"v":1,"batch":"01JD…","outcomes":[[0,"issued"],[1,"rejected","slot_taken"]]}
 *
 * The reply to uses names each receive, in the order of the message: which use it is of, the
 * result, until when it is held, and what is taken off. If the use was executed before, it also
 * says what the receive is now, whether the order has it (1 or 0), and until when it is held.
 *
 *	{"v":1,"batch":"01JD…","uses":[
 *	 [0,"used",["1001","42","01JC…",0],null,500,"EUR",["used",0,null]],
 *	 [1,"not_found",["1001","43"],null,null,"",null]]}
 */
#pragma once

#include "common/message/answer.h"
#include "common/message/json.h"
#include "common/message/message.h"
#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>

#define USE_VERSION 1
#define USE_RECEIVES_MAX 16 /* of one use */
#define USE_ORDER_MAX 64    /* bytes of printable ASCII, as in the next ones */
#define USE_BY_MAX 64
#define USE_REASON_MAX 200
#define USE_TTL_MAX_S 86400
#define CURRENCY_LEN 3
/*
 * How long Redis keeps uses, and PostgreSQL refused ones: a client may repeat a refused one for
 * seven days (docs/reference/protocol.md). What that costs Redis has a limit,
 * COUPON_KEEP_USES_BYTES.
 */
#define USE_KEEP_S (7 * 24 * 60 * 60LL)

enum use_action { USE_HOLD, USE_USE, USE_RELEASE, USE_ROLLBACK, USE_ACTIONS };

extern const char *const use_action_names[USE_ACTIONS];

struct use {
	enum use_action action;
	char order[USE_ORDER_MAX + 1];
	char key[RECEIVE_KEY_MAX + 1]; /* of the operation: a copy of it does nothing */
	char by[USE_BY_MAX + 1];       /* empty: it is not known */
	int64_t ttl_s;                 /* USE_HOLD: 1 to USE_TTL_MAX_S; else 0 */
	/* USE_ROLLBACK: a part of the discount; else the order's. -1: none, and no currency. */
	int64_t amount;
	char currency[CURRENCY_LEN + 1];
	char reason[USE_REASON_MAX + 1]; /* empty: none */
	size_t receives_n;
};

/* The index of a receive that is any one of its user. Its batch is undefined. */
#define USE_ANY_RECEIVE (-1)

struct use_message {
	struct ulid batch;
	int64_t at_ms;
	size_t uses_n;
	struct use uses[MESSAGE_RECEIVES_MAX];
	size_t receives_n;
	struct receive receives[MESSAGE_RECEIVES_MAX]; /* of all uses, in their order */
	struct message_traces traces;
};

/* Whether these `len` bytes are three capitals, as ISO 4217 has them. */
int currency_valid(const char *text, size_t len);

/* Whether these are a reason: 1 to 200 bytes of printable ASCII. */
int use_reason_valid(const char *text, size_t len);

/*
 * Whether they can be the receives of one use: 1 to 16, none of them twice, and one that is any of
 * its user stands alone.
 */
int use_receives_valid(const struct receive *receives, size_t n);

/* Writes a message without a NUL, and returns its length. */
#define USE_MESSAGE_SIZE (160 + MESSAGE_RECEIVES_MAX * 1472 + MESSAGE_TRACES_MAX * 2 * TRACE_SIZE)
size_t use_message_write(const struct use_message *message, char out[USE_MESSAGE_SIZE]);

/* As message_decode(). */
int use_message_decode(struct json_arena *arena, const char *body, size_t len,
		       struct use_message *message, const char **error);

/*
 * What became of a receive, in the words of sql/function/use.sql, each once, and the answer:
 * RESULT(name, text, answer).
 */
#define USE_RESULTS(RESULT)                                                          \
	RESULT(HELD, "held", ANSWER_OK)                                              \
	RESULT(USED, "used", ANSWER_OK)                                              \
	RESULT(RELEASED, "released", ANSWER_OK)                                      \
	RESULT(ROLLED_BACK, "rolled_back", ANSWER_OK)                                \
	RESULT(KEPT, "kept", ANSWER_OK) /* another receive of the use was refused */ \
	RESULT(NOT_FOUND, "not_found", ANSWER_NOT_FOUND)                             \
	RESULT(HELD_BY_OTHER, "held_by_other", ANSWER_HELD_BY_OTHER)                 \
	RESULT(ALREADY_USED, "already_used", ANSWER_ALREADY_USED)                    \
	RESULT(EXPIRED, "expired", ANSWER_EXPIRED)                                   \
	RESULT(NOT_VALID_YET, "not_valid_yet", ANSWER_NOT_VALID_YET)                 \
	RESULT(VOIDED, "voided", ANSWER_VOIDED)                                      \
	RESULT(BUDGET_SPENT, "budget_spent", ANSWER_BUDGET_SPENT)                    \
	RESULT(BELOW_THRESHOLD, "below_threshold", ANSWER_BELOW_THRESHOLD)           \
	RESULT(KEY_TAKEN, "key_taken", ANSWER_KEY_REUSED)                            \
	RESULT(AMOUNT_NEEDED, "amount_needed", ANSWER_BAD_REQUEST)                   \
	RESULT(NOT_USED, "not_used", ANSWER_BAD_REQUEST) /* rollback of a hold */    \
	RESULT(AMOUNT_EXCEEDED, "amount_exceeded", ANSWER_AMOUNT_EXCEEDED)           \
	RESULT(CURRENCY_WRONG, "currency_wrong", ANSWER_BAD_REQUEST)

enum use_result {
#define RESULT(name, text, answer) USE_##name,
	USE_RESULTS(RESULT)
#undef RESULT
		USE_RESULTS_N
};

const char *use_result_text(enum use_result result);
enum answer use_result_answer(enum use_result result);
enum use_result use_result_find(const char *text); /* USE_RESULTS_N: none has this text */

/* What a receive is at the moment: RECEIVE_NOW(name, text). NOW_NONE: not known. */
#define RECEIVE_NOWS(RECEIVE_NOW)     \
	RECEIVE_NOW(NONE, "")         \
	RECEIVE_NOW(FREE, "free")     \
	RECEIVE_NOW(HELD, "held")     \
	RECEIVE_NOW(USED, "used")     \
	RECEIVE_NOW(VOIDED, "voided") \
	RECEIVE_NOW(NOT_FOUND, "not_found")

enum receive_now {
#define RECEIVE_NOW(name, text) NOW_##name,
	RECEIVE_NOWS(RECEIVE_NOW)
#undef RECEIVE_NOW
		NOWS_N
};

const char *receive_now_text(enum receive_now now);
enum receive_now receive_now_find(const char *text); /* NOWS_N: none has this text */

struct use_outcome {
	size_t use; /* its place in the message */
	enum use_result result;
	struct receive receive; /* with USE_ANY_RECEIVE: none was found */
	int64_t until_ms;       /* the end of the hold; -1: none */
	int64_t amount_off;     /* -1: not known */
	char currency[CURRENCY_LEN + 1];
	enum receive_now now; /* NOW_NONE: it was not executed before */
	int now_is_own;       /* the order of the use holds it, or has used it */
	int64_t now_until_ms; /* NOW_HELD: the end of the hold; else -1 */
};

struct receive_outcome {
	int index;
	const char *reason; /* a constant: it was rejected; NULL: it was issued */
};

struct reply {
	struct ulid batch;
	int is_to_uses; /* else to receives */
	size_t outcomes_n;
	union {
		struct receive_outcome receives[MESSAGE_RECEIVES_MAX];
		struct use_outcome uses[MESSAGE_RECEIVES_MAX];
	};
};

/* Writes a reply without a NUL, and returns its length. */
#define REPLY_SIZE (64 + MESSAGE_RECEIVES_MAX * 336)
size_t reply_write(const struct reply *reply, char out[REPLY_SIZE]);

/* 0, or -1: it is malformed. */
int reply_decode(struct json_arena *arena, const char *body, size_t len, struct reply *reply);

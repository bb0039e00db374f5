/*
 * The answers to a request: one table (answer_table.h) for socket, HTTP, CLI and docs.
 */
#pragma once

#include <cjson/cJSON.h>

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

/* Every reason once, as in receive_rejected.reason; docs/about/lifecycle.md describes each. */
#define REASONS(REASON)                          \
	REASON(UNKNOWN_COUPON, "unknown_coupon") \
	REASON(SLOT_TAKEN, "slot_taken")         \
	REASON(SLOT_INVALID, "slot_invalid")     \
	REASON(OUT_OF_STOCK, "out_of_stock")     \
	REASON(KEY_TAKEN, "key_taken")           \
	REASON(LOST, "lost")                     \
	REASON(VOIDED, "voided")                 \
	REASON(CODE_USED, "code_used")           \
	REASON(CODE_INVALID, "code_invalid")

/* Why a receive was rejected. REASON_NONE: it was not, or this version does not know why. */
enum reason {
	REASON_NONE,
#define REASON(name, text) REASON_##name,
	REASONS(REASON)
#undef REASON
		REASON_COUNT
};

const char *reason_text(enum reason reason); /* "" for none */
enum reason reason_find(const char *text);
const char *reason_known(const char *text); /* the constant; "other" for an unknown reason */

/*
 * The object with `id` (as JSON; empty: none), code, status (NULL: the answer's own) and the
 * members of `object`, which it takes (NULL: none). To be freed with cJSON_free().
 */
char *answer_line(const char *id, enum answer answer, const char *status, cJSON *object);
/* Makes the line with a sentence of the caller's; NULL: the answer's own. */
char *answer_message_line(const char *id, enum answer answer, const char *message);

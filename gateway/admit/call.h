/* The requests for one coupon that the script decides together, and its reply. */
#ifndef GATEWAY_ADMIT_CALL_H
#define GATEWAY_ADMIT_CALL_H

#include "common/message/answer.h"
#include "common/message/message.h"
#include "common/message/ulid.h"
#include "gateway/listen/request.h"

struct coupon;

/* Owned by admission until the port has sent it, then by the port until it ends. */
struct call {
	STAILQ_ENTRY(call) next; /* of the port */
	struct coupon *coupon;
	int64_t coupon_id;
	struct ulid batch;
	/* the highest generation that Redis has named to this process, and the highest seq in it */
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t sent_ms; /* by the port's clock */
	int has_keys;    /* one of its requests has a key */
	int has_codes;   /* one of its requests redeems a code */
	size_t requests_n;
	struct request *requests[MESSAGE_RECEIVES_MAX];
};

/* The script's answer to one request. */
struct verdict {
	enum answer answer; /* ANSWER_OK, or the refusal */
	int slot;           /* ANSWER_OK */
	/* the key was known: `batch` and `index` name the receive; else it belongs to this call */
	int repeated;
	struct ulid batch; /* when repeated */
	int index;         /* when repeated */
};

enum call_state { CALL_OK, CALL_MISSING, CALL_UNVERIFIED, CALL_BEHIND };

struct call_reply {
	enum call_state state;
	int64_t generation;
	int64_t seq;
	int64_t now_ms;   /* Redis time */
	int64_t begin_ms; /* 0: none */
	const char *body; /* the message; empty when nothing was accepted */
	size_t body_len;
	struct verdict verdicts[MESSAGE_RECEIVES_MAX]; /* one for each request of the call */
};

#endif

/* The requests for one coupon that the script decides together, and its reply. */
#pragma once

#include "common/message/answer.h"
#include "common/message/message.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "common/redis/redis.h"
#include "gateway/listen/request.h"

#include <hiredis/hiredis.h>

struct coupon;
struct redis_pool;
struct redis_link;

/* Owned by admission until the port has sent it, then by the port until it ends. */
struct call {
	STAILQ_ENTRY(call) next; /* in the list of the port */
	struct coupon *coupon;
	int64_t coupon_id;
	struct ulid batch;
	/* the highest generation that Redis has named to this process, and the highest seq in it */
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t sent_ms;  /* by the port's clock */
	uint64_t forgets; /* how many times admission had forgotten answers when it was made */
	int has_keys;     /* one of its requests has a key */
	int has_codes;    /* one of its requests claims a code */
	int has_traces;   /* one of its requests is traced */
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

/*
 * The calls that go to Redis together, in one run of lua/issue.lua. Every run costs Redis as much
 * as several requests, and every call in it more than a request. No I/O.
 */

#define BUNDLE_CALLS_MAX 48
#define BUNDLE_REQUESTS_MAX MESSAGE_RECEIVES_MAX

STAILQ_HEAD(call_list, call);

struct bundle {
	STAILQ_ENTRY(bundle) next;
	struct call_list calls;
	size_t calls_n;
	size_t requests; /* in all calls */
	/* Owned by the port while the bundle is in flight. */
	struct redis_pool *pool;
	struct redis_link *link;
	int tries;
};

struct bundle *bundle_new(void);

/* How many requests one more call may have; 0: none is added. */
size_t bundle_room(const struct bundle *bundle);
/* Whether what waits fills a bundle. */
int bundle_is_filled_by(size_t requests, size_t coupons);
void bundle_add(struct bundle *bundle, struct call *call);
/* Takes the next call out of the bundle; NULL: there is none. */
struct call *bundle_take(struct bundle *bundle);

/* EVALSHA, its keys and arguments. The words point into it, so it must not be copied. */
struct bundle_command {
	int n;
	const char *words[5 + BUNDLE_CALLS_MAX * (4 + 5) + 4 * BUNDLE_REQUESTS_MAX];
	size_t lengths[5 + BUNDLE_CALLS_MAX * (4 + 5) + 4 * BUNDLE_REQUESTS_MAX];
	char keys_n[NUMBER_SIZE];
	struct call_words {
		struct coupon_keys keys;
		char coupon[ID_SIZE], batch[ULID_SIZE];
		char generation[NUMBER_SIZE], seq[NUMBER_SIZE], count[NUMBER_SIZE + 3];
	} calls[BUNDLE_CALLS_MAX];
};

/* The texts are lent to the command, and so are those of the requests. */
void bundle_command_make(struct bundle_command *command, const struct bundle *bundle,
			 const char *script, const char *run_id, const char *unsettled_max);

/*
 * Decodes what issue.lua returns: the reply to a call of `requests_n` requests; `body` is lent by
 * the reply. 0, or -1 when it is of another form.
 */
int script_reply_decode(const redisReply *reply, size_t requests_n, struct call_reply *decoded);

/*
 * A receive message of version 1: the receives that one script call accepted, as issue.lua builds
 * it. A message of version 2 carries several of these (struct packed).
 *
 *	{"v":1,"batch":"01JD…","coupon":"1001","generation":3,"seq":8121,"at":1700000000123,
 *	 "receives":[["42",1,""],["43",1,"order-77"]]}
 *
 * `seq` is the first receive's number in its generation, `at` is Redis time in milliseconds, a
 * receive is user, slot, idempotency key and, if it has claimed one, the exchange code. What is
 * handed on of the tracing of a receive's caller (trace_context.h) is beside them, by its index:
 * "traces":{"1":"00-4bf9…-01 order-77"}.
 */
#pragma once

#include "common/message/json.h"
#include "common/message/receive.h"
#include "common/message/trace_context.h"

#include <stddef.h>

#define MESSAGE_VERSION 1
#define MESSAGE_RECEIVES_MAX 256
#define MESSAGE_AT_MAX_MS 253402300799999 /* the end of the year 9999 */
#define MESSAGE_TRACES_MAX 16             /* of a batch; further ones are left out */

struct message_receive {
	struct user_id user;
	/* any integer from 0 to 32767: settlement checks whether the coupon allows it */
	int slot;
	char tail[RECEIVE_TAIL_MAX + 1]; /* receive_tail_parse(): the key, and a code */
};

struct message_traces {
	size_t n;
	struct message_trace {
		size_t index; /* of its receive, or use */
		char text[TRACE_SIZE];
	} list[MESSAGE_TRACES_MAX];
};

struct message {
	struct ulid batch;
	int64_t coupon;
	int64_t generation;
	int64_t seq;
	int64_t at_ms;
	size_t receives_n;
	struct message_receive receives[MESSAGE_RECEIVES_MAX];
	struct message_traces traces;
};

/*
 * Decodes `len` bytes. 0, or -1 with the reason in `*error` (a constant): such a message is
 * dead-lettered. Unknown members are allowed: a later minor addition must not stop an older worker.
 * Nor does a trace that is none: it is left out.
 */
int message_decode(struct json_arena *arena, const char *body, size_t len, struct message *message,
		   const char **error);
/* Decodes the traces of a message with `of_n` receives, or uses. */
void message_traces_decode(const cJSON *root, size_t of_n, struct message_traces *traces);
/* Whether it has this receive. */
int message_has(const struct message *message, const struct receive *receive);

/*
 * A packed message: several batches in one AMQP message, of any coupons. Each is a line, byte for
 * byte as a message of version 1, so that none is decoded to be packed or forwarded:
 *
 *	{"v":2,"batches":[
 *	{"v":1,"batch":"01JD…","coupon":"1001",…},
 *	{"v":1,"batch":"01JE…","coupon":"1002",…}
 *	]}
 *
 * The line breaks are part of the format.
 */

#define PACKED_VERSION 2
#define PACKED_HEAD "{\"v\":2,\"batches\":[\n"
#define PACKED_NEXT ",\n"
#define PACKED_TAIL "\n]}"

#define PACKED_BATCHES_MAX 256
#define PACKED_BYTES_MAX 131072 /* as gateways send it; workers read up to ENVELOPE_BODY_MAX */

struct packed {
	const char *at; /* NULL: no batch is left */
	const char *end;
};

/*
 * Begins to read a body, which is lent. 1 when it is packed, 0 when it is not, or -1 with the
 * reason in `*error` (a constant).
 */
int packed_open(struct packed *packed, const char *body, size_t len, const char **error);
/* The next batch, lent from the body: 1, or 0 when there is none. There is at least one. */
int packed_next(struct packed *packed, const char **batch, size_t *len);

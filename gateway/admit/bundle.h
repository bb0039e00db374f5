/*
 * The calls that go to Redis together: each is a part of one run of lua/issue.lua. Every run costs
 * Redis as much as several requests, and every part costs it more than a request. No I/O.
 */
#ifndef GATEWAY_ADMIT_BUNDLE_H
#define GATEWAY_ADMIT_BUNDLE_H

#include "common/message/number.h"
#include "common/redis/key.h"
#include "gateway/admit/call.h"

#define BUNDLE_CALLS_MAX 48
#define BUNDLE_REQUESTS_MAX MESSAGE_RECEIVES_MAX

STAILQ_HEAD(call_list, call);

struct bundle {
	STAILQ_ENTRY(bundle) next;
	struct call_list calls;
	size_t calls_n;
	size_t requests; /* of all calls */
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
	const char *words[5 + BUNDLE_CALLS_MAX * (4 + 5) + 3 * BUNDLE_REQUESTS_MAX];
	size_t lengths[5 + BUNDLE_CALLS_MAX * (4 + 5) + 3 * BUNDLE_REQUESTS_MAX];
	char keys_n[NUMBER_SIZE];
	struct {
		struct coupon_keys keys;
		char coupon[ID_SIZE], batch[ULID_SIZE];
		char generation[NUMBER_SIZE], seq[NUMBER_SIZE], count[NUMBER_SIZE + 2];
	} parts[BUNDLE_CALLS_MAX];
};

/* The texts are lent to the command, and so are those of the requests. */
void bundle_command_make(struct bundle_command *command, const struct bundle *bundle,
			 const char *script, const char *run_id, const char *unsettled_max);

#endif

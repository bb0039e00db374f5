/*
 * What a gateway of the simulation has, between two events.
 */
#pragma once

#include "common/rabbit/rabbit_publisher.h"
#include "gateway/publish/waiters.h"
#include "gateway/publish/publisher.h"
#include "tests/sim/rig_worker.h"

#define CALL_TIMEOUT_MS 2000
#define ISSUED_TIMEOUT_MS 5000
#define UNCONFIRMED_MAX 120
#define UNCONFIRMED_PER_COUPON_MAX 80
#define MEMORY_MS 100
#define WINDOW_MAX 16
#define CHANNEL_TAGS_MAX 8192
#define ASKING_MAX 4096

/* The client's side: the answer to a request. */
static void client_answered(struct request *request, const struct result *result);
static size_t client_sent(struct request *request);

/* The broker's reply for one message of the channel. */
struct channel_tag {
	enum confirm_result result;
	struct ulid batch;
};

static struct {
	struct admission *admission;
	struct waiters *waiters;
	struct copies *copies;
	struct json_arena *arena;
	uint64_t incarnation;
	int dying;
	/* Redis */
	int connected;
	uint64_t connection;
	uint64_t run_id;
	struct redis_call *oldest, *newest;
	int64_t redis_busy_ms, replies_busy_ms;
	int64_t told_ms[COUPONS][ANSWER_COUNT]; /* the time of the last such reply */
	int64_t told_generation[COUPONS];       /* the highest in a reply, */
	int64_t told_seq[COUPONS];              /* and the highest in it */
	/* The publisher */
	int link_up;
	uint64_t link;
	int64_t link_away_until_ms; /* the broker is away */
	struct confirm_window *window;
	struct batch_list pending[2], again, finished; /* `pending` by way; no uses */
	size_t held[COUPONS]; /* receives of batches that are not confirmed */
	int64_t hold_until_ms, publish_busy_ms;
	/* The broker's side of its channel */
	struct channel_tag channel[CHANNEL_TAGS_MAX];
	uint64_t channel_received, channel_told;
	/* Look-ups in flight */
	int looking[COUPONS];
	struct waiter *asking[ASKING_MAX];
	size_t asking_n;
} gateway;

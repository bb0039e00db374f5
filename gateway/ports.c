/*
 * The ports of admission and of the waiters, connected to Redis, PostgreSQL, the publisher and the
 * clocks.
 */
#include "gateway/gateway.h"

#include "common/check.h"
#include "common/clock.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/metrics.h"
#include "gateway/read/status.h"

#include <stdlib.h>
#include <string.h>

#define COUPONS_MAX 65536 /* coupons that one process remembers */

/* The context of a look-up: the query that its rows answer. */
struct lookup_ticket {
	struct parts *parts;
	int64_t coupon;
	uint64_t token;
};

static struct lookup_ticket *ticket_new(struct parts *parts, int64_t coupon, uint64_t token)
{
	struct lookup_ticket *ticket = checked(malloc(sizeof(*ticket)));

	*ticket = (struct lookup_ticket){ .parts = parts, .coupon = coupon, .token = token };
	return ticket;
}

static int64_t port_now_ms(void *context)
{
	(void)context;
	return clock_monotonic_ms();
}

static void port_ulid_new(void *context, struct ulid *ulid)
{
	(void)context;
	ulid_new(ulid, clock_wall_ms());
}

static size_t port_room(void *context, size_t requests, size_t coupons)
{
	struct parts *parts = context;

	return redis_pool_room(parts->redis, requests, coupons);
}

static int port_send(void *context, struct call *call)
{
	struct parts *parts = context;

	return redis_pool_send(parts->redis, call);
}

static void port_busy(void *context, int64_t coupon, int busy)
{
	(void)context;
	doubt_busy(coupon, busy);
}

static void port_doubt(void *context, int64_t coupon, int64_t until_ms)
{
	(void)context;
	doubt_until(coupon, until_ms);
}

static void port_report(void *context, int64_t coupon, int64_t generation, int64_t seq)
{
	struct parts *parts = context;

	redis_pool_report(parts->redis, coupon, generation, seq);
}

static void port_ask(void *context, int64_t coupon)
{
	struct parts *parts = context;

	redis_pool_ask(parts->redis, coupon);
}

static void on_coupon_state(void *context, const PGresult *rows)
{
	struct lookup_ticket *ticket = context;

	admission_looked_up(ticket->parts->admission, ticket->coupon,
			    coupon_state_of(rows, ticket->coupon));
	free(ticket);
}

static void port_look_up_coupon(void *context, int64_t coupon)
{
	struct parts *parts = context;
	struct lookup_ticket *ticket = ticket_new(parts, coupon, 0);

	if (lookup_coupon(parts->lookup, LOOKUP_COUPON, coupon, on_coupon_state, ticket)) {
		free(ticket);
		admission_looked_up(parts->admission, coupon, COUPON_LOOKUP_BUSY);
	}
}

static void on_receive_outcome(void *context, const PGresult *rows)
{
	struct lookup_ticket *ticket = context;
	enum outcome_state state = OUTCOME_UNKNOWN;
	const char *reason = NULL;

	if (rows && PQntuples(rows) == 0) {
		state = OUTCOME_NONE;
	} else if (rows) {
		state = strcmp(column_text(rows, 0, "state"), "issued") == 0 ? OUTCOME_ISSUED
									     : OUTCOME_REJECTED;
		reason = outcome_reason(column_text(rows, 0, "reason"));
	}
	waiters_looked_up(ticket->parts->waiters, ticket->token, state, reason);
	free(ticket);
}

static void port_look_up_receive(void *context, const struct receive *receive, uint64_t token)
{
	struct parts *parts = context;
	struct lookup_ticket *ticket = ticket_new(parts, receive->coupon, token);

	if (lookup_receive(parts->lookup, LOOKUP_ISSUED, receive, on_receive_outcome, ticket)) {
		free(ticket);
		waiters_looked_up(parts->waiters, token, OUTCOME_UNKNOWN, NULL);
	}
}

static void port_publish(void *context, struct batch *batch)
{
	struct parts *parts = context;

	metrics_add(METRIC_ACCEPTED, (int64_t)batch->receives);
	publisher_submit(parts->publisher, batch);
}

static void port_answer(void *context, struct request *request, const struct result *result)
{
	(void)context;
	redeem_answered(request, result->answer);
	metrics_issue_time(clock_monotonic_us() - request->begun_us);
	request_answer(request, result);
}

void ports_connect(struct parts *parts, const struct config *config)
{
	struct waiters_port waiters_port = {
		.context = parts,
		.now_ms = port_now_ms,
		.look_up = port_look_up_receive,
		.answer = port_answer,
	};
	struct admission_port admission_port = {
		.context = parts,
		.now_ms = port_now_ms,
		.ulid_new = port_ulid_new,
		.room = port_room,
		.send = port_send,
		.look_up = port_look_up_coupon,
		.publish = port_publish,
		.answer = port_answer,
		.report = port_report,
		.ask = port_ask,
		.busy = port_busy,
		.doubt = port_doubt,
	};
	struct admission_limits limits = {
		.batch_receives_max = (size_t)config->batch_receives_max,
		.calls_per_coupon_max = config->calls_per_coupon_max,
		.unconfirmed_max = (size_t)config->unconfirmed_max,
		.unconfirmed_per_coupon_max = (size_t)config->unconfirmed_per_coupon_max,
		.memory_ms = config->memory_ms,
		.coupons_max = COUPONS_MAX,
	};

	parts->waiters = waiters_new(&waiters_port, config->issued_timeout_ms);
	parts->admission = admission_new(&admission_port, &limits, parts->waiters);
	parts->redeem = redeem_new(config, parts->codes, parts->admission);
	redis_pool_bind(parts->redis, parts->admission);
}

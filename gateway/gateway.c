#include "gateway/gateway.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "gateway/admit/admission.h"
#include "gateway/read/coupon_answer.h"
#include "gateway/listen/intake.h"
#include "gateway/listen/http.h"
#include "gateway/read/lookup.h"
#include "gateway/metrics.h"
#include "gateway/publish/outcome_message.h"
#include "gateway/publish/waiters.h"
#include "gateway/publish/publisher.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/listen/server.h"
#include "gateway/read/status.h"
#include "gateway/admit/doubt.h"
#include "gateway/weak_settings.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 20
#define COUPONS_MAX 65536 /* coupons one process keeps in mind */
#define TROUBLE_SIZE 256

struct gateway {
	struct event_base *base;
	struct intake *intake;
	struct server *server;
	struct http *http;
	struct redis_pool *redis;
	uint64_t redis_connects; /* at which what was seen of coupons was told */
	struct lookup *lookup;
	struct publisher *publisher;
	struct waiters *waiters;
	struct admission *admission;
	struct status_parts status;
	struct weak_settings weak_settings;
	struct json_arena *arena; /* for messages of workers */
	int64_t stop_by_ms;       /* 0: not stopping */
};

/* What a look-up needs to find its way back. */
struct lookup_ticket {
	struct gateway *gateway;
	int64_t coupon;
	uint64_t token;
};

static struct lookup_ticket *ticket_new(struct gateway *gateway, int64_t coupon, uint64_t token)
{
	struct lookup_ticket *ticket = malloc(sizeof(*ticket));

	check(ticket != NULL);
	*ticket = (struct lookup_ticket){ gateway, coupon, token };
	return ticket;
}

/* The ports of admission and the waiters. */

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

static int port_send(void *context, struct call *call)
{
	struct gateway *gateway = context;

	return redis_pool_send(gateway->redis, call);
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
	struct gateway *gateway = context;

	redis_pool_report(gateway->redis, coupon, generation, seq);
}

static void on_coupon_state(void *context, const PGresult *rows)
{
	struct lookup_ticket *ticket = context;

	admission_looked_up(ticket->gateway->admission, ticket->coupon, coupon_state_of(rows));
	free(ticket);
}

static void port_look_up_coupon(void *context, int64_t coupon)
{
	struct gateway *gateway = context;
	struct lookup_ticket *ticket = ticket_new(gateway, coupon, 0);

	if (lookup_coupon(gateway->lookup, coupon, on_coupon_state, ticket)) {
		free(ticket);
		admission_looked_up(gateway->admission, coupon, COUPON_LOOKUP_BUSY);
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
		state = strcmp(PQgetvalue(rows, 0, PQfnumber(rows, "state")), "issued") == 0
				? OUTCOME_ISSUED
				: OUTCOME_REJECTED;
		reason = outcome_reason(PQgetvalue(rows, 0, PQfnumber(rows, "reason")));
	}
	waiters_looked_up(ticket->gateway->waiters, ticket->token, state, reason);
	free(ticket);
}

static void port_look_up_receive(void *context, const struct receive *receive, uint64_t token)
{
	struct gateway *gateway = context;
	struct lookup_ticket *ticket = ticket_new(gateway, receive->coupon, token);

	if (lookup_receive(gateway->lookup, receive, on_receive_outcome, ticket)) {
		free(ticket);
		waiters_looked_up(gateway->waiters, token, OUTCOME_UNKNOWN, NULL);
	}
}

static void port_publish(void *context, struct batch *batch)
{
	struct gateway *gateway = context;

	metrics_add(METRIC_ACCEPTED, (int64_t)batch->receives);
	publisher_submit(gateway->publisher, batch);
}

static void port_answer(void *context, struct request *request, const struct result *result)
{
	(void)context;
	metrics_issue_time(clock_monotonic_us() - request->begun_us);
	request_answer(request, result);
}

static void dispatch(void *context, struct request *request)
{
	struct gateway *gateway = context;

	switch (request->op) {
	case OP_ISSUE:
		admission_submit(gateway->admission, request);
		return;
	case OP_STATUS:
		status_answer(&gateway->status, request);
		return;
	case OP_COUPON:
		coupon_answer_state(&gateway->status, request);
		return;
	case OP_PING:
		request_answer_object(request, ANSWER_OK, NULL, NULL);
		return;
	case OP_STATS: {
		cJSON *object = cJSON_CreateObject();

		check(object != NULL);
		cJSON_AddItemToObject(object, "stats", metrics_json());
		request_answer_object(request, ANSWER_OK, NULL, object);
		return;
	}
	case OP_COUNT:
		break;
	}
	check(0);
}

/* What the publisher has for the loop. */

static void batch_confirmed(struct gateway *gateway, struct batch *batch)
{
	fault_point(FAULT_GATEWAY_AFTER_CONFIRM);
	redis_pool_outbox_remove(gateway->redis, batch->coupon, &batch->ulid);
	admission_confirmed(gateway->admission, batch);
	waiters_confirmed(gateway->waiters, &batch->ulid);
	free(batch);
}

static void on_outcome(void *context, const struct ulid *batch, int index, enum outcome_state state,
		       const char *reason)
{
	struct gateway *gateway = context;

	metrics_add(METRIC_OUTCOMES, 1);
	waiters_settled(gateway->waiters, batch, index, state, reason);
}

static void on_publisher(evutil_socket_t fd, short what, void *data)
{
	struct outcome_message_list messages = STAILQ_HEAD_INITIALIZER(messages);
	struct batch_list confirmed = STAILQ_HEAD_INITIALIZER(confirmed);
	struct gateway *gateway = data;
	struct outcome_message *message;
	struct batch *batch;

	(void)fd;
	(void)what;
	publisher_collect(gateway->publisher, &confirmed, &messages);
	while ((batch = STAILQ_FIRST(&confirmed))) {
		STAILQ_REMOVE_HEAD(&confirmed, next);
		batch_confirmed(gateway, batch);
	}
	while ((message = STAILQ_FIRST(&messages))) {
		STAILQ_REMOVE_HEAD(&messages, next);
		if (outcome_message_decode(gateway->arena, message->body, message->len, on_outcome,
					   gateway))
			log_warn("outcome_message",
				 LOG_S("error", "not of the form that workers send"));
		free(message);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;

	(void)fd;
	(void)what;
	waiters_tick(gateway->waiters);
	redis_pool_tick(gateway->redis);
	if (gateway->redis_connects != redis_pool_connects(gateway->redis)) {
		gateway->redis_connects = redis_pool_connects(gateway->redis);
		admission_report(gateway->admission);
	}
	weak_settings_tick(&gateway->weak_settings, clock_monotonic_ms());
	publisher_watch(gateway->publisher);
	metrics_set(METRIC_UNCONFIRMED, (int64_t)admission_unconfirmed(gateway->admission));
	metrics_set(METRIC_WAITING, (int64_t)waiters_count(gateway->waiters));
	metrics_set(METRIC_REDIS_UP, redis_pool_trouble(gateway->redis) == NULL);
}

static int part_ready(cJSON *body, const char *part, const char *trouble)
{
	int ready = !trouble || !*trouble;

	cJSON_AddStringToObject(body, part, ready ? "ok" : trouble);
	return ready;
}

static int ready(void *context, cJSON **body)
{
	struct gateway *gateway = context;
	char trouble[TROUBLE_SIZE];
	int all = gateway->stop_by_ms == 0;

	*body = cJSON_CreateObject();
	check(*body != NULL);
	publisher_trouble(gateway->publisher, trouble, sizeof(trouble));
	all &= part_ready(*body, "redis", redis_pool_trouble(gateway->redis));
	all &= part_ready(*body, "rabbitmq", trouble);
	all &= part_ready(*body, "postgresql", lookup_trouble(gateway->lookup));
	if (gateway->stop_by_ms)
		cJSON_AddStringToObject(*body, "gateway", "stopping");
	cJSON_AddBoolToObject(*body, "ready", all);
	cJSON_AddItemToObject(*body, "warnings", weak_settings_json(&gateway->weak_settings));
	return all;
}

static void on_signal(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;

	(void)what;
	if (gateway->stop_by_ms)
		return;
	log_info("stopping", LOG_I("signal", fd),
		 LOG_I("inflight", intake_inflight(gateway->intake)),
		 LOG_I("unconfirmed", admission_unconfirmed(gateway->admission)));
	gateway->stop_by_ms = clock_monotonic_ms() + GATEWAY_FINISH_MS;
	server_stop(gateway->server);
	http_stop(gateway->http);
}

/* Whether the loop may end: all is answered, confirmed and sent, or the time for that is over. */
static int may_end(const struct gateway *gateway)
{
	if (gateway->stop_by_ms == 0)
		return 0;
	if (clock_monotonic_ms() >= gateway->stop_by_ms)
		return 1;
	return intake_inflight(gateway->intake) == 0 &&
	       admission_unconfirmed(gateway->admission) == 0 &&
	       redis_pool_is_idle(gateway->redis) && server_unsent_bytes(gateway->server) == 0 &&
	       http_sending(gateway->http) == 0;
}

static void loop(struct gateway *gateway, int publisher_fd)
{
	struct timeval tick_every = { .tv_usec = TICK_MS * 1000 };
	struct event *events[] = {
		event_new(gateway->base, SIGTERM, EV_SIGNAL | EV_PERSIST, on_signal, gateway),
		event_new(gateway->base, SIGINT, EV_SIGNAL | EV_PERSIST, on_signal, gateway),
		event_new(gateway->base, publisher_fd, EV_READ | EV_PERSIST, on_publisher, gateway),
		event_new(gateway->base, -1, EV_PERSIST, on_tick, gateway),
	};

	for (size_t i = 0; i < 4; i++) {
		check(events[i] != NULL);
		event_add(events[i], i == 3 ? &tick_every : NULL);
	}
	while (!may_end(gateway)) {
		event_base_loop(gateway->base, EVLOOP_ONCE);
		admission_flush(gateway->admission);
		redis_pool_flush(gateway->redis);
	}
	for (size_t i = 0; i < 4; i++)
		event_free(events[i]);
}

static void admission_wire(struct gateway *gateway, const struct config *config)
{
	struct waiters_port waiters_port = { gateway, port_now_ms, port_look_up_receive,
					     port_answer };
	struct admission_port admission_port = { gateway,     port_now_ms,         port_ulid_new,
						 port_send,   port_look_up_coupon, port_publish,
						 port_answer, port_report,         port_busy,
						 port_doubt };
	struct admission_limits limits = {
		.batch_receives_max = (size_t)config->batch_receives_max,
		.calls_per_coupon_max = config->calls_per_coupon_max,
		.unconfirmed_max = (size_t)config->unconfirmed_max,
		.unconfirmed_per_coupon_max = (size_t)config->unconfirmed_per_coupon_max,
		.memory_ms = config->memory_ms,
		.coupons_max = COUPONS_MAX,
	};

	gateway->waiters = waiters_new(&waiters_port, config->issued_timeout_ms);
	gateway->admission = admission_new(&admission_port, &limits, gateway->waiters);
	redis_pool_bind(gateway->redis, gateway->admission);
	gateway->weak_settings = (struct weak_settings){ .redis = gateway->redis,
							 .lookup = gateway->lookup };
	gateway->status = (struct status_parts){ gateway->redis, gateway->lookup,
						 gateway->admission };
}

int gateway_run(const struct config *config, const struct gateway_sockets *sockets)
{
	struct gateway gateway = { .base = event_base_new() };
	int publisher_fd, unfinished;

	check(gateway.base != NULL);
	gateway.arena = json_arena_new();
	gateway.redis = redis_pool_new(gateway.base, config->redis_url,
				       (size_t)config->redis_connections, config->call_timeout_ms);
	gateway.lookup = lookup_new(gateway.base, config->database_url, config->call_timeout_ms,
				    (size_t)config->lookups_max);
	gateway.publisher = publisher_new(config->amqp_url, &publisher_fd);
	admission_wire(&gateway, config);
	gateway.intake = intake_new((size_t)config->inflight_max, dispatch, &gateway);
	gateway.server = server_new(gateway.base, config, gateway.intake);
	gateway.http = http_new(gateway.base, config, gateway.intake, ready, &gateway);
	for (int i = 0; i < GATEWAY_LISTENERS_MAX; i++)
		if (sockets->api[i] >= 0)
			server_listen(gateway.server, sockets->api[i]);
	if (sockets->http >= 0)
		http_listen(gateway.http, sockets->http);
	log_info("ready", LOG_S("listen", config->listen), LOG_S("http", config->http_listen),
		 LOG_S("unix", config->unix_socket));

	loop(&gateway, publisher_fd);

	unfinished = intake_inflight(gateway.intake) > 0;
	log_info("stopped", LOG_I("inflight", intake_inflight(gateway.intake)),
		 LOG_I("unconfirmed", admission_unconfirmed(gateway.admission)));
	publisher_free(gateway.publisher, admission_unconfirmed(gateway.admission) > 0);
	if (unfinished)
		return 0; /* requests are still held by many parts: the process ends anyway */
	server_free(gateway.server);
	http_free(gateway.http);
	redis_pool_free(gateway.redis);
	lookup_free(gateway.lookup);
	admission_free(gateway.admission);
	waiters_free(gateway.waiters);
	intake_free(gateway.intake);
	json_arena_free(gateway.arena);
	event_base_free(gateway.base);
	return 0;
}

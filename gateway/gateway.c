#include "gateway/gateway.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "common/program/service_manager.h"
#include "common/program/weak_settings.h"
#include "common/rabbit/topology.h"
#include "common/redis/redis_client.h"
#include "common/serve/loop.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/admit/replicas.h"
#include "gateway/claim/claim.h"
#include "gateway/claim/code.h"
#include "gateway/claim/fair_queue.h"
#include "gateway/auth/auth.h"
#include "gateway/listen/http.h"
#include "gateway/listen/intake.h"
#include "gateway/listen/lines.h"
#include "gateway/metrics.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"
#include "gateway/read/coupons.h"
#include "gateway/read/key_records.h"
#include "gateway/read/lookup.h"
#include "gateway/read/offers.h"
#include "gateway/read/status.h"
#include "gateway/presence.h"
#include "gateway/store_checks.h"
#include "gateway/publish/use_requests.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS 250     /* between two looks at what has a time limit */
#define BUSY_TICK_MS 20 /* while something has a deadline */
#define TROUBLE_SIZE 256
#define GATHER_MS 8             /* how long requests for receives gather beside many uses */
#define COMPARISONS_N 3         /* one for each lookup */
#define REQUEST_BYTES_MAX 65536 /* of a line or body: the protocol promises it to clients */
#define COUPONS_MAX 65536       /* coupons that one process remembers */
/*
 * Commands of `status`, `coupon`, `code` and `offers` that Redis has at once: what is issued waits
 * behind them.
 */
#define REDIS_READS_MAX 128
#define SIGNALS_GIVE_UP 3 /* the third one ends the wait */
/*
 * What a listener of systemd has accepted before it was closed is served for so long: a client
 * sends its request at once, and the next process has no part in this connection.
 */
#define ACCEPTED_MS 500
#define STARTING_TEXT "this gateway has just started"

struct gateway {
	struct event_base *base;
	struct auth *auth;
	struct key_records key_records;
	struct intake *intake;
	struct lines *lines;
	struct http *http;
	struct redis_pool *redis;
	struct replicas *replicas; /* NULL: none are waited for */
	struct lookup *lookup;
	struct lookup *reads; /* what is only shown to users */
	struct lookup *codes; /* exchange codes */
	struct publisher *publisher;
	struct waiters *waiters;
	struct admission *admission;
	struct copies *copies;
	struct outbox_copies outbox;
	struct claim *claim;
	struct use_requests *uses;
	struct status_parts status;
	struct discounts discounts;
	struct catalogue *catalogue;
	struct fair_queue *queue; /* reads that wait for Redis */
	size_t reads_in_redis;
	int64_t receives_ms; /* when requests for receives were last sent to Redis */
	struct weak_settings weak_settings;
	struct comparison comparisons[COMPARISONS_N];
	struct presence presence;
	struct json_arena *arena; /* for replies of workers */
	struct reply reply;       /* that is being read */
	const struct config *config;
	size_t process;
	int listeners_stay;     /* those of systemd: they outlive the process */
	int is_closed;          /* its listeners are, and what was accepted is served */
	int signals;            /* to end, that it got */
	int64_t drain_until_ms; /* 0: not told to end */
	int64_t stop_ms;        /* when it began to finish */
	int64_t stop_by_ms;     /* 0: not stopping */
	int64_t wait_until_ms;  /* it has receives that nobody else has; 0: it does not wait */
};

/* Whether Redis is known to belong to another installation than PostgreSQL. */
static int is_foreign(const struct gateway *gateway)
{
	return gateway->comparisons[0].relation == RELATION_FOREIGN;
}

/* Why nothing can be issued, or NULL. */
static const char *issue_trouble(const struct gateway *gateway)
{
	if (is_foreign(gateway))
		return RELATION_FOREIGN_TEXT;
	if (replicas_trouble(gateway->replicas))
		return "too few replicas have what Redis has";
	return presence_may_issue(&gateway->presence, clock_monotonic_ms()) ? NULL : STARTING_TEXT;
}

static void dispatch(void *context, struct request *request)
{
	struct gateway *gateway = context;
	const char *trouble = NULL;
	char rabbitmq[TROUBLE_SIZE];

	if (request->op == OP_ISSUE || request->op == OP_CLAIM) {
		trouble = issue_trouble(gateway);
	} else if (request->op >= OP_HOLD && request->op <= OP_ROLLBACK) {
		publisher_trouble(gateway->publisher, rabbitmq, sizeof(rabbitmq));
		if (is_foreign(gateway))
			trouble = RELATION_FOREIGN_TEXT;
		else if (redis_pool_trouble(gateway->redis))
			trouble = "Redis is unreachable: nothing was done";
		else if (*rabbitmq)
			trouble = "RabbitMQ accepts no messages: nothing was done";
	}
	if (trouble) {
		request_fail(request, ANSWER_UNAVAILABLE, trouble);
		return;
	}
	switch (request->op) {
	case OP_ISSUE:
		admission_submit(gateway->admission, request);
		return;
	case OP_CLAIM:
	case OP_CODE:
		claim_submit(gateway->claim, request);
		return;
	case OP_HOLD:
	case OP_USE:
	case OP_RELEASE:
	case OP_ROLLBACK:
		use_requests_submit(gateway->uses, request);
		return;
	case OP_QUOTE:
		quote_answer(gateway->reads, request);
		return;
	case OP_STATUS:
	case OP_COUPON:
	case OP_OFFERS:
		fair_queue_submit(gateway->queue, request);
		return;
	case OP_COUPONS:
		coupons_answer(gateway->reads, request);
		return;
	case OP_PING:
		request_answer_object(request, ANSWER_OK, NULL, NULL);
		return;
	case OP_STATS: {
		cJSON *object = checked(cJSON_CreateObject());

		cJSON_AddRawToObject(object, "stats", metrics_snapshot(clock_monotonic_ms()));
		request_answer_object(request, ANSWER_OK, NULL, object);
		return;
	}
	case OP_AUTH: /* the intake's */
	case OP_COUNT:
		break;
	}
	check(0);
}

static void on_publisher(evutil_socket_t fd, short what, void *data)
{
	struct reply_message_list messages = STAILQ_HEAD_INITIALIZER(messages);
	struct batch_list confirmed = STAILQ_HEAD_INITIALIZER(confirmed);
	struct gateway *gateway = data;
	struct reply_message *message;
	struct batch *batch;

	(void)fd;
	(void)what;
	publisher_collect(gateway->publisher, &confirmed, &messages);
	while ((batch = STAILQ_FIRST(&confirmed))) {
		STAILQ_REMOVE_HEAD(&confirmed, next);
		fault_point(FAULT_GATEWAY_AFTER_CONFIRM);
		/* Its outbox entry stays: a worker removes it after the COMMIT of its receives. */
		if (batch->way == BATCH_USES) {
			use_requests_confirmed(gateway->uses, batch);
		} else {
			admission_confirmed(gateway->admission, batch);
			waiters_confirmed(gateway->waiters, &batch->ulid);
		}
		free(batch);
	}
	while ((message = STAILQ_FIRST(&messages))) {
		STAILQ_REMOVE_HEAD(&messages, next);
		if (reply_decode(gateway->arena, message->body, message->len, &gateway->reply)) {
			log_warn("outcome_message",
				 LOG_S("error",
				       "the message does not have the form that workers send"));
		} else {
			metrics_add(METRIC_OUTCOMES, (int64_t)gateway->reply.outcomes_n);
			waiters_replied(gateway->waiters, &gateway->reply);
		}
		free(message);
	}
}

/* Receives and uses whose messages RabbitMQ has not confirmed. */
static size_t unconfirmed_all(const struct gateway *gateway)
{
	return admission_unconfirmed(gateway->admission) + use_requests_unconfirmed(gateway->uses);
}

/* By a signal, or by none. */
static void stop(struct gateway *gateway, int signal)
{
	if (gateway->stop_by_ms)
		return;
	if (gateway->listeners_stay && !gateway->is_closed) {
		gateway->is_closed = 1;
		gateway->drain_until_ms = clock_monotonic_ms() + ACCEPTED_MS;
		intake_drain(gateway->intake);
		arrivals_close(intake_arrivals(gateway->intake));
		return;
	}
	log_info("stopping", LOG_I("signal", signal),
		 LOG_I("inflight", intake_inflight(gateway->intake)),
		 LOG_I("unconfirmed", unconfirmed_all(gateway)));
	gateway->stop_ms = clock_monotonic_ms();
	gateway->stop_by_ms = gateway->stop_ms + GATEWAY_FINISH_MS;
	copies_hurry(gateway->copies);
	intake_stop(gateway->intake);
	lines_stop(gateway->lines);
}

static void tick(struct gateway *gateway)
{
	int64_t now_ms = clock_monotonic_ms();

	if (gateway->drain_until_ms && now_ms >= gateway->drain_until_ms)
		stop(gateway, 0);
	waiters_tick(gateway->waiters);
	copies_tick(gateway->copies);
	intake_tick(gateway->intake, now_ms);
	key_records_tick(&gateway->key_records);
	weak_settings_tick(&gateway->weak_settings, now_ms);
	for (size_t i = 0; i < COMPARISONS_N; i++)
		if (gateway->comparisons[i].lookup)
			comparison_tick(&gateway->comparisons[i], now_ms);
	presence_tick(&gateway->presence, now_ms);
	/* While Redis is foreign nothing is decided; what waits was decided before. */
	if (*gateway->comparisons[0].copy.installation && !is_foreign(gateway))
		publisher_installation(gateway->publisher,
				       gateway->comparisons[0].copy.installation);
	claim_tick(gateway->claim, now_ms);
	catalogue_tick(gateway->catalogue, now_ms);
	metrics_set(METRIC_UNCONFIRMED, (int64_t)admission_unconfirmed(gateway->admission));
	metrics_set(METRIC_UNCOPIED, (int64_t)copies_lost(gateway->copies));
	metrics_set(METRIC_WAITING, (int64_t)waiters_count(gateway->waiters));
	metrics_set(METRIC_USES_WAITING, (int64_t)use_requests_waiting(gateway->uses));
	metrics_set(METRIC_USES_UNCONFIRMED, (int64_t)use_requests_unconfirmed(gateway->uses));
	metrics_set(METRIC_CODES_WAITING, (int64_t)claim_waiting(gateway->claim));
	metrics_set(METRIC_LOOKUPS_WAITING,
		    (int64_t)(lookup_waiting(gateway->lookup) + lookup_waiting(gateway->codes)));
	metrics_set(METRIC_READS_WAITING, (int64_t)lookup_waiting(gateway->reads));
	metrics_set(METRIC_QUEUES_DIFFERING, rabbit_topology_differing_n());
	metrics_set(METRIC_REDIS_UP, redis_pool_trouble(gateway->redis) == NULL);
}

/* Whether the next tick is urgent: there are deadlines, or a service is connected anew. */
static int is_busy(const struct gateway *gateway)
{
	for (size_t i = 0; i < COMPARISONS_N; i++)
		if (gateway->comparisons[i].lookup && comparison_is_due(&gateway->comparisons[i]))
			return 1;
	return gateway->stop_by_ms || waiters_count(gateway->waiters) > 0 ||
	       unconfirmed_all(gateway) > 0 || use_requests_waiting(gateway->uses) > 0 ||
	       claim_waiting(gateway->claim) > 0 || catalogue_is_busy(gateway->catalogue) ||
	       presence_is_busy(&gateway->presence, clock_monotonic_ms());
}

static int on_busy_tick(void *context)
{
	tick(context);
	return is_busy(context);
}

/* Says how the part is, and lists one that is not well. */
static void part_tell(cJSON *body, const char *part, const char *trouble)
{
	int is_well = !trouble || !*trouble;

	cJSON_AddStringToObject(body, part, is_well ? "ok" : trouble);
	if (!is_well)
		cJSON_AddItemToArray(cJSON_GetObjectItem(body, "degraded"),
				     checked(cJSON_CreateString(part)));
}

/*
 * Ready is a gateway that can issue: without PostgreSQL it does, and without RabbitMQ for a while.
 * Were it not, a balancer would take all gateways out together.
 */
static int ready(void *context, cJSON **body)
{
	struct gateway *gateway = context;
	const char *redis = redis_pool_issue_trouble(gateway->redis), *own;
	char trouble[TROUBLE_SIZE];
	cJSON *warnings;

	/* Why it gets no new clients, or NULL. */
	if (gateway->wait_until_ms)
		own = "stopping, but neither RabbitMQ nor Redis has all receives that it accepted";
	else if (gateway->stop_by_ms)
		own = "stopping";
	else if (gateway->drain_until_ms)
		own = "draining";
	else if ((int64_t)admission_unconfirmed(gateway->admission) >=
		 gateway->config->unconfirmed_max)
		own = "COUPON_UNCONFIRMED_MAX receives are not confirmed by RabbitMQ";
	else if (!auth_can_judge(gateway->auth, clock_monotonic_ms()))
		own = KEYS_UNTOLD_TEXT;
	else
		own = issue_trouble(gateway);

	*body = checked(cJSON_CreateObject());
	cJSON_AddBoolToObject(*body, "ready", !redis && !own);
	checked(cJSON_AddArrayToObject(*body, "degraded"));
	publisher_trouble(gateway->publisher, trouble, sizeof(trouble));
	part_tell(*body, "redis", redis);
	if (gateway->replicas)
		part_tell(*body, "replicas", replicas_trouble(gateway->replicas));
	part_tell(*body, "rabbitmq", trouble);
	part_tell(*body, "postgresql", lookup_trouble(gateway->lookup));
	if (lookup_trouble(gateway->reads))
		part_tell(*body, "reads", lookup_trouble(gateway->reads));
	if (lookup_trouble(gateway->codes))
		part_tell(*body, "codes", lookup_trouble(gateway->codes));
	if (own)
		part_tell(*body, "gateway", own);
	warnings = checked(cJSON_AddArrayToObject(*body, "warnings"));
	intake_warnings(gateway->intake, warnings);
	durability_warnings(&gateway->weak_settings.durability, warnings);
	transport_warnings(warnings);
	rabbit_topology_warnings(warnings);
	claim_warnings(gateway->claim, warnings);
	return !redis && !own;
}

/* Returns 1: there is always something to look after. */
static int on_tick(void *context)
{
	const struct gateway *gateway = context;
	int64_t now_ms = clock_monotonic_ms();
	char status[SERVICE_STATUS_SIZE];
	cJSON *body;
	int is_ready;

	tick(context);
	is_ready = ready(context, &body);
	metrics_set(METRIC_PROCESSES, 1);
	metrics_set(METRIC_REPLICAS_WANTED, gateway->config->redis_replicas);
	metrics_set(METRIC_PROCESSES_READY, is_ready);
	if (gateway->config->processes > 1) {
		service_turned(gateway->process, is_ready);
	} else if (service_is_due(now_ms)) {
		const cJSON *part;
		int len = snprintf(status, SERVICE_STATUS_SIZE, is_ready ? "ready" : "not ready");

		/* The body of /readyz in a line: "ready; rabbitmq: not connected". */
		cJSON_ArrayForEach(part, cJSON_GetObjectItem(body, "degraded"))
		{
			if (len < SERVICE_STATUS_SIZE)
				len += snprintf(status + len, SERVICE_STATUS_SIZE - (size_t)len,
						"; %s: %s", part->valuestring,
						cJSON_GetObjectItem(body, part->valuestring)
							->valuestring);
		}
		service_tell(now_ms, is_ready, 1, status);
	}
	cJSON_Delete(body);
	return 1;
}

static void on_signal(evutil_socket_t signal, short what, void *data)
{
	struct gateway *gateway = data;
	int64_t drain_s = gateway->config->drain_s;

	(void)what;
	if (signal == SIGHUP) {
		if (gateway->config->processes == 1)
			service_reloading();
		intake_reload(gateway->intake);
		if (gateway->config->processes == 1)
			service_reloaded();
		else
			service_loop_reloaded(gateway->process);
		return;
	}
	if (signal == GATEWAY_GIVE_UP) {
		gateway->signals = SIGNALS_GIVE_UP;
		return;
	}
	if (signal == GATEWAY_FINISH) {
		gateway->drain_until_ms = clock_monotonic_ms();
		stop(gateway, signal);
		return;
	}

	/* SIGTERM or SIGINT */
	if (gateway->drain_until_ms) {
		if (gateway->config->processes > 1)
			return;
		stop(gateway, signal);
		gateway->signals++;
		return;
	}
	gateway->signals = 1;
	gateway->drain_until_ms = clock_monotonic_ms() + drain_s * 1000;
	if (gateway->config->processes == 1)
		service_stopping(gateway_stop_ms(gateway->config), "stopping");
	if (drain_s == 0) {
		stop(gateway, signal);
		return;
	}
	log_info("draining", LOG_I("signal", signal), LOG_I("seconds", drain_s));
	intake_drain(gateway->intake);
}

/* Names each receive of a batch that nobody has any more. */
static void lost_log(void *context, const struct copy *copy)
{
	struct gateway *gateway = context;
	struct message *message = checked(malloc(sizeof(*message)));
	char text[RECEIVE_SIZE];
	const char *error;

	if (message_decode(gateway->arena, copy->body, copy->body_len, message, &error))
		message->receives_n = 0;
	for (size_t i = 0; i < message->receives_n; i++) {
		const struct receive receive = { .coupon = copy->coupon,
						 .user = message->receives[i].user,
						 .batch = copy->batch,
						 .index = (int)i };

		receive_format(&receive, text);
		log_each(LOG_LEVEL_ERROR, "receive_lost",
			 (struct log_field[]){ LOG_S("receive", text), { 0 } });
	}
	free(message);
}

/*
 * Whether the process has receives that were accepted, and that neither RabbitMQ nor Redis is known
 * to have: it waits for one of the two, as long as it may.
 */
static int must_wait(struct gateway *gateway, int64_t now_ms)
{
	size_t receives = copies_unsafe(gateway->copies, gateway->stop_ms, NULL, NULL);

	if (receives == 0) {
		if (gateway->wait_until_ms)
			log_info("waited", LOG_S("why", "RabbitMQ or Redis has all receives"));
		gateway->wait_until_ms = 0;
		return 0;
	}
	if (gateway->wait_until_ms == 0) {
		gateway->wait_until_ms = now_ms + gateway->config->stop_wait_s * 1000;
		log_warn("waiting", LOG_I("receives", receives),
			 LOG_I("seconds", gateway->config->stop_wait_s),
			 LOG_S("why", "neither RabbitMQ nor Redis has these receives"));
	}
	if (now_ms < gateway->wait_until_ms && gateway->signals < SIGNALS_GIVE_UP)
		return 1;
	log_error("receives_lost", LOG_I("receives", receives),
		  LOG_S("why", gateway->signals < SIGNALS_GIVE_UP
				       ? "the time COUPON_STOP_WAIT_S has passed"
				       : "a signal ended the wait"));
	copies_unsafe(gateway->copies, gateway->stop_ms, lost_log, gateway);
	return 0;
}

/*
 * Whether the loop may end: everything is answered, confirmed and sent, or the time limit is
 * reached; and what was accepted is in a store.
 */
static int may_end(struct gateway *gateway)
{
	int64_t now_ms = clock_monotonic_ms();
	int is_finished;

	if (gateway->stop_by_ms == 0)
		return 0;
	if (gateway->presence.leave_ms)
		return presence_leave(&gateway->presence, now_ms);
	is_finished = intake_inflight(gateway->intake) == 0 && unconfirmed_all(gateway) == 0 &&
		      redis_pool_is_idle(gateway->redis) && intake_held_bytes(gateway->intake) == 0;
	if (!is_finished && (now_ms < gateway->stop_by_ms || must_wait(gateway, now_ms)))
		return 0;
	return presence_leave(&gateway->presence, now_ms);
}

static void loop(struct gateway *gateway, int publisher_fd)
{
	static const int signals[] = { SIGTERM, SIGINT, GATEWAY_FINISH, GATEWAY_GIVE_UP, SIGHUP };
	struct ticker *ticker = ticker_new(gateway->base, TICK_MS, on_tick, gateway);
	struct ticker *busy_ticker = ticker_new(gateway->base, BUSY_TICK_MS, on_busy_tick, gateway);
	struct request *request;
	int64_t now_ms;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		event_add(checked(event_new(gateway->base, signals[i], EV_SIGNAL | EV_PERSIST,
					    on_signal, gateway)),
			  NULL);
	event_add(checked(event_new(gateway->base, publisher_fd, EV_READ | EV_PERSIST, on_publisher,
				    gateway)),
		  NULL);
	ticker_start(ticker);
	while (!may_end(gateway)) {
		event_base_loop(gateway->base, EVLOOP_ONCE);
		claim_flush(gateway->claim);
		use_requests_flush(gateway->uses);

		/* Redis gets of the reads that wait for it as many as it may have. */
		while (gateway->reads_in_redis < REDIS_READS_MAX &&
		       (request = fair_queue_take(gateway->queue))) {
			if (request->op == OP_OFFERS) {
				offers_answer(&gateway->status, gateway->catalogue, request);
				continue;
			}
			gateway->reads_in_redis++;
			if (request->op == OP_CODE)
				code_answer(&gateway->status, request);
			else
				status_answer(&gateway->status, request);
		}

		/*
		 * Beside many uses requests for receives gather for GATHER_MS: a call of Redis
		 * costs about the same with one of them as with several. Uses have deadlines, so
		 * there is another turn within BUSY_TICK_MS.
		 */
		now_ms = clock_monotonic_ms();
		if (!use_requests_are_full(gateway->uses) ||
		    now_ms - gateway->receives_ms >= GATHER_MS) {
			gateway->receives_ms = now_ms;
			admission_flush(gateway->admission);
		}

		presence_flush(&gateway->presence);
		gateway->key_records.watch->is_foreign = is_foreign(gateway);
		key_records_flush(&gateway->key_records);
		redis_pool_flush(gateway->redis);
		if (gateway->replicas)
			replicas_flush(gateway->replicas);
		if (is_busy(gateway))
			ticker_start(busy_ticker);
	}
}

/* The ports of admission and of the waiters */

static void port_ulid_new(struct ulid *ulid)
{
	ulid_new(ulid, clock_wall_ms());
}

static void port_answer(struct request *request, const struct result *result)
{
	claim_answered(request, result->answer);
	metrics_issue_time(clock_monotonic_us() - request->begun_us);
	request_answer(request, result);
}

/* What Redis alone has is answered when replicas have it. */
static void port_answer_decided(void *context, struct request *request, const struct result *result)
{
	struct gateway *gateway = context;

	if (gateway->replicas && result->answer == ANSWER_OK)
		replicas_hold(gateway->replicas, redis_pool_decided_by(gateway->redis),
			      &(struct held){ .request = request, .result = *result });
	else
		port_answer(request, result);
}

/* A coupon that is being looked up for admission. */
struct coupon_ticket {
	struct admission *admission;
	int64_t coupon;
};

static void on_coupon_rows(void *context, const PGresult *rows)
{
	struct coupon_ticket *ticket = context;
	int is_published;
	enum answer answer = coupon_row_answer(rows, ticket->coupon, &is_published);

	admission_looked_up(ticket->admission, ticket->coupon, answer, is_published);
	free(ticket);
}

static void port_look_up_coupon(void *context, int64_t coupon)
{
	struct gateway *gateway = context;
	struct coupon_ticket *ticket = checked(malloc(sizeof(*ticket)));

	*ticket = (struct coupon_ticket){ gateway->admission, coupon };
	if (lookup_ask(gateway->lookup, LOOKUP_COUPON, POSTGRES_ARGUMENTS(postgres_number(coupon)),
		       on_coupon_rows, ticket)) {
		free(ticket);
		admission_looked_up(gateway->admission, coupon, ANSWER_BUSY, 0);
	}
}

static void on_receive_outcome(void *context, const PGresult *rows, int row, int n)
{
	enum outcome_state state = OUTCOME_UNKNOWN;
	const char *reason = NULL;

	if (n > 0) {
		state = strcmp(column_text(rows, row, "state"), "issued") == 0 ? OUTCOME_ISSUED
									       : OUTCOME_REJECTED;
		reason = reason_known(column_text(rows, row, "reason"));
	}
	waiters_looked_up(context, state, reason);
}

static void port_look_up_receive(void *lookup, const struct receive *receive, struct waiter *waiter)
{
	if (lookup_receive(lookup, LOOKUP_ISSUED, receive, on_receive_outcome, waiter))
		waiters_looked_up(waiter, OUTCOME_UNKNOWN, NULL);
}

static void port_answer_use(void *context, struct request *request,
			    const struct use_outcome *outcomes, size_t n)
{
	const struct gateway *gateway = context;

	use_requests_answer(gateway->uses, request, outcomes, n);
}

static void gateway_open(struct gateway *gateway, const struct config *config, size_t process,
			 int *publisher_fd)
{
	struct admission_port admission_port = { .now_ms = clock_monotonic_ms,
						 .ulid_new = port_ulid_new,
						 .room = redis_pool_room,
						 .send = redis_pool_send,
						 .ask = redis_pool_ask,
						 .presence = &gateway->presence,
						 .report = presence_report,
						 .lookup = gateway,
						 .look_up = port_look_up_coupon,
						 .publish = publisher_submit,
						 .answering = gateway,
						 .answer = port_answer_decided,
						 .busy = doubt_busy,
						 .doubt = doubt_until };
	struct waiters_port waiters_port = { .now_ms = clock_monotonic_ms,
					     .look_up = port_look_up_receive,
					     .answer = port_answer,
					     .uses = gateway,
					     .answer_use = port_answer_use };
	struct use_requests_port uses_port = { .now_ms = clock_monotonic_ms,
					       .wall_ms = clock_wall_ms,
					       .publish = publisher_submit };

	*gateway = (struct gateway){ .base = checked(event_base_new()),
				     .arena = json_arena_new(),
				     .config = config };

	/* The connections to the stores. */
	gateway->redis = redis_pool_new(gateway->base, config);
	master_lease_keep(config->redis_url);
	gateway->lookup = lookup_new(gateway->base, config, LOOKUP_DECIDING);
	gateway->codes = lookup_new(gateway->base, config, LOOKUP_CODES);
	gateway->reads = lookup_new(gateway->base, config, LOOKUP_SHOWING);
	gateway->publisher = publisher_new(config->amqp_url, publisher_fd);
	gateway->replicas = replicas_new(gateway->base, config);

	/* Decisions */
	waiters_port.lookup = gateway->lookup;
	uses_port.publisher = admission_port.publisher = gateway->publisher;
	admission_port.redis = gateway->redis;
	gateway->outbox = (struct outbox_copies){ .redis = gateway->redis,
						  .replicas = gateway->replicas,
						  .comparison = &gateway->comparisons[0] };
	gateway->copies = outbox_copies_new(&gateway->outbox);
	gateway->waiters = waiters_new(&waiters_port, config->issued_timeout_ms);
	gateway->uses = use_requests_new(&uses_port, config, gateway->waiters);
	gateway->admission = admission_new(&admission_port, config, COUPONS_MAX, gateway->waiters,
					   gateway->copies);
	gateway->queue = fair_queue_new((size_t)config->inflight_max);
	gateway->claim = claim_new(config, gateway->codes, gateway->admission, gateway->queue);
	redis_pool_bind(gateway->redis, gateway->admission);

	/* Reads */
	gateway->discounts.reads = gateway->reads;
	gateway->catalogue = catalogue_new(gateway->lookup);
	gateway->status = (struct status_parts){ .redis = gateway->redis,
						 .replicas = gateway->replicas,
						 .lookup = gateway->lookup,
						 .reads = gateway->reads,
						 .discounts = &gateway->discounts,
						 .admission = gateway->admission,
						 .in_redis = &gateway->reads_in_redis };
	gateway->auth = auth_new(config);

	/* What the gateway and the stores know of each other. A replica is not compared. */
	gateway->comparisons[0].lookup = gateway->lookup;
	gateway->comparisons[0].is_first = 1;
	gateway->comparisons[1].lookup = gateway->codes;
	gateway->comparisons[2].lookup = *config->database_read_url ? NULL : gateway->reads;
	for (size_t i = 0; i < COMPARISONS_N; i++)
		gateway->comparisons[i].redis = gateway->redis;
	gateway->presence = (struct presence){ .redis = gateway->redis,
					       .lookup = gateway->lookup,
					       .admission = gateway->admission,
					       .copies = gateway->copies,
					       .key_watch = auth_key_watch(gateway->auth),
					       .claim = gateway->claim,
					       .catalogue = gateway->catalogue,
					       .comparison = &gateway->comparisons[0] };
	presence_init(&gateway->presence, config->listen, process);
	gateway->weak_settings = (struct weak_settings){
		.redis = gateway->redis,
		.has_sentinels = redis_url_has_sentinels(config->redis_url),
		.lookup = gateway->lookup,
		.durability = { .is_acknowledged = durability_is_acknowledged(config) }
	};

	/* Clients, and who they are. */
	gateway->intake = intake_new(gateway->base, config, gateway->auth, dispatch, gateway);
	gateway->key_records = (struct key_records){ .redis = gateway->redis,
						     .lookup = gateway->lookup,
						     .intake = gateway->intake,
						     .watch = auth_key_watch(gateway->auth) };
	key_records_init(&gateway->key_records);
	gateway->lines = lines_new(gateway->base, config, gateway->intake, REQUEST_BYTES_MAX);
	gateway->http = http_new(gateway->base, config, gateway->intake, REQUEST_BYTES_MAX, ready,
				 gateway);
}

static void accept_pause_count(void)
{
	metrics_add(METRIC_ACCEPT_PAUSES, 1);
}

int64_t gateway_stop_ms(const struct config *config)
{
	return (config->drain_s + config->stop_wait_s) * 1000 + GATEWAY_FINISH_MS +
	       GATEWAY_STOP_GRACE_MS;
}

void gateway_run(const struct config *config, const struct gateway_sockets *sockets, size_t process)
{
	static struct gateway gateway; /* what it has is freed with the process */
	struct arrivals_listener listener = { .take = lines_accept };
	struct arrivals *arrivals;
	int publisher_fd;

	gateway_open(&gateway, config, process, &publisher_fd);
	gateway.process = process;
	gateway.listeners_stay = sockets->are_given;

	listener_on_pause(accept_pause_count);
	arrivals = intake_arrivals(gateway.intake);
	listener.context = gateway.lines;
	for (int i = 0; i < GATEWAY_LISTENERS_MAX; i++) {
		listener.fd = sockets->api[i];
		listener.protocol = i == 0 ? "couponmq" : NULL;
		if (listener.fd >= 0)
			arrivals_listen(arrivals, &listener);
	}
	listener = (struct arrivals_listener){ .fd = sockets->http,
					       .protocol = "http/1.1",
					       .has_reserve = 1,
					       .take = http_accept,
					       .context = gateway.http };
	if (listener.fd >= 0)
		arrivals_listen(arrivals, &listener);
	/* The listeners have copies. That of the Unix socket ends with its path. */
	close(sockets->api[0]);
	close(sockets->http);

	log_info("ready", LOG_S("listen", config->listen), LOG_S("http", config->http_listen),
		 LOG_S("unix", config->unix_socket));
	loop(&gateway, publisher_fd);
	log_info("stopped", LOG_I("inflight", intake_inflight(gateway.intake)),
		 LOG_I("unconfirmed", unconfirmed_all(&gateway)));

	publisher_free(gateway.publisher, unconfirmed_all(&gateway) > 0);
	lookup_close(gateway.lookup);
	lookup_close(gateway.reads);
	lookup_close(gateway.codes);
}

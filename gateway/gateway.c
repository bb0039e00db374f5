#include "gateway/gateway.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "common/program/transport.h"
#include "common/rabbit/topology.h"
#include "common/redis/master_lease.h"
#include "common/serve/loop.h"
#include "coupon/restore.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/admit/replicas.h"
#include "gateway/gate/gate.h"
#include "gateway/listen/http.h"
#include "gateway/listen/intake.h"
#include "gateway/listen/lines.h"
#include "gateway/metrics.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"
#include "gateway/read/coupons.h"
#include "gateway/read/key_records.h"
#include "gateway/read/lookup.h"
#include "gateway/read/status.h"
#include "gateway/claim/fair_queue.h"
#include "gateway/claim/claim.h"
#include "gateway/stores.h"
#include "gateway/use/quote.h"
#include "gateway/use/uses.h"

#include "embed.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS 250     /* of what the gateway looks after by itself */
#define BUSY_TICK_MS 20 /* while something has a deadline */
#define TROUBLE_SIZE 256
#define GATHER_MS 8       /* of requests for receives, beside many uses */
#define COMPARISONS_N 3   /* one for each lookup */
#define COUPONS_MAX 65536 /* coupons that one process remembers */
/* `status` and `coupon` that Redis has at once: what is issued waits behind them. */
#define REDIS_READS_MAX 128
#define SIGNALS_GIVE_UP 3 /* the third one ends the wait */
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
	struct lookup *reads; /* of what is only shown to users */
	struct lookup *codes; /* of exchange codes */
	struct publisher *publisher;
	struct waiters *waiters;
	struct admission *admission;
	struct copies *copies;
	struct claim *claim;
	struct uses *uses;
	struct status_parts status;
	struct offers offers;
	struct fair_queue *queue; /* reads that wait for Redis */
	size_t reads_in_redis;
	int64_t receives_ms; /* when requests for receives were last sent to Redis */
	struct weak_settings weak_settings;
	struct comparison comparisons[COMPARISONS_N];
	struct known known;
	struct json_arena *arena; /* for replies of workers */
	struct reply reply;       /* that is being read */
	const struct config *config;
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

/* Sends to Redis what waits for it, as much as it may have. */
static void reads_flush(struct gateway *gateway)
{
	struct request *request;

	while (gateway->reads_in_redis < REDIS_READS_MAX &&
	       (request = fair_queue_take(gateway->queue))) {
		gateway->reads_in_redis++;
		status_answer(&gateway->status, request);
	}
}

/*
 * Beside many uses requests gather for GATHER_MS: a call of Redis costs about the same with one of
 * them as with several. Uses have deadlines, so there is another turn within BUSY_TICK_MS.
 */
static void receives_flush(struct gateway *gateway)
{
	int64_t now_ms = clock_monotonic_ms();

	if (uses_are_full(gateway->uses) && now_ms - gateway->receives_ms < GATHER_MS)
		return;
	gateway->receives_ms = now_ms;
	admission_flush(gateway->admission);
}

/* Why nothing can be issued, or NULL. */
static const char *issue_trouble(const struct gateway *gateway)
{
	if (is_foreign(gateway))
		return RELATION_FOREIGN_TEXT;
	if (replicas_trouble(gateway->replicas))
		return "too few replicas have what Redis has";
	return known_may_issue(&gateway->known, clock_monotonic_ms()) ? NULL : STARTING_TEXT;
}

/* Why a use would not be executed at present, or NULL. */
static const char *use_trouble(const struct gateway *gateway)
{
	char trouble[TROUBLE_SIZE];

	if (is_foreign(gateway))
		return RELATION_FOREIGN_TEXT;
	if (redis_pool_trouble(gateway->redis))
		return "Redis is unreachable: nothing was done";
	publisher_trouble(gateway->publisher, trouble, sizeof(trouble));
	return *trouble ? "RabbitMQ takes no messages: nothing was done" : NULL;
}

static void dispatch(void *context, struct request *request)
{
	struct gateway *gateway = context;
	const char *trouble = NULL;

	if (request->op == OP_ISSUE || request->op == OP_CLAIM)
		trouble = issue_trouble(gateway);
	else if (request->op >= OP_HOLD && request->op <= OP_ROLLBACK)
		trouble = use_trouble(gateway);
	if (trouble) {
		request_fail(request, ANSWER_UNAVAILABLE, trouble);
		return;
	}
	switch (request->op) {
	case OP_ISSUE:
		admission_submit(gateway->admission, request);
		return;
	case OP_CLAIM:
		claim_submit(gateway->claim, request);
		return;
	case OP_HOLD:
	case OP_USE:
	case OP_RELEASE:
	case OP_ROLLBACK:
		uses_submit(gateway->uses, request);
		return;
	case OP_QUOTE:
		quote_answer(gateway->reads, request);
		return;
	case OP_STATUS:
	case OP_COUPON:
		request = fair_queue_add(gateway->queue, request);
		if (request)
			request_fail(request, ANSWER_BUSY, NULL);
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
			uses_confirmed(gateway->uses, batch);
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
				 LOG_S("error", "not of the form that workers send"));
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
	return admission_unconfirmed(gateway->admission) + uses_unconfirmed(gateway->uses);
}

/* By a signal, or by none. */
static void stop(struct gateway *gateway, int signal)
{
	if (gateway->stop_by_ms)
		return;
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
	if (!is_foreign(gateway))
		key_records_tick(&gateway->key_records, now_ms);
	weak_settings_tick(&gateway->weak_settings, now_ms);
	for (size_t i = 0; i < COMPARISONS_N; i++)
		if (gateway->comparisons[i].lookup)
			comparison_tick(&gateway->comparisons[i], now_ms);
	known_tick(&gateway->known, now_ms);
	/* While Redis is foreign nothing is decided; what waits was decided before. */
	if (*gateway->comparisons[0].copy.installation && !is_foreign(gateway))
		publisher_installation(gateway->publisher,
				       gateway->comparisons[0].copy.installation);
	claim_tick(gateway->claim, now_ms);
	metrics_set(METRIC_UNCONFIRMED, (int64_t)admission_unconfirmed(gateway->admission));
	metrics_set(METRIC_UNCOPIED, (int64_t)copies_lost(gateway->copies));
	metrics_set(METRIC_WAITING, (int64_t)waiters_count(gateway->waiters));
	metrics_set(METRIC_USES_WAITING, (int64_t)uses_waiting(gateway->uses));
	metrics_set(METRIC_USES_UNCONFIRMED, (int64_t)uses_unconfirmed(gateway->uses));
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
	       unconfirmed_all(gateway) > 0 || uses_waiting(gateway->uses) > 0 ||
	       claim_waiting(gateway->claim) > 0 ||
	       known_is_busy(&gateway->known, clock_monotonic_ms());
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

/* Why it gets no new clients, or NULL. */
static const char *gateway_trouble(const struct gateway *gateway)
{
	if (gateway->stop_by_ms)
		return "stopping";
	if (gateway->drain_until_ms)
		return "draining";
	if ((int64_t)admission_unconfirmed(gateway->admission) >= gateway->config->unconfirmed_max)
		return "COUPON_UNCONFIRMED_MAX receives are not confirmed by RabbitMQ";
	if (!auth_can_judge(gateway->auth, clock_monotonic_ms()))
		return "neither Redis nor PostgreSQL tells of API keys";
	return issue_trouble(gateway);
}

/*
 * Ready is a gateway that can issue: without PostgreSQL it does, and without RabbitMQ for a while.
 * Were it not, a balancer would take all gateways out together.
 */
static int ready(void *context, cJSON **body)
{
	struct gateway *gateway = context;
	const char *redis = redis_pool_issue_trouble(gateway->redis),
		   *own = gateway_trouble(gateway);
	char trouble[TROUBLE_SIZE];
	cJSON *warnings;

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
	cJSON *body;

	tick(context);
	metrics_set(METRIC_PROCESSES, 1);
	metrics_set(METRIC_REPLICAS_WANTED, gateway->config->redis_replicas);
	metrics_set(METRIC_PROCESSES_READY, ready(context, &body));
	cJSON_Delete(body);
	return 1;
}

static void on_signal(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;
	int64_t drain_s = gateway->config->drain_s;

	(void)what;
	if (gateway->drain_until_ms) {
		if (gateway->config->processes > 1)
			return;
		stop(gateway, fd);
		gateway->signals++;
		return;
	}
	gateway->signals = 1;
	gateway->drain_until_ms = clock_monotonic_ms() + drain_s * 1000;
	if (drain_s == 0) {
		stop(gateway, fd);
		return;
	}
	log_info("draining", LOG_I("signal", fd), LOG_I("seconds", drain_s));
	intake_drain(gateway->intake);
}

static void on_finish(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;

	(void)what;
	gateway->drain_until_ms = clock_monotonic_ms();
	stop(gateway, fd);
}

static void on_give_up(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;

	(void)fd;
	(void)what;
	gateway->signals = SIGNALS_GIVE_UP;
}

static void on_hangup(evutil_socket_t fd, short what, void *data)
{
	struct gateway *gateway = data;

	(void)fd;
	(void)what;
	intake_reload(gateway->intake);
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
			 LOG_S("why", "neither RabbitMQ nor Redis has them"));
	}
	if (now_ms < gateway->wait_until_ms && gateway->signals < SIGNALS_GIVE_UP)
		return 1;
	log_error("receives_lost", LOG_I("receives", receives),
		  LOG_S("why", gateway->signals < SIGNALS_GIVE_UP ? "COUPON_STOP_WAIT_S is over"
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
	if (gateway->known.leave_ms)
		return known_leave(&gateway->known, now_ms);
	is_finished = intake_inflight(gateway->intake) == 0 && unconfirmed_all(gateway) == 0 &&
		      redis_pool_is_idle(gateway->redis) && intake_held_bytes(gateway->intake) == 0;
	if (!is_finished && (now_ms < gateway->stop_by_ms || must_wait(gateway, now_ms)))
		return 0;
	return known_leave(&gateway->known, now_ms);
}

static void event_begin(struct gateway *gateway, int fd, short what, event_callback_fn callback)
{
	event_add(checked(event_new(gateway->base, fd, what | EV_PERSIST, callback, gateway)),
		  NULL);
}

static void loop(struct gateway *gateway, int publisher_fd)
{
	struct ticker *ticker = ticker_new(gateway->base, TICK_MS, on_tick, gateway);
	struct ticker *busy_ticker = ticker_new(gateway->base, BUSY_TICK_MS, on_busy_tick, gateway);

	event_begin(gateway, SIGTERM, EV_SIGNAL, on_signal);
	event_begin(gateway, SIGINT, EV_SIGNAL, on_signal);
	event_begin(gateway, GATEWAY_FINISH, EV_SIGNAL, on_finish);
	event_begin(gateway, GATEWAY_GIVE_UP, EV_SIGNAL, on_give_up);
	event_begin(gateway, SIGHUP, EV_SIGNAL, on_hangup);
	event_begin(gateway, publisher_fd, EV_READ, on_publisher);
	ticker_start(ticker);
	while (!may_end(gateway)) {
		event_base_loop(gateway->base, EVLOOP_ONCE);
		claim_flush(gateway->claim);
		uses_flush(gateway->uses);
		reads_flush(gateway);
		receives_flush(gateway);
		known_flush(&gateway->known);
		key_records_flush(&gateway->key_records, !is_foreign(gateway));
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
		replicas_hold(gateway->replicas, redis_pool_decided_by(gateway->redis), request,
			      result);
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

	uses_answer(gateway->uses, request, outcomes, n);
}

/* What Redis is asked, or told, of a coupon with unconfirmed batches. */
struct copy_ticket {
	struct gateway *gateway;
	struct copies_coupon *asked;
	char run_id[REDIS_RUN_ID_SIZE];
	int is_look;
	struct copies_look look;
	enum copies_result result;
};

static void copy_end(struct copy_ticket *ticket, int is_replied)
{
	struct copies *copies = ticket->gateway->copies;

	if (ticket->is_look)
		copies_looked(copies, ticket->asked, ticket->run_id,
			      is_replied ? &ticket->look : NULL);
	else
		copies_written(copies, ticket->asked, ticket->result);
	free(ticket);
}

static void on_copy_replicated(void *context, int is_replicated)
{
	struct copy_ticket *ticket = context;

	ticket->look.is_alone = !is_replicated;
	if (!is_replicated)
		ticket->result = COPIES_ALONE;
	copy_end(ticket, 1);
}

/* What Redis alone has counts when its replicas have it. */
static void copy_replied(struct copy_ticket *ticket)
{
	if (ticket->gateway->replicas)
		replicas_hold_call(ticket->gateway->replicas, ticket->run_id, on_copy_replicated,
				   ticket);
	else
		copy_end(ticket, 1);
}

static void on_look(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	if (restore_look_take(&ticket->look, reply))
		copy_end(ticket, 0);
	else
		copy_replied(ticket);
}

static void on_written(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	ticket->result = restore_result_take(reply);
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_restore", LOG_S("error", reply->str));
	if (ticket->result == COPIES_WRITTEN && reply->type == REDIS_REPLY_INTEGER)
		metrics_add(METRIC_RESTORED, reply->integer);
	if (ticket->result == COPIES_WRITTEN)
		copy_replied(ticket);
	else
		copy_end(ticket, 1);
}

static struct copy_ticket *copy_ticket_new(struct gateway *gateway, struct copies_coupon *asked,
					   const struct redis_link *link)
{
	struct copy_ticket *ticket = checked(calloc(1, sizeof(*ticket)));

	ticket->gateway = gateway;
	ticket->asked = asked;
	if (link)
		snprintf(ticket->run_id, sizeof(ticket->run_id), "%s", redis_link_run_id(link));
	return ticket;
}

/* A Redis of others is neither asked nor told. */
static struct redis_link *copy_link(struct gateway *gateway)
{
	return known_may_report(&gateway->known) ? redis_pool_pick(gateway->redis) : NULL;
}

static void port_look(void *context, struct copies_coupon *asked, int64_t coupon)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { RESTORE_LOOK_WORDS(coupon_key(coupon, COUPON_KEY_COUPON, key)) };
	struct redis_link *link = copy_link(context);
	struct copy_ticket *ticket = copy_ticket_new(context, asked, link);

	ticket->is_look = 1;
	redis_pool_query(link, RESTORE_LOOK_WORDS_N, argv, on_look, ticket);
}

static void port_write(void *context, struct copies_coupon *asked, int64_t coupon,
		       const struct copy *const *messages, size_t n)
{
	struct redis_link *link = copy_link(context);
	struct copy_ticket *ticket = copy_ticket_new(context, asked, link);
	struct restore_command command;

	restore_command_make(&command, coupon, lua_restore, messages, n);
	if (!link ||
	    redis_link_command(link, command.n, command.words, command.lengths, on_written, ticket))
		on_written(ticket, NULL);
}

static void deciders_make(struct gateway *gateway, const struct config *config)
{
	const struct waiters_port waiters_port = { .now_ms = clock_monotonic_ms,
						   .lookup = gateway->lookup,
						   .look_up = port_look_up_receive,
						   .answer = port_answer,
						   .uses = gateway,
						   .answer_use = port_answer_use };
	const struct uses_port uses_port = { .now_ms = clock_monotonic_ms,
					     .wall_ms = clock_wall_ms,
					     .publisher = gateway->publisher,
					     .publish = publisher_submit };
	const struct admission_port admission_port = { .now_ms = clock_monotonic_ms,
						       .ulid_new = port_ulid_new,
						       .redis = gateway->redis,
						       .room = redis_pool_room,
						       .send = redis_pool_send,
						       .ask = redis_pool_ask,
						       .known = &gateway->known,
						       .report = known_report,
						       .lookup = gateway,
						       .look_up = port_look_up_coupon,
						       .publisher = gateway->publisher,
						       .publish = publisher_submit,
						       .answering = gateway,
						       .answer = port_answer_decided,
						       .busy = doubt_busy,
						       .doubt = doubt_until };

	const struct copies_port copies_port = { .now_ms = clock_monotonic_ms,
						 .look = port_look,
						 .write = port_write,
						 .context = gateway };

	gateway->copies = copies_new(&copies_port);
	gateway->waiters = waiters_new(&waiters_port, config->issued_timeout_ms);
	gateway->uses = uses_new(&uses_port, config, gateway->waiters);
	gateway->admission = admission_new(&admission_port, config, COUPONS_MAX, gateway->waiters,
					   gateway->copies);
	gateway->claim = claim_new(config, gateway->codes, gateway->admission);
	redis_pool_bind(gateway->redis, gateway->admission);
}

static void comparisons_make(struct gateway *gateway, const struct config *config)
{
	struct lookup *const lookups[COMPARISONS_N] = {
		gateway->lookup,
		gateway->codes,
		*config->database_read_url ? NULL : gateway->reads,
	};

	for (size_t i = 0; i < COMPARISONS_N; i++)
		gateway->comparisons[i] = (struct comparison){ .redis = gateway->redis,
							       .lookup = lookups[i],
							       .is_first = i == 0 };
}

static void gateway_open(struct gateway *gateway, const struct config *config, size_t process,
			 int *publisher_fd)
{
	*gateway = (struct gateway){ .base = event_base_new(),
				     .arena = json_arena_new(),
				     .config = config };
	check(gateway->base != NULL);
	gateway->redis = redis_pool_new(gateway->base, config);
	master_lease_keep(config->redis_url);
	gateway->lookup = lookup_new(gateway->base, config, LOOKUP_DECIDING);
	gateway->codes = lookup_new(gateway->base, config, LOOKUP_CODES);
	gateway->reads = lookup_new(gateway->base, config, LOOKUP_SHOWING);
	gateway->publisher = publisher_new(config->amqp_url, publisher_fd);
	gateway->replicas = replicas_new(gateway->base, config);
	deciders_make(gateway, config);
	gateway->status = (struct status_parts){ .redis = gateway->redis,
						 .replicas = gateway->replicas,
						 .lookup = gateway->lookup,
						 .reads = gateway->reads,
						 .offers = &gateway->offers,
						 .admission = gateway->admission,
						 .in_redis = &gateway->reads_in_redis };
	gateway->offers.reads = gateway->reads;
	gateway->queue = fair_queue_new((size_t)config->inflight_max);
	comparisons_make(gateway, config);
	gateway->known = (struct known){ .redis = gateway->redis,
					 .lookup = gateway->lookup,
					 .admission = gateway->admission,
					 .copies = gateway->copies,
					 .key_records = &gateway->key_records,
					 .catalogue = claim_catalogue(gateway->claim),
					 .comparison = &gateway->comparisons[0] };
	known_init(&gateway->known, config->listen, process);
	gateway->weak_settings = (struct weak_settings){
		.redis = gateway->redis,
		.has_sentinels = redis_url_has_sentinels(config->redis_url),
		.lookup = gateway->lookup,
		.durability = { .is_acknowledged = durability_is_acknowledged(config) }
	};
	gateway->auth = auth_new(config);
	gateway->intake = intake_new(gateway->base, config, gateway->auth, dispatch, gateway);
	gateway->key_records = (struct key_records){ .redis = gateway->redis,
						     .lookup = gateway->lookup,
						     .auth = gateway->auth,
						     .intake = gateway->intake };
	key_records_init(&gateway->key_records);
	intake_on_unknown_key(gateway->intake, key_records_ask, &gateway->key_records);
	gateway->lines = lines_new(gateway->base, config, gateway->intake);
	gateway->http = http_new(gateway->base, config, gateway->intake, ready, gateway);
}

static void accept_pause_count(void)
{
	metrics_add(METRIC_ACCEPT_PAUSES, 1);
}

static void gateway_listen(struct gateway *gateway, const struct gateway_sockets *sockets)
{
	const struct arrivals_listener http = { .fd = sockets->http,
						.protocol = "http/1.1",
						.has_reserve = 1,
						.take = http_accept,
						.context = gateway->http };

	listener_on_pause(accept_pause_count);
	for (int i = 0; i < GATEWAY_LISTENERS_MAX; i++) {
		const struct arrivals_listener listener = { .fd = sockets->api[i],
							    .protocol = i == 0 ? "couponmq" : NULL,
							    .take = lines_accept,
							    .context = gateway->lines };

		if (listener.fd >= 0)
			arrivals_listen(intake_arrivals(gateway->intake), &listener);
	}
	if (http.fd >= 0)
		arrivals_listen(intake_arrivals(gateway->intake), &http);
	/* The listeners have copies. That of the Unix socket ends with its path. */
	close(sockets->api[0]);
	close(sockets->http);
}

void gateway_run(const struct config *config, const struct gateway_sockets *sockets, size_t process)
{
	static struct gateway gateway; /* what it has is freed with the process */
	int publisher_fd;

	gateway_open(&gateway, config, process, &publisher_fd);
	gateway_listen(&gateway, sockets);
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

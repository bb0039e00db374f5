/*
 * One thread owns all of it:
 *
 *	RabbitMQ ──consumer──▶ settlement ──settle_args──▶ database ──▶ PostgreSQL
 *	    ▲  ▲                 │     ▲                       │
 *	    │  └────── acks ─────┘     └────── outcomes ───────┘
 *	    └─ publisher ◀── replies, dead letters             rejections ──▶ the keeper's thread
 *
 * No batch waits for a timer: what has arrived when the database is free is the next transaction.
 */
#include "worker/worker.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "worker/settle/database.h"
#include "worker/consume/dead_letters.h"
#include "worker/metrics.h"
#include "worker/monitor.h"
#include "common/rabbit/publisher.h"
#include "worker/settle/reply.h"
#include "worker/stats.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_FROM_DELIVERIES 2 /* redelivered this often: it may be what kills workers */

struct worker {
	const struct config *config;
	struct keeper *keeper; /* not owned */
	struct settlement *settlement;
	struct settle_args args;
	struct database *database;
	struct rabbit_link *consumer;
	struct rabbit_publisher *publisher;
	struct dead_letters dead_letters;
	struct json_arena *arena;
	struct message message; /* the one being decoded */
	struct stats stats;
	struct backoff settle_backoff;
	int64_t settle_due_ms; /* no transaction before */
	int64_t stop_by_ms;    /* 0: not stopping */
	int ready_told;
};

static void consumer_opened(void *context)
{
	struct worker *worker = context;

	if (!worker->ready_told)
		log_info("ready", LOG_S("queue", AMQP_QUEUE),
			 LOG_I("prefetch", worker->config->prefetch));
	worker->ready_told = 1;
}

static void consumer_delivered(void *context, size_t source, uint64_t tag,
			       struct envelope *envelope)
{
	struct worker *worker = context;
	const char *error;

	(void)source;
	worker->stats.messages++;
	if (envelope->body_len < envelope->body_size)
		settlement_add_dead(worker->settlement, tag,
				    "unreadable: longer than 1 MiB, the end is cut off", envelope);
	else if (message_decode(worker->arena, envelope->body, envelope->body_len, &worker->message,
				&error) == 0)
		settlement_add(worker->settlement, tag, &worker->message,
			       envelope->delivery_count >= ALONE_FROM_DELIVERIES, envelope);
	else {
		char reason[SETTLEMENT_REASON_SIZE];

		snprintf(reason, sizeof(reason), "unreadable: %s", error);
		settlement_add_dead(worker->settlement, tag, reason, envelope);
	}
}

static void consumer_lost(void *context)
{
	struct worker *worker = context;

	settlement_reset(worker->settlement);
}

struct worker *worker_new(const struct config *config, struct keeper *keeper)
{
	static const struct rabbit_link_events events = { .opened = consumer_opened,
							  .delivered = consumer_delivered,
							  .lost = consumer_lost };
	static const struct rabbit_publisher_port port = { .done = dead_letters_done };
	struct worker *worker = calloc(1, sizeof(*worker));
	struct rabbit_source source;

	check(worker != NULL);
	worker->config = config;
	worker->keeper = keeper;
	worker->settlement = settlement_new(envelope_free);
	worker->arena = json_arena_new();
	worker->database = database_new(config->database_url, config->settle_timeout_ms);
	source = (struct rabbit_source){ AMQP_QUEUE, (uint16_t)config->prefetch };
	worker->consumer = rabbit_link_new("consumer", config->amqp_url, &source, 1, &events,
					   worker);
	worker->publisher = rabbit_publisher_new("publisher", config->amqp_url, &port,
						 &worker->dead_letters);
	worker->dead_letters.settlement = worker->settlement;
	worker->dead_letters.publisher = worker->publisher;
	worker->stats.told_ms = clock_monotonic_ms();
	return worker;
}

void worker_free(struct worker *worker)
{
	if (!worker)
		return;
	rabbit_link_free(worker->consumer); /* waits until the broker has read the acks */
	rabbit_publisher_free(worker->publisher);
	database_free(worker->database);
	settle_args_fini(&worker->args);
	json_arena_free(worker->arena);
	settlement_free(worker->settlement);
	free(worker);
}

/* Copies the exceptions into the books. 0, or -1 when settle() speaks another language. */
static int outcomes_read(struct worker *worker)
{
	const PGresult *result = database_result(worker->database);
	struct outcome outcome;
	int rc = 0;

	for (int row = 0; row < PQntuples(result); row++) {
		long position = strtol(PQgetvalue(result, row, 0), NULL, 10) - 1;

		if (position < 0 ||
		    outcome_parse(PQgetvalue(result, row, 1), PQgetvalue(result, row, 2),
				  &outcome) ||
		    settlement_outcome(worker->settlement, (size_t)position, outcome)) {
			log_error("outcome_unreadable", LOG_I("ord", position + 1),
				  LOG_S("outcome", PQgetvalue(result, row, 1)),
				  LOG_S("reason", PQgetvalue(result, row, 2)));
			rc = -1;
		}
	}
	return rc;
}

static void outcomes_count(struct worker *worker)
{
	int64_t before = worker->stats.receives;

	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(worker->settlement, i);

		worker->stats.receives += (int64_t)(delivery_end(delivery) -
						    delivery_first(delivery));
		for (size_t j = delivery_first(delivery); j < delivery_end(delivery); j++) {
			switch ((enum outcome_kind)delivery_outcomes(delivery)[j].kind) {
			case OUTCOME_ISSUED:
				worker->stats.issued++;
				break;
			case OUTCOME_REPEATED:
				worker->stats.repeated++;
				break;
			case OUTCOME_REJECTED:
				worker->stats.rejected++;
				metrics_rejected(
					(enum outcome_reason)delivery_outcomes(delivery)[j].reason);
				break;
			}
		}
	}
	worker->stats.transactions++;
	metrics_set(METRIC_BATCH, worker->stats.receives - before);
}

static void replies_send(struct worker *worker)
{
	char text[REPLY_SIZE];

	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(worker->settlement, i);
		const struct envelope *envelope = delivery_envelope(delivery);
		amqp_bytes_t body = { .bytes = text };

		if (envelope->reply_to.len == 0)
			continue;
		body.len = reply_format(delivery, text);
		/*
		 * Lost replies do no harm: the gateway looks the receive up when its deadline is
		 * over.
		 */
		if (rabbit_publisher_reply(worker->publisher, envelope->reply_to,
					   envelope->correlation_id, body))
			worker->stats.replies_lost++;
		else
			worker->stats.replies++;
	}
}

static void transaction_settled(struct worker *worker)
{
	int64_t rejected = worker->stats.rejected;

	fault_point(FAULT_WORKER_AFTER_COMMIT);
	backoff_reset(&worker->settle_backoff);
	if (outcomes_read(worker) == 0)
		replies_send(worker);
	outcomes_count(worker);
	if (worker->stats.rejected > rejected)
		keeper_wake(worker->keeper);
	settlement_commit(worker->settlement);
}

static void transaction_retry(struct worker *worker, int64_t now_ms)
{
	worker->stats.retries++;
	worker->settle_due_ms = now_ms + backoff_ms(&worker->settle_backoff);
	settlement_retry(worker->settlement);
}

/* Classes 22 and 23 are about the data: no repetition helps, but some of the data may be good. */
static void transaction_refused(struct worker *worker, int64_t now_ms)
{
	const char *sqlstate = database_sqlstate(worker->database);

	if (strncmp(sqlstate, "22", 2) != 0 && strncmp(sqlstate, "23", 2) != 0) {
		transaction_retry(worker, now_ms);
		return;
	}
	worker->stats.retries++;
	settlement_refuse(worker->settlement, sqlstate);
}

static void transaction_begin(struct worker *worker, int64_t now_ms)
{
	if (!database_ready(worker->database) || now_ms < worker->settle_due_ms)
		return;
	if (settlement_take(worker->settlement, (size_t)worker->config->transaction_receives_max) ==
	    0)
		return;
	settle_args_fill(&worker->args, worker->settlement);
	fault_point(FAULT_WORKER_BEFORE_BEGIN);
	database_settle(worker->database, &worker->args, worker->config->settle_timeout_ms / 2 + 1,
			now_ms);
	fault_point(FAULT_WORKER_BEFORE_COMMIT);
}

static void database_turn(struct worker *worker, int64_t now_ms)
{
	switch (database_step(worker->database, now_ms)) {
	case DATABASE_NOTHING:
		break;
	case DATABASE_SETTLED:
		transaction_settled(worker);
		break;
	case DATABASE_REFUSED:
		transaction_refused(worker, now_ms);
		break;
	case DATABASE_BLOCKED:
	case DATABASE_LOST:
		transaction_retry(worker, now_ms);
		break;
	}
	transaction_begin(worker, now_ms);
}

static void acks_turn(struct worker *worker)
{
	uint64_t tag;
	int multiple;

	/*
	 * Should the connection break here, the books are reset and there is nothing more to ack.
	 */
	while (settlement_ack(worker->settlement, &tag, &multiple)) {
		fault_point(FAULT_WORKER_BEFORE_ACK);
		rabbit_link_ack(worker->consumer, tag, multiple);
		fault_point(FAULT_WORKER_AFTER_ACK);
	}
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t next_deadline_ms(const struct worker *worker, int64_t now_ms)
{
	int64_t deadline = earlier(database_deadline_ms(worker->database),
				   rabbit_link_deadline_ms(rabbit_publisher_link(worker->publisher),
							   now_ms));

	if (!worker->stop_by_ms || rabbit_link_up(worker->consumer))
		deadline = earlier(deadline, rabbit_link_deadline_ms(worker->consumer, now_ms));
	if (worker->stop_by_ms)
		deadline = earlier(deadline, worker->stop_by_ms);
	if (settlement_waiting(worker->settlement) > 0 && database_ready(worker->database))
		deadline = earlier(deadline, worker->settle_due_ms);
	return earlier(deadline, dead_letters_deadline_ms(&worker->dead_letters));
}

static void wait_for_work(struct worker *worker, int signal_fd)
{
	int64_t now_ms = clock_monotonic_ms(), wait_ms = next_deadline_ms(worker, now_ms) - now_ms;
	struct pollfd fds[] = {
		{ .fd = worker->stop_by_ms ? -1 : signal_fd, .events = POLLIN },
		{ .fd = rabbit_link_fd(worker->consumer), .events = POLLIN },
		{ .fd = rabbit_link_fd(rabbit_publisher_link(worker->publisher)),
		  .events = POLLIN },
		{ .fd = database_fd(worker->database),
		  .events = database_poll_events(worker->database) },
	};

	wait_ms = wait_ms < 0 ? 0 : earlier(wait_ms, STATS_EVERY_MS);
	poll(fds, 4, (int)wait_ms);
	if (fds[0].revents) {
		log_info("stopping", LOG_I("held", settlement_held(worker->settlement)));
		worker->stop_by_ms = clock_monotonic_ms() + WORKER_STOP_MS;
		rabbit_link_cancel(worker->consumer);
	}
}

static void tell(struct worker *worker, int64_t now_ms)
{
	worker->stats.dead = worker->dead_letters.confirmed;
	stats_step(&worker->stats, now_ms);
	metrics_stats(&worker->stats);
	metrics_set(METRIC_HELD, (int64_t)settlement_held(worker->settlement));
	metrics_set(METRIC_WAITING, (int64_t)settlement_waiting(worker->settlement));
	metrics_set(METRIC_DEAD_WAITING, (int64_t)settlement_dead_waiting(worker->settlement));
	metrics_set(METRIC_CONSUMER_UP, rabbit_link_up(worker->consumer));
	metrics_set(METRIC_PUBLISHER_UP,
		    rabbit_link_up(rabbit_publisher_link(worker->publisher)) &&
			    !rabbit_link_blocked(rabbit_publisher_link(worker->publisher)));
	metrics_set(METRIC_DATABASE_UP, database_up(worker->database));
	monitor_beat();
}

static int finished(const struct worker *worker, int64_t now_ms)
{
	if (!worker->stop_by_ms)
		return 0;
	return now_ms >= worker->stop_by_ms || (settlement_held(worker->settlement) == 0 &&
						settlement_taken(worker->settlement) == 0);
}

void worker_run(struct worker *worker, int signal_fd)
{
	int64_t now_ms = clock_monotonic_ms();

	while (!finished(worker, now_ms)) {
		if (!worker->stop_by_ms)
			rabbit_link_step(worker->consumer, now_ms);
		rabbit_link_step(rabbit_publisher_link(worker->publisher), now_ms);
		rabbit_link_read(worker->consumer);
		rabbit_link_read(rabbit_publisher_link(worker->publisher));
		now_ms = clock_monotonic_ms();
		database_turn(worker, now_ms);
		dead_letters_send(&worker->dead_letters, now_ms);
		acks_turn(worker);
		tell(worker, now_ms);
		/* The last ack was perhaps just sent: then nothing would end the wait. */
		if (!finished(worker, now_ms))
			wait_for_work(worker, signal_fd);
		now_ms = clock_monotonic_ms();
	}
	stats_tell(&worker->stats);
}

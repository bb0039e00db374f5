/*
 * coupon-worker: settles receives, executes what orders do with them, and keeps the campaigns where
 * it is the elected keeper.
 *
 * The loop collects deliveries, settles them in transactions, and acks what is committed. One
 * thread owns all of it. Receives and uses are two kinds of work (settler.h), each with such a loop
 * in a thread of its own, so that neither waits for the other:
 *
 *	RabbitMQ ──deliveries──▶ settlement ◀──▶ settler ◀──▶ PostgreSQL
 *	    ▲  ▲                   │   │            └── the kind of work: what is sent, and what
 *	    │  └──────── acks ─────┘   │                follows the COMMIT (work_receives.c,
 *	    └── publisher ◀── forward ─┘                work_uses.c)
 *	                     dead letters, parked messages; replies
 *
 * The next transaction is what has arrived when the database is idle (settler.h).
 *
 * Forward. Deliveries that this worker does not settle are published elsewhere: those that cannot
 * be settled go to the dead-letter exchange with the reason; those of a locked coupon go to the
 * parking queue; those with a high delivery count go to the end of their own queue. A delivery is
 * acked when the broker has confirmed the copy; until then it is published again, after a pause
 * that doubles. Where the parking queue refuses what would fill the prefetch, the copy goes to the
 * end of the receive queue, so that the messages behind it are delivered. A worker that dies in
 * between leaves the delivery and the copy; settlement ignores the second one.
 */
#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/program/weak_settings.h"
#include "common/program/program.h"
#include "common/program/ready.h"
#include "common/program/service_manager.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/redis/redis_client.h"
#include "common/serve/loop.h"
#include "common/serve/network.h"
#include "common/serve/tls.h"
#include "common/thread.h"
#include "events/expiry.h"
#include "events/relay.h"
#include "events/webhooks.h"
#include "keeper/keeper.h"
#include "worker/settlement.h"
#include "worker/metrics.h"
#include "worker/monitor.h"
#include "worker/settler.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Redelivered this often, a message may be what kills workers; then it is one of its batches. */
#define ALONE_FROM_DELIVERIES 2
#define APART_FROM_DELIVERIES 4
/* A queue may have a delivery limit, which AMQP does not report: 20 by default on RabbitMQ 4. */
#define RESCUE_FROM_DELIVERIES 8

/* A worker that is to stop waits no longer: what is not settled then goes to another worker. */
#define WORKER_STOP_MS 8000

/*
 * And ends within this: the other threads finish what they do in a store that may hang, or wait for
 * PostgreSQL (KEEPER_PATIENCE_MS). Nothing is lost if it is killed earlier.
 */
#define PROGRAM_STOP_MS 150000

#define RESCUE_WAIT_MS 3000     /* for a publisher that is not ready; then settled as any other */
#define PARKING_REFUSED_MS 5000 /* after a refusal the parking queue is not tried for so long */
#define REQUEUE_MS 100          /* between two rounds of copies to the receive queue */

/* One of the two loops. */
struct worker {
	struct settler settler;
	struct settlement *settlement; /* the settler's */
	struct rabbit_link *consumer;
	struct rabbit_publisher *publisher;
	struct unpack unpack;
	int64_t turn_ms;    /* when the next turn is due for its kind of work */
	int signal_fd;      /* can be read when it is to stop; it is not read */
	int64_t stop_by_ms; /* 0: not stopping */
	int ready_logged;

	/* of forwarding */
	struct backoff forward_backoff;
	int64_t forward_due_ms;     /* no publish before this time */
	int64_t publisher_ready_ms; /* when the publisher was ready last; at first: the start */
	int64_t parking_refused_ms; /* when the parking queue last refused a copy; 0: never */
};

/* The queue that a copy goes to; one to be parked goes to WAY_WORK while parking is refused. */
enum forward_way { WAY_WORK, WAY_PARKED, WAY_DEAD };

/* The copy of a delivery that is published and not yet confirmed. */
struct forwarding {
	enum delivery_state state; /* of the delivery meanwhile */
	enum forward_way way;
	uint64_t epoch;
	uint64_t tag;
	size_t position;
	int64_t coupon; /* 0: the message could not be read */
	struct ulid batch;
};

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void consumer_opened(void *context)
{
	struct worker *worker = context;

	if (!worker->ready_logged)
		log_info("ready", LOG_S("queue", worker->settler.work->queues[0]),
			 LOG_I("prefetch", worker->settler.prefetch));
	worker->ready_logged = 1;
}

/* The envelope of a batch as if it had come in a message of its own. */
static void *batch_envelope(const void *whole, const char *text, size_t len,
			    const struct ulid *batch)
{
	char correlation_id[ULID_SIZE] = "";

	if (batch)
		ulid_format(batch, correlation_id);
	return envelope_new_part(whole, amqp_cstring_bytes(correlation_id), text, len);
}

static void consumer_delivered(void *context, size_t source, uint64_t tag,
			       struct envelope *envelope)
{
	struct worker *worker = context;
	const amqp_basic_properties_t *properties = &envelope->properties;
	int is_rescued = envelope->delivery_count >= RESCUE_FROM_DELIVERIES;
	int is_foreign;
	unsigned how;

	if (rabbit_text_is(properties->type, RABBIT_LEAVE_TYPE)) {
		envelope_free(envelope);
		log_info("queue_left", LOG_S("queue", worker->settler.work->queues[source]),
			 LOG_I("for_ms", RABBIT_LEAVE_MS));
		/* First the ack: otherwise this message returns to the queue too. */
		rabbit_link_ack(worker->consumer, tag, 0);
		rabbit_link_leave(worker->consumer, source, RABBIT_LEAVE_MS);
		return;
	}
	metrics_add(METRIC_MESSAGES, 1);

	/* A message without an id was published by a version that knew none, or by hand. */
	is_foreign = properties->app_id.len > 0 &&
		     !rabbit_text_is(properties->app_id, worker->settler.primary.installation);
	if (is_foreign) {
		settlement_add_dead(worker->settlement, tag, "of another installation", envelope);
		return;
	}
	if (envelope->body_len < envelope->body_size) {
		settlement_add_dead(worker->settlement, tag,
				    "unreadable: longer than 1 MiB, the rest is cut off", envelope);
		return;
	}

	if (is_rescued)
		log_warn("delivered_often", LOG_S("queue", worker->settler.work->queues[source]),
			 LOG_I("count", envelope->delivery_count));
	how = (is_rescued ? SETTLEMENT_RESCUE : 0) |
	      (properties->reply_to.len ? SETTLEMENT_AWAITED : 0) |
	      (envelope->delivery_count >= ALONE_FROM_DELIVERIES ? SETTLEMENT_ALONE : 0) |
	      (envelope->delivery_count >= APART_FROM_DELIVERIES ? SETTLEMENT_APART : 0) |
	      (source == SOURCE_PARKED ? SETTLEMENT_FROM_PARKING : 0);
	unpack_add(&worker->unpack, tag, envelope->body, envelope->body_len, how, envelope);
}

static void consumer_lost(void *context)
{
	struct worker *worker = context;

	settlement_reset(worker->settlement);
}

/* The publish of a copy has ended. */
static void forward_done(void *context, void *item, enum confirm_result result)
{
	static const char *const events[] = { [DELIVERY_DEAD_SENT] = "dead_letter_failed",
					      [DELIVERY_PARKING_SENT] = "park_failed",
					      [DELIVERY_RESCUE_SENT] = "rescue_failed" };
	static const char *const whys[] = { [CONFIRM_NACKED] = "nacked",
					    [CONFIRM_RETURNED] = "returned",
					    [CONFIRM_LOST] = "lost" };
	struct worker *worker = context;
	const struct work *work = worker->settler.work;
	struct forwarding *copy = item;
	int64_t now_ms = clock_monotonic_ms();

	if (result != CONFIRM_DONE) {
		/*
		 * Copies that fail together count as one failure: the pause must not grow with
		 * their number.
		 */
		if (now_ms >= worker->forward_due_ms)
			worker->forward_due_ms = now_ms + backoff_ms(&worker->forward_backoff);
		log_warn(events[copy->state], LOG_S("why", whys[result]));
		if (result != CONFIRM_LOST && copy->state == DELIVERY_PARKING_SENT &&
		    copy->way == WAY_PARKED)
			worker->parking_refused_ms = now_ms;
	} else if (copy->state == DELIVERY_DEAD_SENT) {
		metrics_add(METRIC_DEAD, 1);
		/* The keeper must not send its batch again. */
		if (copy->coupon && work->dead_lettered)
			work->dead_lettered(worker->settler.state, copy->coupon, &copy->batch);
	} else if (copy->state == DELIVERY_PARKING_SENT) {
		fault_point(FAULT_WORKER_AFTER_PARK);
		metrics_add(copy->way == WAY_PARKED ? METRIC_PARKED : METRIC_REQUEUED, 1);
	} else {
		fault_point(FAULT_WORKER_AFTER_RESCUE);
		metrics_add(METRIC_RESCUED, 1);
	}
	if (result == CONFIRM_DONE)
		backoff_reset(&worker->forward_backoff);
	settlement_forwarded(worker->settlement, copy->epoch, copy->tag, copy->position,
			     result == CONFIRM_DONE);
	free(copy);
}

static size_t forward_way(const void *item)
{
	return ((const struct forwarding *)item)->way;
}

/* Publishes the waiting copies, as far as possible now. */
static void forward_send(struct worker *worker, int64_t now_ms)
{
	const char *routing_key = worker->settler.work->routing_key;
	const struct {
		const char *exchange, *routing_key;
	} ways[] = {
		[WAY_WORK] = { AMQP_EXCHANGE, routing_key },
		[WAY_PARKED] = { AMQP_EXCHANGE, AMQP_PARKED_KEY },
		[WAY_DEAD] = { AMQP_DEAD_EXCHANGE, routing_key },
	};
	const struct delivery *delivery;
	int requeues; /* the parking queue is not tried now */

	if (rabbit_publisher_ready(worker->publisher))
		worker->publisher_ready_ms = now_ms;
	else if (now_ms - worker->publisher_ready_ms >= RESCUE_WAIT_MS)
		settlement_rescue_end(worker->settlement);
	if (now_ms < worker->forward_due_ms)
		return;
	requeues = worker->parking_refused_ms &&
		   now_ms - worker->parking_refused_ms < PARKING_REFUSED_MS &&
		   settlement_crowded(worker->settlement);
	if (requeues)
		worker->forward_due_ms = now_ms + REQUEUE_MS;
	while (rabbit_publisher_ready(worker->publisher) &&
	       (delivery = settlement_forward(worker->settlement))) {
		const struct envelope *envelope = delivery->envelope;
		amqp_table_entry_t reason = { .key = amqp_cstring_bytes(AMQP_DEAD_REASON),
					      .value = { .kind = AMQP_FIELD_KIND_UTF8 } };
		amqp_basic_properties_t properties = envelope->properties;
		struct forwarding *copy = checked(malloc(sizeof(*copy)));

		*copy = (struct forwarding){ .state = delivery->state,
					     .epoch = delivery->epoch,
					     .tag = delivery->tag,
					     .position = delivery->position,
					     .coupon = delivery->coupon,
					     .batch = delivery->batch };
		/* The reply address is kept, except in a dead letter: the client may still wait. */
		if (delivery->state == DELIVERY_DEAD_SENT) {
			copy->way = WAY_DEAD;
			reason.value.value.bytes = amqp_cstring_bytes(delivery->reason);
			properties._flags &= (amqp_flags_t)~AMQP_BASIC_REPLY_TO_FLAG;
			properties._flags |= AMQP_BASIC_HEADERS_FLAG;
			properties.headers = (amqp_table_t){ .num_entries = 1, .entries = &reason };
			log_warn("dead_letter", LOG_S("reason", delivery->reason),
				 LOG_I("bytes", envelope->body_size));
		} else if (delivery->state == DELIVERY_PARKING_SENT) {
			copy->way = requeues ? WAY_WORK : WAY_PARKED;
			fault_point(FAULT_WORKER_BEFORE_PARK);
		} else {
			copy->way = delivery->from_parking ? WAY_PARKED : WAY_WORK;
			fault_point(FAULT_WORKER_BEFORE_RESCUE);
		}
		rabbit_publisher_send(worker->publisher, ways[copy->way].exchange,
				      ways[copy->way].routing_key, &properties,
				      (amqp_bytes_t){ envelope->body_len, envelope->body }, copy);
	}
}

static struct worker *worker_new(const struct work *work, const struct config *config,
				 struct keeper *keeper, int signal_fd)
{
	static const struct rabbit_link_events events = { .opened = consumer_opened,
							  .delivered = consumer_delivered,
							  .lost = consumer_lost };
	static const struct rabbit_publisher_port port = { .done = forward_done,
							   .way = forward_way };
	struct worker *worker = checked(calloc(1, sizeof(*worker)));
	struct settler *settler = &worker->settler;
	struct rabbit_source sources[SOURCES];

	worker->signal_fd = signal_fd;
	settler->work = work;
	settler->keeper = keeper;
	settler_init(settler, config);
	worker->settlement = settler->settlement;
	for (size_t i = 0; i < work->queues_n; i++)
		sources[i] = (struct rabbit_source){ .queue = work->queues[i],
						     .prefetch = (uint16_t)settler->prefetch };
	worker->unpack.settlement = worker->settlement;
	worker->unpack.arena = json_arena_new();
	worker->unpack.read = work->read;
	worker->unpack.batch_envelope = batch_envelope;
	worker->consumer = rabbit_link_new("consumer", config->amqp_url, sources, work->queues_n,
					   &events, worker);
	worker->publisher = rabbit_publisher_new("publisher", config->amqp_url, &port, worker);
	worker->publisher_ready_ms = clock_monotonic_ms();
	settler->publisher = worker->publisher;
	return worker;
}

static void worker_free(struct worker *worker)
{
	rabbit_link_free(worker->consumer); /* waits until the broker has read the acks */
	rabbit_publisher_free(worker->publisher);
	settler_fini(&worker->settler);
	json_arena_free(worker->unpack.arena);
	free(worker);
}

/* Waits for the next event, deadline or signal. */
static void wait_for_work(struct worker *worker)
{
	const struct settlement_counts counts = settlement_counts(worker->settlement);
	const struct postgres *postgres = worker->settler.postgres;
	struct rabbit_link *publisher = rabbit_publisher_link(worker->publisher);
	int64_t now_ms = clock_monotonic_ms(),
		due_ms = earlier(settler_deadline_ms(&worker->settler),
				 rabbit_link_deadline_ms(publisher, now_ms));
	struct pollfd fds[] = {
		{ .fd = worker->stop_by_ms ? -1 : worker->signal_fd, .events = POLLIN },
		{ .fd = rabbit_link_fd(worker->consumer), .events = POLLIN },
		{ .fd = rabbit_link_fd(publisher), .events = POLLIN },
		{ .fd = postgres_fd(postgres), .events = postgres_poll_events(postgres) },
	};

	if (rabbit_link_up(worker->consumer) ||
	    (!worker->stop_by_ms && worker->settler.primary.is_own))
		due_ms = earlier(due_ms, rabbit_link_deadline_ms(worker->consumer, now_ms));
	if (worker->stop_by_ms)
		due_ms = earlier(due_ms, worker->stop_by_ms);
	due_ms = earlier(due_ms, worker->turn_ms);
	if (counts.coupons > 0)
		due_ms = earlier(due_ms, now_ms + SETTLEMENT_ROTATE_MS);
	if (counts.outgoing > 0 && rabbit_publisher_ready(worker->publisher))
		due_ms = earlier(due_ms, worker->forward_due_ms);

	poll(fds, 4,
	     due_ms < now_ms
		     ? 0
		     : (int)earlier(due_ms - now_ms, earlier(STATS_EVERY_MS, service_every_ms())));
	if (fds[0].revents) {
		log_info("stopping", LOG_S("queue", worker->settler.work->queues[0]),
			 LOG_I("held", counts.held));
		worker->stop_by_ms = clock_monotonic_ms() + WORKER_STOP_MS;
		if (worker->settler.work == &work_of_receives)
			service_stopping(PROGRAM_STOP_MS, "stopping");
		rabbit_link_cancel(worker->consumer);
	}
}

/* Deliveries that wait for another session's lock are not finished: another worker gets them. */
static int finished(const struct worker *worker, int64_t now_ms)
{
	return worker->stop_by_ms &&
	       (now_ms >= worker->stop_by_ms || settlement_rests(worker->settlement));
}

/* Runs until the signal can be read; then takes no more, finishes what it holds and returns. */
static void *worker_run(void *argument)
{
	struct worker *worker = argument;
	const struct work *work = worker->settler.work;
	struct rabbit_link *publisher = rabbit_publisher_link(worker->publisher);
	int64_t now_ms = clock_monotonic_ms();
	uint64_t tag;
	int multiple;

	while (!finished(worker, now_ms)) {
		char status[SERVICE_STATUS_SIZE];
		int is_ready;

		/* While Redis does not belong to PostgreSQL, the messages are of others. */
		if (!worker->stop_by_ms && worker->settler.primary.is_own) {
			rabbit_link_step(worker->consumer, now_ms);
		} else if (!worker->stop_by_ms && rabbit_link_fd(worker->consumer) >= 0) {
			rabbit_link_close(worker->consumer, 1);
			settlement_reset(worker->settlement);
		}
		rabbit_link_step(publisher, now_ms);
		rabbit_link_read(worker->consumer);
		rabbit_link_read(publisher);
		now_ms = clock_monotonic_ms();
		settler_turn(&worker->settler, now_ms);
		settlement_rotate(worker->settlement, now_ms);
		forward_send(worker, now_ms);

		/* If the connection breaks here, the books are reset and no acks are left. */
		while (settlement_ack(worker->settlement, &tag, &multiple)) {
			fault_point(FAULT_WORKER_BEFORE_ACK);
			rabbit_link_ack(worker->consumer, tag, multiple);
			fault_point(FAULT_WORKER_AFTER_ACK);
		}
		worker->turn_ms = work->turn
					  ? work->turn(&worker->settler, worker->consumer, now_ms)
					  : INT64_MAX;

		/* The loop of receives tells systemd how both are. */
		if (worker->settler.work != &work_of_receives) {
			service_turned(0, rabbit_link_up(worker->consumer));
		} else if (service_is_due(now_ms)) {
			is_ready = monitor_status(status);
			if (worker->stop_by_ms)
				snprintf(status, sizeof(status), "stopping");
			service_tell(now_ms, is_ready, service_loop_has_turned(0), status);
		}
		/* The last ack may just have been sent: no event would end the wait then. */
		if (!finished(worker, now_ms))
			wait_for_work(worker);
		now_ms = clock_monotonic_ms();
	}
	return NULL;
}

static const struct program_manual manual = {
	.name = "coupon-worker",
	.summary = "Settles accepted receives in PostgreSQL.",
	.program = CONFIG_WORKER,
};

int main(int argc, char **argv)
{
	struct config config;
	struct expiry *expiry;
	struct webhooks *webhooks;
	struct monitor *monitor;
	struct rules rules;
	struct keeper *keeper;
	struct relay *relay;
	struct worker *worker, *of_uses;
	struct thread thread;
	sigset_t signals;
	int check_only, signal_fd;

	program_begin();
	log_init("coupon-worker", LOG_LEVEL_INFO, 0);
	program_answer(&manual, argc, argv);
	argc = config_read(&config, CONFIG_WORKER, argc, argv, NULL);
	ready_answer(&config, "COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen, argc, argv);
	check_only = program_checks_only(argc, argv);
	config_log(&config, "coupon-worker");
	service_version_init();
	program_trust_stores(&config);
	program_check_urls(&config);
	service_listeners_take(NULL, 0);
	bind_check("COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen);
	networks_check("COUPON_CONNECTIONS_NETWORKS", config.connections_networks);
	tls_check(&config);
	rules_read(&rules, &config);
	relay_check(&config);
	keeper_check(&config);
	transport_check(&config, CONFIG_WORKER);
	if (check_only) {
		printf("the settings are well-formed\n");
		config_free(&config);
		return 0;
	}

	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* until the monitor's server handles it */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	/* Before any thread starts: every thread inherits it. */
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		log_fatal("cannot receive signals");

	service_begin(1); /* that of uses; the other one tells */
	monitor = monitor_start(bind_tcp("COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen),
				&config);
	keeper = keeper_start(&config);
	relay = relay_start(&config);
	expiry = expiry_start(&config);
	webhooks = webhooks_start(&config, &rules);
	master_lease_keep(config.redis_url);
	worker = worker_new(&work_of_receives, &config, keeper, signal_fd);
	of_uses = worker_new(&work_of_uses, &config, keeper, signal_fd);
	thread_start(&thread, worker_run, of_uses);
	worker_run(worker);
	stats_log();
	worker_free(worker);
	thread_join(&thread);
	worker_free(of_uses);
	webhooks_stop(webhooks);
	expiry_stop(expiry);
	relay_stop(relay);
	keeper_stop(keeper);
	monitor_stop(monitor);
	close(signal_fd);
	config_free(&config);
	log_info("stopped", LOG_I("pid", getpid()));
	return 0;
}

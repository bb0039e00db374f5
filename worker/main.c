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
 *	    │  └──────── acks ─────┘   │                follows the COMMIT (receives.c, uses.c)
 *	    └── publisher ◀── forward ─┘ dead letters, parked messages; replies
 *
 * The next transaction is what has arrived when the database is idle (settler.h).
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/program/durability.h"
#include "common/program/program.h"
#include "common/rabbit/publisher.h"
#include "common/redis/master_lease.h"
#include "common/serve/loop.h"
#include "common/serve/network.h"
#include "common/serve/tls.h"
#include "common/thread.h"
#include "events/relay.h"
#include "events/webhooks.h"
#include "keeper/keeper.h"
#include "worker/consume/forward.h"
#include "worker/consume/settlement.h"
#include "worker/members.h"
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

/* To finish takes no longer: what is not settled by then is delivered to another worker. */
#define WORKER_STOP_MS 8000

/* One of the two loops. */
struct worker {
	struct settler settler;
	struct settlement *settlement; /* the settler's */
	struct rabbit_link *consumer;
	struct rabbit_publisher *publisher;
	struct forward forward;
	struct unpack unpack;
	int64_t turn_ms;    /* when the next turn is due for its kind of work */
	int signal_fd;      /* can be read when it is to stop; it is not read */
	int64_t stop_by_ms; /* 0: not stopping */
	int ready_logged;
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

static unsigned arrival_of(const struct worker *worker, const struct envelope *envelope,
			   size_t source)
{
	int is_rescued = envelope->delivery_count >= RESCUE_FROM_DELIVERIES;

	if (is_rescued)
		log_warn("delivered_often", LOG_S("queue", worker->settler.work->queues[source]),
			 LOG_I("count", envelope->delivery_count));
	return (is_rescued ? SETTLEMENT_RESCUE : 0) |
	       (envelope->properties.reply_to.len ? SETTLEMENT_AWAITED : 0) |
	       (envelope->delivery_count >= ALONE_FROM_DELIVERIES ? SETTLEMENT_ALONE : 0) |
	       (envelope->delivery_count >= APART_FROM_DELIVERIES ? SETTLEMENT_APART : 0) |
	       (source == SOURCE_PARKED ? SETTLEMENT_FROM_PARKING : 0);
}

/* A message without an id was published by a version that knew none, or by hand. */
static int is_of_another(const struct worker *worker, const struct envelope *envelope)
{
	return envelope->properties.app_id.len > 0 &&
	       !rabbit_text_is(envelope->properties.app_id, worker->settler.gate.installation);
}

/* As if the batch had come in a message of its own. */
static void *part_new(const void *whole, const char *text, size_t len, const struct ulid *batch)
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

	if (rabbit_text_is(envelope->properties.type, RABBIT_LEAVE_TYPE)) {
		envelope_free(envelope);
		log_info("queue_left", LOG_S("queue", worker->settler.work->queues[source]),
			 LOG_I("for_ms", RABBIT_LEAVE_MS));
		/* First the ack: otherwise this message returns to the queue too. */
		rabbit_link_ack(worker->consumer, tag, 0);
		rabbit_link_leave(worker->consumer, source, RABBIT_LEAVE_MS);
		return;
	}
	metrics_add(METRIC_MESSAGES, 1);
	if (is_of_another(worker, envelope))
		settlement_add_dead(worker->settlement, tag, "of another installation", envelope);
	else if (envelope->body_len < envelope->body_size)
		settlement_add_dead(worker->settlement, tag,
				    "unreadable: longer than 1 MiB, the end is cut off", envelope);
	else
		unpack_add(&worker->unpack, tag, envelope->body, envelope->body_len,
			   arrival_of(worker, envelope, source), envelope);
}

static void consumer_lost(void *context)
{
	struct worker *worker = context;

	settlement_reset(worker->settlement);
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
	worker->unpack.part_new = part_new;
	worker->consumer = rabbit_link_new("consumer", config->amqp_url, sources, work->queues_n,
					   &events, worker);
	worker->publisher = rabbit_publisher_new("publisher", config->amqp_url, &port,
						 &worker->forward);
	worker->forward = (struct forward){ .settlement = worker->settlement,
					    .publisher = worker->publisher,
					    .routing_key = work->routing_key,
					    .dead_lettered = work->dead_lettered,
					    .context = settler->state,
					    .ready_ms = clock_monotonic_ms() };
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

static void acks_turn(struct worker *worker)
{
	uint64_t tag;
	int multiple;

	/* If the connection breaks here, the books are reset and no acks are left. */
	while (settlement_ack(worker->settlement, &tag, &multiple)) {
		fault_point(FAULT_WORKER_BEFORE_ACK);
		rabbit_link_ack(worker->consumer, tag, multiple);
		fault_point(FAULT_WORKER_AFTER_ACK);
	}
}

static int64_t next_deadline_ms(const struct worker *worker, int64_t now_ms)
{
	int64_t deadline = earlier(settler_deadline_ms(&worker->settler),
				   rabbit_link_deadline_ms(rabbit_publisher_link(worker->publisher),
							   now_ms));

	if (rabbit_link_up(worker->consumer) ||
	    (!worker->stop_by_ms && worker->settler.gate.is_own))
		deadline = earlier(deadline, rabbit_link_deadline_ms(worker->consumer, now_ms));
	if (worker->stop_by_ms)
		deadline = earlier(deadline, worker->stop_by_ms);
	deadline = earlier(deadline, worker->turn_ms);
	if (settlement_counts(worker->settlement).coupons > 0)
		deadline = earlier(deadline, now_ms + SETTLEMENT_ROTATE_MS);
	return earlier(deadline, forward_deadline_ms(&worker->forward));
}

static void wait_for_work(struct worker *worker)
{
	int64_t now_ms = clock_monotonic_ms(), wait_ms = next_deadline_ms(worker, now_ms) - now_ms;
	const struct postgres *postgres = worker->settler.postgres;
	struct pollfd fds[] = {
		{ .fd = worker->stop_by_ms ? -1 : worker->signal_fd, .events = POLLIN },
		{ .fd = rabbit_link_fd(worker->consumer), .events = POLLIN },
		{ .fd = rabbit_link_fd(rabbit_publisher_link(worker->publisher)),
		  .events = POLLIN },
		{ .fd = postgres_fd(postgres), .events = postgres_poll_events(postgres) },
	};

	wait_ms = wait_ms < 0 ? 0 : earlier(wait_ms, STATS_EVERY_MS);
	poll(fds, 4, (int)wait_ms);
	if (fds[0].revents) {
		log_info("stopping", LOG_S("queue", worker->settler.work->queues[0]),
			 LOG_I("held", settlement_counts(worker->settlement).held));
		worker->stop_by_ms = clock_monotonic_ms() + WORKER_STOP_MS;
		rabbit_link_cancel(worker->consumer);
	}
}

/* Consumes where Redis belongs to PostgreSQL; the messages are of another installation else. */
static void consumer_step(struct worker *worker, int64_t now_ms)
{
	if (worker->settler.gate.is_own) {
		rabbit_link_step(worker->consumer, now_ms);
	} else if (rabbit_link_fd(worker->consumer) >= 0) {
		rabbit_link_close(worker->consumer, 1);
		settlement_reset(worker->settlement);
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
	int64_t now_ms = clock_monotonic_ms();

	while (!finished(worker, now_ms)) {
		if (!worker->stop_by_ms)
			consumer_step(worker, now_ms);
		rabbit_link_step(rabbit_publisher_link(worker->publisher), now_ms);
		rabbit_link_read(worker->consumer);
		rabbit_link_read(rabbit_publisher_link(worker->publisher));
		now_ms = clock_monotonic_ms();
		settler_turn(&worker->settler, now_ms);
		settlement_rotate(worker->settlement, now_ms);
		forward_send(&worker->forward, now_ms);
		acks_turn(worker);
		worker->turn_ms = worker->settler.work->turn(&worker->settler, worker->consumer,
							     now_ms);
		/* The last ack may just have been sent: no event would end the wait then. */
		if (!finished(worker, now_ms))
			wait_for_work(worker);
		now_ms = clock_monotonic_ms();
	}
	return NULL;
}

static void help(void)
{
	printf("usage: coupon-worker [-n] [--SETTING VALUE]...\n"
	       "Settles accepted receives in PostgreSQL.\n\n"
	       "  -n         check the settings and exit\n"
	       "  --help     this text\n"
	       "  --version  the version\n\n");
	config_help(CONFIG_WORKER, stdout);
}

static int signals_open(void)
{
	sigset_t signals;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* changed files of TLS are found without it */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	/* Before any thread starts: every thread inherits it. */
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		log_fatal("cannot receive signals");
	return fd;
}

int main(int argc, char **argv)
{
	struct config config;
	struct webhooks *webhooks;
	struct monitor *monitor;
	struct rules rules;
	struct keeper *keeper;
	struct relay *relay;
	struct worker *worker, *of_uses;
	struct thread thread;
	int check_only = 0, signal_fd;

	program_begin();
	log_init("coupon-worker", LOG_LEVEL_INFO, 0);
	program_answer("coupon-worker", help, argc, argv);
	argc = config_read(&config, CONFIG_WORKER, argc, argv, NULL);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("unknown argument %s; see --help", argv[i]);
		check_only = 1;
	}
	config_log(&config, "coupon-worker");
	service_version_init();
	program_trust_stores(&config);
	program_check_urls(&config);
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
	signal_fd = signals_open();
	monitor = monitor_start(bind_tcp("COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen),
				&config);
	keeper = keeper_start(&config);
	relay = relay_start(&config);
	webhooks = webhooks_start(&config, &rules);
	members_start(&config);
	master_lease_keep(config.redis_url);
	worker = worker_new(&work_of_receives, &config, keeper, signal_fd);
	of_uses = worker_new(&work_of_uses, &config, keeper, signal_fd);
	thread_start(&thread, worker_run, of_uses);
	worker_run(worker);
	stats_log();
	worker_free(worker);
	thread_join(&thread);
	worker_free(of_uses);
	members_stop();
	webhooks_stop(webhooks);
	relay_stop(relay);
	keeper_stop(keeper);
	monitor_stop(monitor);
	close(signal_fd);
	config_free(&config);
	log_info("stopped", LOG_I("pid", getpid()));
	return 0;
}

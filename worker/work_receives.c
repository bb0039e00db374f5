/*
 * Receives: settle() decides, and what it has decided goes to the gateways and to Redis.
 *
 *	settle() ──COMMIT──▶ outcomes ──▶ replies
 *	                         ├──▶ rejections: the keeper's thread is woken
 *	                         └──▶ settled batches ──▶ outboxes ──▶ Redis
 *
 * The batches of dead letters go to the outboxes as well, which have a thread of their own. What
 * waits here for PostgreSQL is looked for in the outboxes, and written there again where Redis has
 * lost it (coupon/copies.h).
 *
 * This loop also tells the state of the process: its metrics, and that it is not stuck.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/program/program.h"
#include "common/rabbit/topology.h"
#include "embed.h"
#include "worker/monitor.h"
#include "worker/outboxes.h"
#include "worker/settler.h"

#include <stdlib.h>
#include <string.h>

/*
 * How long a settled batch waits until it is removed from the outbox with others. The keeper must
 * not take it for lost meanwhile.
 */
#define OUTBOX_GATHER_MS 750
#define TRANSACTION_MAX \
	4096             /* receives in one: more gain nothing, and are lost work in a failure */
#define COPIES_END_MS 50 /* between two looks whether Redis has replied of copies */

struct work_receives {
	struct outboxes *outboxes;
	struct copies *copies;
	struct settle_args args;
};

static const char *body_of(const void *envelope, size_t *len)
{
	const struct envelope *of = envelope;

	*len = of->body_len;
	return of->body;
}

static void receives_open(struct settler *settler, const struct config *config)
{
	struct work_receives *receives = checked(calloc(1, sizeof(*receives)));
	int64_t gather_ms = config->resend_after_ms / 4;
	size_t prefetch = (size_t)config->prefetch;

	receives->outboxes = outboxes_start(config->redis_url, gather_ms < OUTBOX_GATHER_MS
								       ? gather_ms
								       : OUTBOX_GATHER_MS);
	receives->copies = copies_new(&(struct copies_port){ .now_ms = clock_monotonic_ms,
							     .look = outboxes_copies_look,
							     .write = outboxes_copies_write,
							     .context = receives->outboxes });
	settle_args_init(&receives->args);
	settler->state = receives;
	settler->prefetch = config->prefetch;
	settler->transaction_receives_max = TRANSACTION_MAX;
	/* A quarter of the prefetch for messages of locked coupons; others are parked. */
	settler->settlement = settlement_new(envelope_free, put_off_log,
					     prefetch >= 4 ? prefetch / 4 : 1, prefetch);
	settlement_keep_copies(settler->settlement, receives->copies, body_of);
}

static void receives_close(void *state)
{
	struct work_receives *receives = state;

	outboxes_stop(receives->outboxes);
	copies_free(receives->copies);
	settle_args_fini(&receives->args);
	free(receives);
}

static void receives_compared(void *state, const struct primary *primary)
{
	const struct work_receives *receives = state;

	outboxes_origin(receives->outboxes, primary->installation, &primary->server);
}

void settlement_args_fill(struct settle_args *args, const struct settlement *settlement)
{
	settle_args_clear(args);
	for (size_t n = 0; n < settlement->taken_n; n++) {
		const struct delivery *delivery = settlement->taken[n];

		for (size_t i = delivery->first; i < delivery->end; i++) {
			const struct message_receive *receive = &delivery->receives[i];

			settle_args_add(args,
					&(struct settle_receive){
						.coupon = delivery->coupon,
						.generation = delivery->generation,
						.seq = delivery->seq + (int64_t)i,
						.batch = &delivery->batch,
						.index = (int)i,
						.user = &receive->user,
						.slot = receive->slot,
						.tail = receive->tail,
						.key_len = receive_tail_key_len(receive->tail),
						.tail_len = strlen(receive->tail),
						.at_ms = delivery->at_ms,
						.trace = delivery_trace(delivery, i) });
		}
	}
}

static void receives_send(struct settler *settler, int64_t now_ms)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct work_receives *receives = settler->state;

	settlement_args_fill(&receives->args, settler->settlement);
	settle_args_arguments(&receives->args, arguments);
	settler_send(settler, SETTLE_ARGS_N, arguments, now_ms);
}

/* Looks which coupons are locked. The transaction stays in the books until the look has ended. */
static void receives_blocked(struct settler *settler, int64_t now_ms)
{
	struct postgres_argument arguments[SETTLE_ARGS_N]; /* the coupons are the first */
	const struct work_receives *receives = settler->state;

	settle_args_arguments(&receives->args, arguments);
	settler_read(settler, STATEMENT_LOOK, sql_query_coupon_locked, 1, arguments, now_ms);
}

/*
 * Reads the exceptions, which are the receives that were not newly issued, and the number of the
 * transaction; replies, and hands settled batches to the outboxes. Also of deliveries whose
 * connection was lost meanwhile. With an unknown outcome the messages stay in the outbox, for a
 * newer worker.
 */
static void receives_committed(struct settler *settler, int64_t now_ms)
{
	static const struct {
		const char *text;
		enum metric metric;
	} kinds[] = { [OUTCOME_ISSUED] = { "issued", METRIC_ISSUED },
		      [OUTCOME_REPEATED] = { "repeated", METRIC_REPEATED },
		      [OUTCOME_REJECTED] = { "rejected", METRIC_REJECTED } };
	const PGresult *rows = postgres_result(settler->postgres);
	struct work_receives *receives = settler->state;
	int64_t n = 0, rejected = 0;
	int is_known = 1;

	(void)now_ms;
	fault_point(FAULT_WORKER_AFTER_COMMIT);
	backoff_reset(&settler->backoff);

	for (int row = 0; row < PQntuples(rows); row++) {
		int64_t ord = number_at(rows, row, 0);
		const char *kind = PQgetvalue(rows, row, 1), *reason = PQgetvalue(rows, row, 2);
		struct outcome outcome;
		int is_read;

		if (ord == 0)
			is_read = PQgetisnull(rows, row, 2) ||
				  outboxes_changed(receives->outboxes, reason) == 0;
		else
			is_read = ord > 0 && outcome_parse(kind, reason, &outcome) == 0 &&
				  settlement_outcome(settler->settlement, (size_t)ord - 1,
						     outcome) == 0;
		if (is_read)
			continue;
		log_error("outcome_unreadable", LOG_S("ord", PQgetvalue(rows, row, 0)),
			  LOG_S("outcome", kind), LOG_S("reason", reason));
		is_known = 0;
	}

	for (size_t k = 0; k < settler->settlement->taken_n; k++) {
		const struct delivery *delivery = settler->settlement->taken[k];
		const struct message_traces *traces = delivery->traces;
		const struct outcome *outcomes = delivery->outcomes;

		for (size_t i = delivery->first; i < delivery->end; i++) {
			metrics_add(kinds[outcomes[i].kind].metric, 1);
			if (outcomes[i].kind == OUTCOME_REJECTED) {
				metrics_add(METRIC_REJECTIONS + (unsigned)outcomes[i].reason, 1);
				rejected++;
			}
		}
		n += (int64_t)delivery_part_size(delivery);
		if (!is_known)
			continue;

		for (size_t t = 0; traces && t < traces->n; t++) {
			size_t i = traces->list[t].index;

			if (i >= delivery->first && i < delivery->end)
				trace_context_log(traces->list[t].text,
						  &(struct receive){
							  .coupon = delivery->coupon,
							  .user = delivery->receives[i].user,
							  .batch = delivery->batch,
							  .index = (int)i },
						  kinds[outcomes[i].kind].text);
		}

		if (delivery->awaited) {
			delivery_reply(delivery, &settler->reply);
			settler_reply(settler, delivery);
		}

		if (!delivery_is_settled_by_part(delivery))
			continue;
		outboxes_settled(receives->outboxes, delivery->coupon, &delivery->batch,
				 delivery->at_ms);
		for (size_t i = 0; i < delivery->receives_n; i++)
			if (outcomes[i].kind == OUTCOME_REJECTED)
				outboxes_rejected(receives->outboxes, i, delivery->receives[i].slot,
						  reason_text(outcomes[i].reason),
						  &delivery->receives[i].user);
	}
	if (is_known)
		outboxes_send(receives->outboxes);

	metrics_add(METRIC_RECEIVES, n);
	metrics_add(METRIC_TRANSACTIONS, 1);
	metrics_set(METRIC_BATCH, n);
	settler->linger_ms = n < SETTLE_LINGER_RECEIVES ? clock_monotonic_ms() + SETTLE_LINGER_MS
							: 0;
	if (rejected > 0)
		keeper_wake(settler->keeper);
	settlement_commit(settler->settlement);
}

static void receives_dead_lettered(void *state, int64_t coupon, const struct ulid *batch)
{
	const struct work_receives *receives = state;

	outboxes_dead(receives->outboxes, coupon, batch);
}

static int64_t receives_turn(struct settler *settler, const struct rabbit_link *consumer,
			     int64_t now_ms)
{
	const struct settlement_counts counts = settlement_counts(settler->settlement);
	const struct rabbit_link *publisher = rabbit_publisher_link(settler->publisher);
	struct work_receives *receives = settler->state;
	/* Receives that wait here for PostgreSQL are to be in Redis, too. */
	int are_asked = outboxes_copies_end(receives->outboxes, receives->copies);

	if (settler->primary.is_own)
		copies_tick(receives->copies);
	metrics_set(METRIC_UNCOPIED, (int64_t)copies_lost(receives->copies));

	stats_step(now_ms);
	metrics_set(METRIC_HELD, (int64_t)counts.held);
	metrics_set(METRIC_WAITING, (int64_t)counts.waiting);
	metrics_set(METRIC_DEAD_WAITING, (int64_t)counts.dead);
	metrics_set(METRIC_PUT_OFF, (int64_t)counts.put_off);
	metrics_set(METRIC_PUT_OFF_COUPONS, (int64_t)counts.coupons);
	metrics_set(METRIC_CONSUMER_UP, rabbit_link_up(consumer));
	metrics_set(METRIC_PUBLISHER_UP,
		    rabbit_link_up(publisher) && !rabbit_link_blocked(publisher));
	metrics_set(METRIC_QUEUES_DIFFERING, rabbit_topology_differing_n());
	metrics_set(METRIC_DATABASE_UP, postgres_up(settler->postgres));
	metrics_set(METRIC_POSTGRESQL_OLD,
		    settler->primary.is_old || keeper_state().relation == RELATION_OLD);
	monitor_beat();

	if (!settler->primary.is_own)
		return INT64_MAX;
	return are_asked ? now_ms + COPIES_END_MS : copies_due_ms(receives->copies);
}

const struct work work_of_receives = {
	.queues = { AMQP_QUEUE, AMQP_PARKED_QUEUE },
	.queues_n = 2,
	.routing_key = AMQP_ROUTING_KEY,
	.application_name = "coupon-worker " PROGRAM_VERSION,
	.statement = sql_query_settle,
	.open = receives_open,
	.close = receives_close,
	.read = receives_read,
	.compared = receives_compared,
	.send = receives_send,
	.blocked = receives_blocked,
	.committed = receives_committed,
	.dead_lettered = receives_dead_lettered,
	.turn = receives_turn,
};

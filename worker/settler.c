#include "worker/settler.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

/* As the statement audit_workers of couponctl reads them. */
#define APPLICATION_NAME "coupon-worker"
#define APPLICATION_NAME_PUT_OFF "coupon-worker put off"
#define SETUP_TIMEOUT_MS 5000 /* to connect, and for each statement but settle() */
#define GRACE_MS 2000         /* so that the server's own limit ends a statement first */

void settler_init(struct settler *settler, const struct config *config)
{
	settler->gate = (struct gate){ .keeper = settler->keeper, .outboxes = settler->outboxes };
	settler->postgres = postgres_new(&(struct postgres_options){
		.url = config->database_url,
		.application_name = settler->kind->application_name,
		.connect_timeout_ms = SETUP_TIMEOUT_MS,
		.statement_timeout_ms = settler->settle_timeout_ms,
		.prepared = settler->kind->statement,
		.is_synchronous = durability_is_synchronous(config),
		.reconnects = 1,
		.lost_event = "database_lost",
		.unreachable_event = "database_unreachable",
		.notice_event = "database_notice",
	});
	settle_args_init(&settler->args);
}

void settler_fini(struct settler *settler)
{
	postgres_free(settler->postgres);
	settle_args_fini(&settler->args);
}

/* A statement that only reads. */
static void read_send(struct settler *settler, enum settler_statement statement, const char *sql,
		      int n, const struct postgres_argument *arguments, int64_t now_ms)
{
	settler->statement = statement;
	postgres_send(settler->postgres, sql, n, arguments, now_ms + SETUP_TIMEOUT_MS);
}

/* It has ended: its rows; there are none after a failure. */
static const PGresult *read_rows(const struct settler *settler, const char *failed_event)
{
	if (postgres_failure(settler->postgres) != POSTGRES_OK)
		log_warn(failed_event, LOG_S("why", postgres_why(settler->postgres)));
	return postgres_result(settler->postgres);
}

/* The server's durability settings. A weak setting is logged; it does not stop settling. */
static void settings_read(struct settler *settler)
{
	const PGresult *rows = postgres_result(settler->postgres);

	durability_begin(&settler->durability, DURABILITY_POSTGRESQL);
	if (postgres_failure(settler->postgres) != POSTGRES_OK)
		durability_unknown(&settler->durability, DURABILITY_POSTGRESQL,
				   postgres_why(settler->postgres));
	for (int row = 0; row < PQntuples(rows); row++)
		durability_tell(&settler->durability, PQgetvalue(rows, row, 0),
				PQgetvalue(rows, row, 1));
	log_info("database_connected",
		 LOG_I("backend", PQbackendPID(postgres_libpq(settler->postgres))));
}

void settlement_args_fill(struct settle_args *args, const struct settlement *settlement)
{
	settle_args_clear(args);
	for (size_t n = 0; n < settlement_taken(settlement); n++) {
		const struct delivery *delivery = settlement_taken_at(settlement, n);
		const struct delivery_message *message = delivery->message;

		for (size_t i = delivery->first; i < delivery->end; i++) {
			const struct message_receive *receive = &message->receives[i];

			settle_args_add(args,
					&(struct settle_receive){
						.coupon = message->coupon,
						.generation = message->generation,
						.seq = message->seq + (int64_t)i,
						.batch = &message->batch,
						.index = (int)i,
						.user = &receive->user,
						.slot = receive->slot,
						.tail = receive->tail,
						.key_len = receive_tail_key_len(receive->tail),
						.tail_len = strlen(receive->tail),
						.at_ms = message->at_ms,
						.trace = delivery_trace(delivery, i) });
		}
	}
}

/*
 * Whether transactions may begin; only while the session is idle. If not, it does the next step of
 * the comparison, after which the session may be busy.
 */
static int gate_pass(struct settler *settler, int64_t now_ms)
{
	switch (gate_step(&settler->gate, postgres_since_ms(settler->postgres), now_ms)) {
	case GATE_OPEN:
		return 1;
	case GATE_COUNT:
		read_send(settler, STATEMENT_COUNT, sql_query_change_counts, 0, NULL, now_ms);
		return 0;
	case GATE_WAIT:
		break;
	}
	return 0;
}

/* A server that may not be settled on is left: the next session may be one with another. */
static void counts_read(struct settler *settler)
{
	const PGresult *rows = read_rows(settler, "change_count_failed");
	const char *why = gate_counted(&settler->gate, rows);

	if (PQntuples(rows) > 0)
		snprintf(settler->started, sizeof(settler->started), "%s", PQgetvalue(rows, 0, 7));
	if (why && settler->gate.is_old)
		postgres_leave(settler->postgres, why);
	else if (why)
		postgres_lose(settler->postgres, why);
}

/*
 * Copies the exceptions into the books: the receives that were not newly issued; and keeps the
 * number of the transaction. 0, or -1 when settle() returned something unknown.
 */
static int outcomes_read(struct settler *settler)
{
	const PGresult *result = postgres_result(settler->postgres);
	int rc = 0;

	for (int row = 0; row < PQntuples(result); row++) {
		long ord = strtol(PQgetvalue(result, row, 0), NULL, 10);
		const char *kind = PQgetvalue(result, row, 1), *reason = PQgetvalue(result, row, 2);
		struct outcome outcome;
		int is_known;

		if (ord == 0)
			is_known = PQgetisnull(result, row, 2) ||
				   outboxes_changed(settler->outboxes, reason) == 0;
		else
			is_known = ord > 0 && outcome_parse(kind, reason, &outcome) == 0 &&
				   settlement_outcome(settler->settlement, (size_t)ord - 1,
						      outcome) == 0;
		if (is_known)
			continue;
		log_error("outcome_unreadable", LOG_S("ord", PQgetvalue(result, row, 0)),
			  LOG_S("outcome", kind), LOG_S("reason", reason));
		rc = -1;
	}
	return rc;
}

/* Returns how many were rejected. */
static int outcomes_count(const struct delivery *delivery)
{
	static const enum metric metrics[] = { [OUTCOME_ISSUED] = METRIC_ISSUED,
					       [OUTCOME_REPEATED] = METRIC_REPEATED,
					       [OUTCOME_REJECTED] = METRIC_REJECTED };
	int rejected = 0;

	for (size_t i = delivery->first; i < delivery->end; i++) {
		metrics_add(metrics[delivery->outcomes[i].kind], 1);
		if (delivery->outcomes[i].kind != OUTCOME_REJECTED)
			continue;
		metrics_add(METRIC_REJECTIONS + (unsigned)delivery->outcomes[i].reason, 1);
		rejected++;
	}
	return rejected;
}

/* Logs the traced receives of the part that was committed. */
static void traces_log(const struct delivery *delivery)
{
	static const char *const outcomes[] = { [OUTCOME_ISSUED] = "issued",
						[OUTCOME_REPEATED] = "repeated",
						[OUTCOME_REJECTED] = "rejected" };
	const struct delivery_message *message = delivery->message;

	for (size_t n = 0; message->traces && n < message->traces->n; n++) {
		size_t i = message->traces->list[n].index;

		if (i < delivery->first || i >= delivery->end)
			continue;
		trace_context_log(message->traces->list[n].text,
				  &(struct receive){ .coupon = message->coupon,
						     .user = message->receives[i].user,
						     .batch = message->batch,
						     .index = (int)i },
				  outcomes[delivery->outcomes[i].kind]);
	}
}

void settler_reply(struct settler *settler, const struct delivery *delivery)
{
	const struct envelope *envelope = delivery->envelope;
	char text[REPLY_SIZE];
	amqp_bytes_t body = { .bytes = text };
	int rc;

	if (envelope->properties.reply_to.len == 0)
		return;
	body.len = reply_write(&settler->reply, text);
	rc = rabbit_publisher_reply(settler->publisher, envelope->properties.reply_to,
				    envelope->properties.correlation_id, body);
	metrics_add(rc ? METRIC_REPLIES_LOST : METRIC_REPLIES, 1);
}

/* After COMMIT. Also of deliveries whose connection was lost meanwhile. */
static void outbox_clear(struct outboxes *outboxes, const struct delivery *delivery)
{
	const struct delivery_message *message = delivery->message;
	const struct outcome *outcomes = delivery->outcomes;

	if (!delivery_is_settled_by_part(delivery))
		return;
	outboxes_settled(outboxes, message->coupon, &message->batch, message->at_ms);
	for (size_t i = 0; i < message->receives_n; i++)
		if (outcomes[i].kind == OUTCOME_REJECTED)
			outboxes_rejected(outboxes, i, message->receives[i].slot,
					  reason_text(outcomes[i].reason),
					  &message->receives[i].user);
}

static void receives_committed(struct settler *settler, int64_t now_ms)
{
	int is_known, rejected = 0;
	int64_t receives = 0;

	(void)now_ms;
	fault_point(FAULT_WORKER_AFTER_COMMIT);
	backoff_reset(&settler->backoff);
	/* With an unknown outcome the messages stay in the outbox, for a newer worker. */
	is_known = outcomes_read(settler) == 0;
	for (size_t i = 0; i < settlement_taken(settler->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(settler->settlement, i);

		receives += (int64_t)delivery_part_size(delivery);
		rejected += outcomes_count(delivery);
		if (!is_known)
			continue;
		traces_log(delivery);
		delivery_reply(delivery, &settler->reply);
		settler_reply(settler, delivery);
		outbox_clear(settler->outboxes, delivery);
	}
	if (is_known)
		outboxes_send(settler->outboxes);
	metrics_add(METRIC_RECEIVES, receives);
	metrics_add(METRIC_TRANSACTIONS, 1);
	metrics_set(METRIC_BATCH, receives);
	settler->linger_ms = receives < SETTLE_LINGER_RECEIVES
				     ? clock_monotonic_ms() + SETTLE_LINGER_MS
				     : 0;
	if (rejected > 0)
		keeper_wake(settler->keeper);
	settlement_commit(settler->settlement);
}

void settler_retry(struct settler *settler, int64_t now_ms)
{
	metrics_add(METRIC_RETRIES, 1);
	settler->due_ms = now_ms + backoff_ms(&settler->backoff);
	settlement_retry(settler->settlement);
}

/* The transaction stays in the books until the look has ended. */
static void look_begin(struct settler *settler, int64_t now_ms)
{
	struct postgres_argument arguments[SETTLE_ARGS_N]; /* the coupons are the first */

	metrics_add(METRIC_BLOCKED, 1);
	settle_args_arguments(&settler->args, arguments);
	read_send(settler, STATEMENT_LOOK, sql_query_coupon_locked, 1, arguments, now_ms);
}

static void transaction_blocked(struct settler *settler, int64_t now_ms)
{
	const PGresult *result = read_rows(settler, "lock_look_failed");
	struct lock_look look = { .n = (size_t)PQntuples(result) };
	int64_t *ids = checked(calloc(look.n + 1, sizeof(*ids)));

	for (size_t i = 0; i < look.n; i++)
		ids[i] = strtoll(PQgetvalue(result, (int)i, 0), NULL, 10);
	look.locked = ids;
	settlement_blocked(settler->settlement, &look, now_ms);
	free(ids);
}

static int64_t lock_timeout_ms(const struct settler *settler)
{
	const struct settlement_counts counts = settlement_counts(settler->settlement);
	int64_t longest_ms = settler->settle_timeout_ms / 2 + 1,
		wait_ms = counts.coupons ? SETTLE_LOCK_AGAIN_MS : SETTLE_LOCK_MS;

	if (settlement_lock_suspect(settler->settlement))
		return counts.waiting > 0 ? SETTLE_LOCK_SUSPECT_MS : SETTLE_LOCK_IDLE_MS;
	return longest_ms < wait_ms ? longest_ms : wait_ms;
}

/* No transaction begins before this time. */
static int64_t begin_ms(const struct settler *settler)
{
	const struct settlement_counts counts = settlement_counts(settler->settlement);
	int lingers = counts.waiting < SETTLE_LINGER_RECEIVES && counts.awaited == 0;

	return lingers && settler->linger_ms > settler->due_ms ? settler->linger_ms
							       : settler->due_ms;
}

void settler_send(struct settler *settler, int n, const struct postgres_argument *arguments,
		  int64_t now_ms)
{
	settler->statement = STATEMENT_SETTLE;
	postgres_send(settler->postgres, settler->kind->statement, n, arguments,
		      now_ms + settler->settle_timeout_ms + GRACE_MS);
}

static void receives_send(struct settler *settler, int64_t now_ms)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];

	settlement_args_fill(&settler->args, settler->settlement);
	settle_args_arguments(&settler->args, arguments);
	settler_send(settler, SETTLE_ARGS_N, arguments, now_ms);
}

const struct settler_kind settler_of_receives = { .statement = sql_query_settle,
						  .application_name = APPLICATION_NAME,
						  .locks_coupons = 1,
						  .send = receives_send,
						  .committed = receives_committed };

/* If the session has other settings, they are changed first (one round trip). */
static void transaction_begin(struct settler *settler, int64_t now_ms)
{
	const char *name;

	if (!postgres_idle(settler->postgres) || now_ms < begin_ms(settler))
		return;
	if (settlement_taken(settler->settlement) > 0) {
		settler->kind->committed(settler, now_ms);
		return;
	}
	if (!gate_pass(settler, now_ms) ||
	    (settler->kind->may_begin && !settler->kind->may_begin(settler, now_ms)))
		return;
	if (settlement_take(settler->settlement, settler->transaction_receives_max, now_ms) == 0)
		return;
	/* Whether receives wait here that the transaction before this one could not settle. */
	name = settlement_lock_suspect(settler->settlement) ||
			       settlement_trial_ms(settler->settlement) < INT64_MAX
		       ? APPLICATION_NAME_PUT_OFF
		       : settler->kind->application_name;
	fault_point(FAULT_WORKER_BEFORE_BEGIN);
	settler->statement = STATEMENT_LIMIT;
	if (!postgres_set(settler->postgres, lock_timeout_ms(settler), name,
			  now_ms + SETUP_TIMEOUT_MS))
		settler->kind->send(settler, now_ms);
	fault_point(FAULT_WORKER_BEFORE_COMMIT);
}

/* The transaction was committed, or did nothing. */
static void settle_ended(struct settler *settler, int64_t now_ms)
{
	const char *why = postgres_why(settler->postgres);

	switch (postgres_failure(settler->postgres)) {
	case POSTGRES_OK:
		settler->kind->committed(settler, now_ms);
		break;
	case POSTGRES_BLOCKED:
		log_warn("settle_blocked", LOG_S("why", why));
		if (settler->kind->locks_coupons)
			look_begin(settler, now_ms);
		else
			settlement_blocked(settler->settlement, &(struct lock_look){ .n = 0 },
					   now_ms);
		break;
	case POSTGRES_CANCELLED:
		log_warn("settle_cancelled", LOG_S("why", why));
		metrics_add(METRIC_BLOCKED, 1);
		settlement_cancelled(settler->settlement, now_ms);
		break;
	case POSTGRES_REFUSED:
		log_warn("settle_refused", LOG_S("why", why));
		/* A retry of the whole cannot succeed, but parts of the data may. */
		metrics_add(METRIC_RETRIES, 1);
		settlement_refuse(settler->settlement, postgres_sqlstate(settler->postgres));
		break;
	case POSTGRES_AGAIN:
	case POSTGRES_UNFIT:
	case POSTGRES_DOWN:
		log_warn("settle_refused", LOG_S("why", why));
		settler_retry(settler, now_ms);
		break;
	}
}

/* Whether the transaction in flight took effect is unknown. */
static void session_lost(struct settler *settler, int64_t now_ms)
{
	if (settlement_taken(settler->settlement) > 0)
		settler_retry(settler, now_ms);
}

static void statement_ended(struct settler *settler, int64_t now_ms)
{
	switch (settler->statement) {
	case STATEMENT_SETTINGS:
		settings_read(settler);
		break;
	case STATEMENT_COUNT:
		counts_read(settler);
		break;
	case STATEMENT_LIMIT:
		if (postgres_failure(settler->postgres) == POSTGRES_OK) {
			settler->kind->send(settler, now_ms);
		} else {
			postgres_lose(settler->postgres, NULL);
			session_lost(settler, now_ms);
		}
		break;
	case STATEMENT_SETTLE:
		settle_ended(settler, now_ms);
		break;
	case STATEMENT_LOOK:
		transaction_blocked(settler, now_ms);
		break;
	}
}

/* The server may be frozen, and never end the transaction. */
static void session_leave(struct settler *settler, int64_t now_ms)
{
	if (postgres_idle(settler->postgres) || !postgres_up(settler->postgres) ||
	    !gate_is_left(&settler->gate, postgres_since_ms(settler->postgres)))
		return;
	postgres_lose(settler->postgres, RELATION_OLD_TEXT);
	session_lost(settler, now_ms);
}

void settler_turn(struct settler *settler, int64_t now_ms)
{
	session_leave(settler, now_ms);
	switch (postgres_step(settler->postgres, now_ms)) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		read_send(settler, STATEMENT_SETTINGS, sql_query_durability, 0, NULL, now_ms);
		break;
	case POSTGRES_ENDED:
		statement_ended(settler, now_ms);
		break;
	case POSTGRES_LOST:
		session_lost(settler, now_ms);
		break;
	}
	transaction_begin(settler, now_ms);
}

int64_t settler_deadline_ms(const struct settler *settler)
{
	int64_t deadline_ms = postgres_deadline_ms(settler->postgres);
	int64_t due_ms = settlement_trial_ms(settler->settlement);

	if (!postgres_idle(settler->postgres))
		return deadline_ms;
	if (!settler->gate.is_open)
		return gate_deadline_ms(&settler->gate, clock_monotonic_ms());
	if (settlement_counts(settler->settlement).waiting > 0 ||
	    settlement_taken(settler->settlement) > 0)
		due_ms = 0;
	if (due_ms < begin_ms(settler))
		due_ms = begin_ms(settler);
	return due_ms < deadline_ms ? due_ms : deadline_ms;
}

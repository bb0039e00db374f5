#include "worker/settler.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/program/program.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define APPLICATION_NAME_PUT_OFF "coupon-worker put off " PROGRAM_VERSION
#define SETUP_TIMEOUT_MS 5000 /* to connect, and for each statement but settle() */
#define GRACE_MS 2000         /* so that the server's own limit ends a statement first */
#define COMPARE_AGAIN_MS 500  /* between two comparisons */
/* While the keeper's thread reads the copy: at first, and while it cannot. */
#define POLL_MS 10
#define POLL_SLOWLY_MS 200
#define POLL_SLOWLY_AFTER_MS 1000

/* Whether Redis follows another server meanwhile: what runs in the session may never end. */
static int primary_is_left(const struct primary *primary, int64_t since_ms)
{
	struct postgres_server followed = keeper_state().followed;

	return primary->is_open && primary->connected_ms == since_ms && *followed.system &&
	       !server_equals(&followed, &primary->server);
}

void primary_again(struct primary *primary)
{
	primary->asked_ms = 0;
	primary->is_open = 0;
}

enum primary_state {
	PRIMARY_OPEN,
	PRIMARY_COUNT, /* the numbers are to be read, by sql_query_change_counts */
	PRIMARY_WAIT
};

/* While the session is idle, before each transaction. `since_ms`: when it was connected. */
static enum primary_state primary_step(struct primary *primary, int64_t since_ms, int64_t now_ms)
{
	struct keeper_state keeper = keeper_state();

	if (keeper.relation == RELATION_FOREIGN)
		primary->is_own = 0;
	if (primary->connected_ms != since_ms ||
	    primary->installations_n != keeper.installations_n ||
	    (primary->is_open && (keeper.relation == RELATION_BEHIND || !primary->is_own ||
				  primary_is_left(primary, since_ms)))) {
		primary->connected_ms = since_ms;
		primary->installations_n = keeper.installations_n;
		primary_again(primary);
	}
	if (primary->is_open)
		return PRIMARY_OPEN;
	if (primary->asked_ms == 0) {
		primary->asked_ms = now_ms;
		keeper_copy_ask(primary->keeper);
	} else if (now_ms >= primary->asked_ms &&
		   keeper_copy(&primary->copy) >= primary->asked_ms) {
		return PRIMARY_COUNT;
	}
	return PRIMARY_WAIT;
}

/*
 * The numbers were read; after a failure, without rows, the comparison is repeated. Returns NULL,
 * or why the session is to be left: `is_old`, or a standby.
 */
static const char *primary_counted(struct primary *primary, const PGresult *rows)
{
	struct changes changes;
	struct standing standing;

	primary->asked_ms += COMPARE_AGAIN_MS;
	keeper_copy_ask(primary->keeper);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		return NULL;
	changes_take(&changes, rows);
	standing = changes_stand(keeper_state().relation, &changes, &primary->copy);
	primary->is_old = standing.relation == RELATION_OLD;
	switch (standing.relation) {
	case RELATION_STANDBY:
		return SERVER_STANDBY_TEXT;
	case RELATION_OLD:
		primary->is_own = 0;
		return RELATION_OLD_TEXT;
	case RELATION_UNKNOWN:
	case RELATION_FOREIGN:
	case RELATION_OTHER:
		primary->is_own = 0;
		return NULL;
	case RELATION_UNADOPTED:
		return NULL;
	case RELATION_OWN:
	case RELATION_BEHIND:
		break;
	}

	/* Compared again, at once, with a copy that is read after Redis was asked to follow it. */
	if (standing.follow != FOLLOW_NONE) {
		if (!server_equals(&changes.server, &primary->asked))
			primary->asked_ms = clock_monotonic_ms();
		primary->asked = changes.server;
		keeper_follow_ask(primary->keeper, &changes, standing.follow);
		return NULL;
	}
	primary->is_own = 1;
	primary->is_open = standing.relation == RELATION_OWN;
	primary->server = changes.server;
	memcpy(primary->installation, changes.installation, INSTALLATION_SIZE);
	return NULL;
}

void put_off_log(const struct put_off_coupon *notice)
{
	if (notice->failures)
		log_warn("coupon_put_off", LOG_I("coupon", notice->coupon),
			 LOG_I("for_ms", notice->wait_ms), LOG_I("failures", notice->failures));
	else
		log_info("coupon_resumed", LOG_I("coupon", notice->coupon));
}

void settler_init(struct settler *settler, const struct config *config)
{
	settler->primary.keeper = settler->keeper;
	settler->settle_timeout_ms = config->settle_timeout_ms;
	settler->postgres = postgres_new(&(struct postgres_options){
		.url = config->database_url,
		.application_name = settler->work->application_name,
		.connect_timeout_ms = SETUP_TIMEOUT_MS,
		.statement_timeout_ms = settler->settle_timeout_ms,
		.prepared = settler->work->statement,
		.is_synchronous = durability_is_synchronous(config),
		.reconnects = 1,
		.lost_event = "database_lost",
		.unreachable_event = "database_unreachable",
		.notice_event = "database_notice",
	});
	settler->work->open(settler, config);
}

void settler_fini(struct settler *settler)
{
	postgres_free(settler->postgres);
	settlement_free(settler->settlement);
	settler->work->close(settler->state);
}

void settler_read(struct settler *settler, enum settler_statement statement, const char *sql, int n,
		  const struct postgres_argument *arguments, int64_t now_ms)
{
	settler->statement = statement;
	postgres_send(settler->postgres, sql, n, arguments, now_ms + SETUP_TIMEOUT_MS);
}

void settler_retry(struct settler *settler, int64_t now_ms)
{
	metrics_add(METRIC_RETRIES, 1);
	settler->due_ms = now_ms + backoff_ms(&settler->backoff);
	settlement_retry(settler->settlement);
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
	postgres_send(settler->postgres, settler->work->statement, n, arguments,
		      now_ms + settler->settle_timeout_ms + GRACE_MS);
}

/* The transaction was committed, or did nothing. */
static void settle_ended(struct settler *settler, int64_t now_ms)
{
	const char *why = postgres_why(settler->postgres);

	switch (postgres_failure(settler->postgres)) {
	case POSTGRES_OK:
		settler->work->committed(settler, now_ms);
		break;
	case POSTGRES_BLOCKED:
		log_warn("settle_blocked", LOG_S("why", why));
		metrics_add(METRIC_BLOCKED, 1);
		if (settler->work->blocked)
			settler->work->blocked(settler, now_ms);
		else
			settlement_blocked(settler->settlement, &(struct lock_look){ .n = 0 },
					   now_ms);
		break;
	case POSTGRES_CANCELLED:
		log_warn("settle_cancelled", LOG_S("why", why));
		metrics_add(METRIC_BLOCKED, 1);
		settlement_blocked(settler->settlement, NULL, now_ms);
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
	if (settler->settlement->taken_n > 0)
		settler_retry(settler, now_ms);
}

static void statement_ended(struct settler *settler, int64_t now_ms)
{
	struct postgres *postgres = settler->postgres;
	const PGresult *rows = postgres_result(postgres); /* none after a failure */
	int is_failed = postgres_failure(postgres) != POSTGRES_OK;
	struct lock_look look;
	int64_t *ids;
	const char *why;

	switch (settler->statement) {
	case STATEMENT_SETTINGS:
		/* A weak setting is logged; it does not stop settling. */
		durability_begin(&settler->durability, DURABILITY_POSTGRESQL);
		if (is_failed)
			durability_unknown(&settler->durability, DURABILITY_POSTGRESQL,
					   postgres_why(postgres));
		for (int row = 0; row < PQntuples(rows); row++)
			durability_tell(&settler->durability, PQgetvalue(rows, row, 0),
					PQgetvalue(rows, row, 1));
		log_info("database_connected",
			 LOG_I("backend", PQbackendPID(postgres_libpq(postgres))));
		break;
	case STATEMENT_COUNT:
		if (is_failed)
			log_warn("change_count_failed", LOG_S("why", postgres_why(postgres)));
		why = primary_counted(&settler->primary, rows);
		if (PQntuples(rows) > 0)
			snprintf(settler->started, sizeof(settler->started), "%s",
				 PQgetvalue(rows, 0, 7));
		/* A server that may not be settled on is left: the next one may be another. */
		if (why && settler->primary.is_old)
			postgres_leave(postgres, why);
		else if (why)
			postgres_lose(postgres, why);
		else if (settler->work->compared && settler->primary.is_own)
			settler->work->compared(settler->state, &settler->primary);
		break;
	case STATEMENT_LIMIT:
		if (is_failed) {
			postgres_lose(postgres, NULL);
			session_lost(settler, now_ms);
		} else {
			settler->work->send(settler, now_ms);
		}
		break;
	case STATEMENT_SETTLE:
		settle_ended(settler, now_ms);
		break;
	case STATEMENT_LOOK:
		if (is_failed)
			log_warn("lock_look_failed", LOG_S("why", postgres_why(postgres)));
		look.n = (size_t)PQntuples(rows);
		look.locked = ids = checked(calloc(look.n + 1, sizeof(*ids)));
		for (size_t i = 0; i < look.n; i++)
			ids[i] = number_at(rows, (int)i, 0);
		settlement_blocked(settler->settlement, &look, now_ms);
		free(ids);
		break;
	}
}

void settler_turn(struct settler *settler, int64_t now_ms)
{
	const struct settlement *settlement;
	struct settlement_counts counts;
	int64_t wait_ms;
	const char *name;

	/* A server that Redis has left may be frozen, and never end the transaction. */
	if (!postgres_idle(settler->postgres) && postgres_up(settler->postgres) &&
	    primary_is_left(&settler->primary, postgres_since_ms(settler->postgres))) {
		postgres_lose(settler->postgres, RELATION_OLD_TEXT);
		session_lost(settler, now_ms);
	}
	switch (postgres_step(settler->postgres, now_ms)) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		settler_read(settler, STATEMENT_SETTINGS, sql_query_durability, 0, NULL, now_ms);
		break;
	case POSTGRES_ENDED:
		statement_ended(settler, now_ms);
		break;
	case POSTGRES_LOST:
		session_lost(settler, now_ms);
		break;
	}

	/*
	 * Begin a transaction. If the session has other settings, they are changed first (one round
	 * trip).
	 */
	settlement = settler->settlement;
	if (!postgres_idle(settler->postgres) || now_ms < begin_ms(settler))
		return;
	if (settler->settlement->taken_n > 0) {
		settler->work->committed(settler, now_ms);
		return;
	}
	switch (primary_step(&settler->primary, postgres_since_ms(settler->postgres), now_ms)) {
	case PRIMARY_COUNT:
		settler_read(settler, STATEMENT_COUNT, sql_query_change_counts, 0, NULL, now_ms);
		return;
	case PRIMARY_WAIT:
		return;
	case PRIMARY_OPEN:
		break;
	}
	if (settler->work->may_begin && !settler->work->may_begin(settler, now_ms))
		return;
	if (settlement_take(settler->settlement, settler->transaction_receives_max, now_ms) == 0)
		return;
	/* A statement waits for a lock only briefly where it is likely to meet one. */
	counts = settlement_counts(settlement);
	if (settlement->lock_suspect)
		wait_ms = counts.waiting > 0 ? SETTLE_LOCK_SUSPECT_MS : SETTLE_LOCK_IDLE_MS;
	else
		wait_ms = counts.coupons > 0 ? SETTLE_LOCK_AGAIN_MS : SETTLE_LOCK_MS;
	if (!settlement->lock_suspect && wait_ms > settler->settle_timeout_ms / 2 + 1)
		wait_ms = settler->settle_timeout_ms / 2 + 1;

	/* Whether receives wait here that the transaction before this one could not settle. */
	name = settlement->lock_suspect || settlement_trial_ms(settlement) < INT64_MAX
		       ? APPLICATION_NAME_PUT_OFF
		       : settler->work->application_name;
	fault_point(FAULT_WORKER_BEFORE_BEGIN);
	settler->statement = STATEMENT_LIMIT;
	if (!postgres_set(settler->postgres, wait_ms, name, now_ms + SETUP_TIMEOUT_MS))
		settler->work->send(settler, now_ms);
	fault_point(FAULT_WORKER_BEFORE_COMMIT);
}

int64_t settler_deadline_ms(const struct settler *settler)
{
	int64_t deadline_ms = postgres_deadline_ms(settler->postgres);
	int64_t due_ms = settlement_trial_ms(settler->settlement), now_ms = clock_monotonic_ms();
	int64_t asked_ms = settler->primary.asked_ms;

	if (!postgres_idle(settler->postgres))
		return deadline_ms;

	/* The numbers are to be compared first. */
	if (!settler->primary.is_open && asked_ms > now_ms)
		return asked_ms;
	if (!settler->primary.is_open)
		return now_ms +
		       (now_ms - asked_ms < POLL_SLOWLY_AFTER_MS ? POLL_MS : POLL_SLOWLY_MS);

	if (settlement_counts(settler->settlement).waiting > 0 || settler->settlement->taken_n > 0)
		due_ms = 0;
	if (due_ms < begin_ms(settler))
		due_ms = begin_ms(settler);
	return due_ms < deadline_ms ? due_ms : deadline_ms;
}

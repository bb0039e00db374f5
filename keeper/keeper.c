/*
 * The keeper's thread owns everything here but `thread`. Elected, it makes rounds:
 *
 *	PostgreSQL ──coupons──▶ sweep ──look──▶ Redis
 *	     ▲                    ├─ load, verify, terms ──▶ Redis        (coupon)
 *	     └─ close at its end ─┤                                       (coupon)
 *	                          ├─ outbox, where messages may be lost ──▶ RabbitMQ  (outbox)
 *	                          └─ sums ──▶ metrics                     (metrics)
 *
 * A round starts after the pause, or on NOTIFY. Every step requires the lock, except freeing the
 * slots of rejected receives: it runs in each round, and whenever the worker's loop wakes the
 * thread after a COMMIT.
 *
 * The writes of a keeper that was suspended for longer than its lease fail: in Redis, because the
 * scripts refuse to run outside the times within which its lock is held, and each coupon that its
 * successor has checked has a higher fence; in PostgreSQL, because `keeper` has one. outbox.c and
 * slot_free.h say which two writes need no fence.
 */
#include "keeper/keeper.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/program/weak_settings.h"
#include "embed.h"
#include "common/thread.h"
#include "keeper/metrics.h"
#include "keeper/outbox.h"
#include "keeper/rebuild/rebuild.h"
#include "keeper/recovery.h"
#include "keeper/slot_free.h"
#include "keeper/keeper_stores.h"
#include "keeper/sweep.h"
#include "keeper/use_upkeep.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_FREE_STEPS 16 /* in a row */
#define LATE_STEPS 64
#define UNADOPTED_MS 100 /* while Redis belongs to nobody, between two looks */

struct keeper {
	const struct config *config;
	struct thread thread; /* woken: free slots, or read the copy */
	atomic_int copy_asked;
	int slot_free_due; /* freeing was interrupted */
	struct keeper_outbox *outbox;
	struct keeper_context context;
	struct late late;
	struct slot_free slot_free;
	struct keeper_stores stores;
	struct recovery *recovery;
	struct backoff backoff;
	struct keeper_sweep *sweep;
	struct use_upkeep use_upkeep;
	int elected;
	char run_id[REDIS_RUN_ID_SIZE]; /* of Redis, when it was elected or followed that process */
};

/* What other threads read. */
static struct {
	pthread_mutex_t mutex;
	struct keeper_state state;
	struct changes copy;
	int64_t copy_ms; /* when it was read; 0: never */
	/* the server that the loop wants Redis to follow */
	struct changes asked;
	enum follow asked_follow; /* FOLLOW_NONE: nothing */
} published = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* 0, or -1: PostgreSQL failed, and it is not elected. */
static int fence_raise(struct keeper *keeper)
{
	struct keeper_context *context = &keeper->context;
	PGresult *result = keeper_database_query(context->database, sql_query_keeper_fence,
						 POSTGRES_ARGUMENTS(
							 postgres_text(context->run_id)));

	keeper->elected = result && PQntuples(result) == 1;
	if (keeper->elected) {
		context->fence = number_at(result, 0, 0);
		memcpy(keeper->run_id, context->run_id, sizeof(keeper->run_id));
	} else {
		keeper_lock_release(context);
	}
	PQclear(result);
	return keeper->elected ? 0 : -1;
}

/*
 * Sets `elected`: whether this is the keeper. A worker that is cut off with an old master would get
 * the lock there, too, and the two keepers would take the fence from each other again and again.
 */
static void election_step(struct keeper *keeper)
{
	int is_followed = redis_client_is_followed(keeper->context.redis);

	if (keeper->context.fenced || !is_followed)
		keeper_lock_release(&keeper->context);
	keeper->context.fenced = 0;
	if (keeper->elected && keeper_lock_hold(&keeper->context))
		keeper->elected = 0;
	if (keeper->elected) {
		if (strcmp(keeper->run_id, keeper->context.run_id) != 0)
			fence_raise(keeper);
		return;
	}
	if (!is_followed || !keeper_lock_take(&keeper->context) || fence_raise(keeper))
		return;
	metrics_add(KEEPER_METRIC_ELECTIONS, 1);
	keeper_sweep_restart(keeper->sweep);
	memset(keeper->context.memory, 0, sizeof(keeper->context.memory));
	log_info("keeper_elected", LOG_I("fence", keeper->context.fence));
	fault_point(FAULT_KEEPER_AFTER_ELECTION);
}

void keeper_wake(struct keeper *keeper)
{
	thread_wake(&keeper->thread);
}

void keeper_copy_ask(struct keeper *keeper)
{
	keeper->copy_asked = 1;
	keeper_wake(keeper);
}

void keeper_follow_ask(struct keeper *keeper, const struct changes *changes, enum follow follow)
{
	pthread_mutex_lock(&published.mutex);
	published.asked = *changes;
	published.asked_follow = follow;
	pthread_mutex_unlock(&published.mutex);
	keeper_copy_ask(keeper);
}

int64_t keeper_copy(struct changes *copy)
{
	int64_t read_ms;

	pthread_mutex_lock(&published.mutex);
	*copy = published.copy;
	read_ms = published.copy_ms;
	pthread_mutex_unlock(&published.mutex);
	return read_ms;
}

struct keeper_state keeper_state(void)
{
	struct keeper_state state;

	pthread_mutex_lock(&published.mutex);
	state = published.state;
	pthread_mutex_unlock(&published.mutex);
	return state;
}

void keeper_exposition(struct evbuffer *out)
{
	keeper_metrics_prometheus(out);
}

static void state_publish(const struct keeper *keeper)
{
	const struct keeper_state state = {
		.redis_up = redis_client_is_open(keeper->context.redis),
		.elected = keeper->elected,
		.relation = keeper->stores.relation,
		.recovers = keeper->stores.relation == RELATION_BEHIND &&
			    recovery_helps(keeper->recovery, &keeper->stores),
		.installations_n = keeper->stores.installations_n,
		.followed = keeper->stores.copy.server,
	};

	pthread_mutex_lock(&published.mutex);
	published.state = state;
	pthread_mutex_unlock(&published.mutex);
	metrics_set(KEEPER_METRIC_REDIS_UP, state.redis_up);
	metrics_set(KEEPER_METRIC_DATABASE_UP,
		    postgres_fd(keeper_database_session(keeper->context.database)) >= 0);
	metrics_set(KEEPER_METRIC_ELECTED, state.elected);
	metrics_set(KEEPER_METRIC_BEHIND, state.relation == RELATION_BEHIND);
	metrics_set(KEEPER_METRIC_RECOVERY_WAITS,
		    state.relation == RELATION_BEHIND && !state.recovers);
	metrics_set(KEEPER_METRIC_FOREIGN, state.relation == RELATION_FOREIGN);
	if (!state.elected)
		keeper_watch_none();
}

/* Reads the copy, also while PostgreSQL is away from this thread: the worker's loop may have it. */
static int copy_read(struct keeper *keeper)
{
	int64_t now_ms = clock_monotonic_ms();
	struct changes asked;
	enum follow follow;

	keeper->copy_asked = 0; /* before it is read: a request meanwhile needs another one */
	pthread_mutex_lock(&published.mutex);
	asked = published.asked;
	follow = published.asked_follow;
	published.asked_follow = FOLLOW_NONE;
	pthread_mutex_unlock(&published.mutex);
	/* Whether Redis follows now is in the copy, which is read next. */
	if (follow != FOLLOW_NONE)
		(void)changes_follow(keeper->context.redis, &asked, follow);

	if (changes_copy_read(&keeper->stores.copy, keeper->context.redis))
		return -1;
	pthread_mutex_lock(&published.mutex);
	published.copy = keeper->stores.copy;
	published.state.followed = keeper->stores.copy.server;
	published.copy_ms = now_ms;
	pthread_mutex_unlock(&published.mutex);
	return 0;
}

/* Frees pending receives. 0, or -1 when it was interrupted: it is still due. */
static int slot_free_run(struct keeper *keeper)
{
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s;
	int more = redis_client_process(keeper->context.redis, run_id, &uptime_s) ? -1 : 1;

	for (int i = 0; more > 0 && i < SLOT_FREE_STEPS; i++) {
		/* Freeing a slot needs no lock, but the lock must be renewed for the rounds. */
		if (keeper->thread.stops || (keeper->elected && keeper_lock_hold(&keeper->context)))
			more = -1;
		else
			more = slot_free_step(&keeper->slot_free, &keeper->context, run_id);
	}
	if (more > 0)
		keeper_wake(keeper);
	keeper->slot_free_due = more < 0;
	return more < 0 ? -1 : 0;
}

/*
 * A turn while PostgreSQL is behind, or while Redis belongs to another installation, or to none, or
 * follows another server. Returns how long to pause, or -1: Redis or the lock is lost.
 */
static int64_t foreign_turn(struct keeper *keeper)
{
	struct keeper_context *context = &keeper->context;

	if (keeper->elected)
		keeper_lock_release(context);
	keeper->elected = 0;
	if (keeper->stores.relation != RELATION_BEHIND) {
		recovery_stop(keeper->recovery);
		/* The next session may be one with the server that Redis follows. */
		if (keeper->stores.relation == RELATION_OLD)
			postgres_leave(keeper_database_session(context->database),
				       RELATION_OLD_TEXT);
		return keeper->stores.relation == RELATION_UNADOPTED
			       ? UNADOPTED_MS
			       : keeper->config->keeper_round_ms;
	}

	/* The lock alone allows it: PostgreSQL's fence was put back, too, and is too low. */
	if (keeper_lock_hold(context)) {
		recovery_stop(keeper->recovery);
		if (!keeper_lock_take(context))
			return keeper->config->keeper_round_ms;
	}
	if (keeper_stores_hold(&keeper->stores, context))
		return -1;
	/* An old master does not have what was accepted since. */
	if (redis_client_is_followed(context->redis))
		recovery_step(keeper->recovery, &keeper->stores);
	return keeper->config->keeper_round_ms;
}

/* A round of the elected keeper; `*pause_ms` is how long to wait after it. 0, or -1: it failed. */
static int elected_round(struct keeper *keeper, int64_t *pause_ms)
{
	struct keeper_context *context = &keeper->context;
	int more = 1;

	/* Outcomes of older generations are counted before slots are freed that depend on them. */
	for (int i = 0; more > 0 && i < LATE_STEPS; i++)
		more = late_step(&keeper->late, context);
	return more < 0 || keeper_stores_round(&keeper->stores, context) ||
			       keeper_stores_keys(&keeper->stores, context) ||
			       use_upkeep_round(&keeper->use_upkeep, context) ||
			       keeper_sweep_round(keeper->sweep, pause_ms)
		       ? -1
		       : 0;
}

/* Runs one turn. Returns how long to pause after it. */
static int64_t turn(struct keeper *keeper)
{
	int64_t pause_ms = keeper->config->keeper_round_ms;
	int is_failed = 0;

	recovery_read(keeper->recovery);
	if (!redis_client_is_open(keeper->context.redis))
		keeper_stores_lost(&keeper->stores);
	/*
	 * The copy must not be newer than what it is compared with, nor older than the session:
	 * what was connected meanwhile may be a PostgreSQL that was put back. The loop may need it
	 * now, and whether another server is followed also while this thread has none.
	 */
	if (redis_client_open(keeper->context.redis) || copy_read(keeper) ||
	    keeper_stores_read(&keeper->stores, &keeper->context) ||
	    postgres_open(keeper_database_session(keeper->context.database)) || copy_read(keeper))
		goto failed;
	keeper_database_round(keeper->context.database);
	if (keeper_stores_compare(&keeper->stores, &keeper->context))
		goto failed;
	state_publish(keeper);
	if (keeper->stores.relation != RELATION_OWN) {
		pause_ms = foreign_turn(keeper);
		if (pause_ms < 0)
			goto failed;
		return pause_ms;
	}
	recovery_forget(keeper->recovery);

	/* PostgreSQL may have been put back and recovered while this keeper could not reach it. */
	if (keeper->elected && keeper->stores.fence != keeper->context.fence)
		keeper_context_fenced(&keeper->context);
	election_step(keeper);
	if (keeper->elected && elected_round(keeper, &pause_ms))
		is_failed = 1;
	/* The elected keeper also frees for workers that died, the others only when woken. */
	if ((keeper->elected || keeper->slot_free_due) && slot_free_run(keeper))
		is_failed = 1;
	if (is_failed)
		goto failed;
	backoff_reset(&keeper->backoff);
	return pause_ms;

failed:
	/* The snapshot of a big coupon is not kept open during the pause. */
	rebuild_big_stop(&keeper->context);
	return backoff_connect_ms(&keeper->backoff);
}

static void *run(void *argument)
{
	struct keeper *keeper = argument;
	struct keeper_context *context = &keeper->context;
	struct rabbit_link *link = keeper_outbox_link(keeper->outbox);

	while (!keeper->thread.stops) {
		int64_t pause_ms = turn(keeper), until_ms;

		if (!keeper->elected)
			rebuild_big_stop(context);
		state_publish(keeper);

		/* Pause, or until terms change, or the lock is lost. */
		until_ms = clock_monotonic_ms() + pause_ms;
		while (!keeper->thread.stops && !keeper_database_notified(context->database)) {
			int64_t left_ms = until_ms - clock_monotonic_ms();
			const struct pollfd fds[] = {
				{ .fd = postgres_fd(keeper_database_session(context->database)),
				  .events = POLLIN },
				{ .fd = rabbit_link_fd(link), .events = POLLIN }
			};
			int is_woken;

			if (left_ms <= 0)
				break;
			if (context->lock.held && left_ms > context->lock.lease_ms / 3)
				left_ms = context->lock.lease_ms / 3;
			if (left_ms > 1000)
				left_ms = 1000;
			is_woken = thread_pause(&keeper->thread, clock_monotonic_ms() + left_ms,
						fds, 2);
			rabbit_link_read(link);
			if (is_woken && keeper->copy_asked)
				copy_read(keeper);
			if (is_woken && keeper->stores.relation == RELATION_OWN)
				slot_free_run(keeper);
			if (context->lock.held && keeper_lock_hold(context))
				break;
		}
	}
	keeper_lock_release(context);
	return NULL;
}

static void redis_failed(enum redis_failure failure, const char *why)
{
	switch (failure) {
	case REDIS_UNREACHABLE:
		log_warn("keeper_redis_unreachable", LOG_S("why", why));
		return;
	case REDIS_LOST:
		log_warn("keeper_redis_lost", LOG_S("why", why));
		return;
	case REDIS_REFUSED:
		log_warn("keeper_redis_error", LOG_S("why", why));
		return;
	}
}

void keeper_check(const struct config *config)
{
	recovery_check(config);
}

struct keeper *keeper_start(const struct config *config)
{
	struct keeper *keeper = checked(calloc(1, sizeof(*keeper)));

	keeper->config = config;
	keeper->context.redis = redis_client_new(config->redis_url, redis_failed);
	keeper->context.database_url = config->database_url;
	keeper->context.is_synchronous = durability_is_synchronous(config);
	keeper->context.database = keeper_database_new(config->database_url,
						       keeper->context.is_synchronous);
	keeper->outbox = keeper_outbox_new(config->amqp_url, &keeper->context,
					   config->resend_after_ms);
	keeper->context.stop = &keeper->thread.stops;
	keeper->context.installation = keeper->stores.installation;
	keeper->context.lock.lease_ms = config->keeper_lease_ms;
	redis_lease_init(&keeper->context.lock.lease, keeper->context.redis, 0);
	keeper->use_upkeep = (struct use_upkeep){ .keep_bytes = config->keep_uses_bytes };
	keeper->sweep = keeper_sweep_new(config, &keeper->context, keeper->outbox);
	keeper->recovery = recovery_new(config);
	thread_start(&keeper->thread, run, keeper);
	return keeper;
}

void keeper_stop(struct keeper *keeper)
{
	if (!keeper)
		return;
	thread_stop(&keeper->thread);
	recovery_free(keeper->recovery);
	keeper_sweep_free(keeper->sweep);
	keeper_stores_fini(&keeper->stores);
	put_off_clear(&keeper->late.put_off);
	keeper_outbox_free(keeper->outbox);
	redis_client_free(keeper->context.redis);
	keeper_database_free(keeper->context.database);
	free(keeper);
}

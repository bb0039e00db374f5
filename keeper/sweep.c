/*
 * A round:
 *
 *	named by NOTIFY ─┐
 *	next page ───────┴▶ look ─▶ raise fences ─▶ each coupon ─▶ sums
 *	    ▲                                           │
 *	    └── while there are more, and there is time ┘
 *
 * For each coupon: close, settle, expire (close.h); load, verify, terms, rebuild (coupon.h); send
 * its outbox again (outbox.h).
 *
 * Rounds take about a fifth of the time: with more coupons a sweep takes longer, but the load does
 * not grow. A sweep makes no pauses after an event that concerns all coupons (an election, a new
 * Redis process, more notifications than can be stored), and while coupons are loaded or settled.
 * At rest (rest.h) a round has one page. Sweeps skip settled coupons; on a new Redis process these
 * are verified while their keys exist.
 *
 * A failure that concerns one coupon alone puts that coupon off (put_off.h); the page continues.
 *
 * A big coupon, whose rebuild takes seconds, is filled at the end of each round for BIG_MS, and
 * rounds follow each other without pauses. It has no other turns until it is open.
 */
#include "keeper/sweep.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis.h"
#include "keeper/close.h"
#include "keeper/rebuild/rebuild.h"
#include "keeper/rest.h"
#include "keeper/rows.h"
#include "keeper/watch.h"

#include <stdlib.h>
#include <string.h>

#define OUTBOX_MS 300 /* at least, for the outbox of one coupon */
#define BIG_MS 300    /* at most; a tenth of the lease, so that the lock is renewed in time */
#define REPORTS_MS 50 /* between two looks whether gateways have reported */

struct keeper_sweep {
	const struct config *config;
	struct keeper_context *context;
	struct keeper_lock *lock;
	struct keeper_outbox *outbox;
	struct keeper_gateways *gateways;
	const atomic_int *stop;
	int running;                    /* else the next page begins a new sweep */
	int64_t after;                  /* the last coupon that was checked */
	int settled_too;                /* the sweep includes settled coupons */
	struct keeper_expiring settled; /* the last of these that was checked */
	int settled_left;               /* some were put off: the next sweep includes them too */
	int64_t begun_ms;
	int64_t until_ms;     /* of this round */
	int64_t now_ms;       /* Redis' time when it began */
	int64_t pages_due_ms; /* limits the rate of pages, whatever the rate of NOTIFY */
	int is_new;           /* the Redis process: coupons may not be verified on it yet */
	int hurry;
	/* in this round a coupon was loaded or settled: others may be waiting for it */
	int acted;
	/* the Redis process on which coupons were or will be verified */
	char run_id[REDIS_RUN_ID_SIZE];
	struct keeper_watch watch;
	struct keeper_rest rest;
	/* coupons that Redis or PostgreSQL refused: each rebuild uses up a generation */
	struct put_off put_off;
};

struct keeper_sweep *keeper_sweep_new(const struct config *config, struct keeper_context *context,
				      struct keeper_lock *lock, struct keeper_outbox *outbox,
				      struct keeper_gateways *gateways, const atomic_int *stop)
{
	struct keeper_sweep *sweep = calloc(1, sizeof(*sweep));

	check(sweep != NULL);
	sweep->config = config;
	sweep->context = context;
	sweep->lock = lock;
	sweep->outbox = outbox;
	sweep->gateways = gateways;
	sweep->stop = stop;
	sweep->put_off = (struct put_off)KEEPER_PUT_OFF;
	return sweep;
}

void keeper_sweep_free(struct keeper_sweep *sweep)
{
	rebuild_big_stop(sweep->context);
	put_off_clear(&sweep->put_off);
	free(sweep);
}

void keeper_sweep_restart(struct keeper_sweep *sweep)
{
	rebuild_big_stop(sweep->context);
	memset(&sweep->watch, 0, sizeof(sweep->watch));
	memset(&sweep->rest, 0, sizeof(sweep->rest));
	put_off_clear(&sweep->put_off);
	keeper_outbox_restart(sweep->outbox);
	sweep->running = 0;
	sweep->hurry = 1;
}

/* Does what the coupon's terms and its state in Redis require. 0, or -1: the round is over. */
static int coupon_work(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	int rc;

	if (keeper_coupon_keep(sweep->context, row, look))
		return -1;
	if (sweep->context->refused)
		return 0;
	if (close_due(row, sweep->now_ms))
		return close_ended(sweep->context, row);
	rc = close_step(sweep->context, row, look, sweep->config->keep_closed_s * 1000);
	sweep->acted |= rc > 0;
	if (rc != 0 || sweep->context->refused)
		return rc < 0 ? -1 : 0;
	if (keeper_coupon_step(sweep->context, row, look))
		return -1;
	sweep->acted |= !look->present && row->status != COUPON_CLOSED && !sweep->context->refused;
	return 0;
}

/* The same, unless the coupon is put off. 0, or -1. */
static int coupon_step(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	if (put_off_waits(&sweep->put_off, row->id, clock_monotonic_ms()))
		return 0;
	sweep->context->refused = 0;
	if (coupon_work(sweep, row, look))
		return -1;
	if (sweep->context->refused)
		keeper_context_put_off(&sweep->put_off, row->id);
	else
		put_off_end(&sweep->put_off, row->id);
	return 0;
}

/* The later of two times. */
static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int coupon_turn(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	if (*sweep->stop || keeper_lock_hold(sweep->lock))
		return -1;
	return row->id == rebuild_big(sweep->context) ? 0 : coupon_step(sweep, row, look);
}

static int outbox_turn(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	return keeper_outbox_step(sweep->outbox, row, look,
				  later(sweep->until_ms, clock_monotonic_ms() + OUTBOX_MS));
}

/* Reads the state of the coupons in Redis and raises their fences. */
static int rows_look(struct keeper_sweep *sweep, const struct coupon_row *rows, size_t n,
		     struct coupon_look *looks)
{
	char fence[KEEPER_FENCE_SIZE];
	int fenced;

	if (keeper_lock_hold(sweep->lock) || look_coupons(sweep->context->redis, rows, n, looks))
		return -1;
	fenced = look_fence(sweep->context->redis, rows, n, looks, sweep->context->fence,
			    keeper_context_fence(sweep->context, fence));
	return fenced > 0 ? keeper_context_fenced(sweep->context) : fenced;
}

/* Sets those that are put off, or have other work before. */
static void skip_set(const struct keeper_sweep *sweep, const struct coupon_row *rows, size_t n,
		     char skip[KEEPER_PAGE])
{
	int64_t now_ms = clock_monotonic_ms();

	for (size_t i = 0; i < n; i++)
		skip[i] = close_due(&rows[i], sweep->now_ms) ||
			  put_off_waits(&sweep->put_off, rows[i].id, now_ms);
}

/* Verifies together what the page has to verify. 0, or -1. */
static int rows_verify(struct keeper_sweep *sweep, const struct coupon_row *rows, size_t n,
		       struct coupon_look *looks)
{
	char skip[KEEPER_PAGE];

	skip_set(sweep, rows, n, skip);
	return keeper_coupons_verify(sweep->context, rows, n, looks, skip);
}

/* The same for what the page has to load and to rebuild, where that can be done together. */
static int rows_rebuild(struct keeper_sweep *sweep, struct coupon_row *rows, size_t n,
			struct coupon_look *looks, enum page_state states[KEEPER_PAGE])
{
	char skip[KEEPER_PAGE], was_absent[KEEPER_PAGE];

	skip_set(sweep, rows, n, skip);
	for (size_t i = 0; i < n; i++)
		was_absent[i] = !looks[i].present;
	if (keeper_coupons_rebuild(sweep->context, rows, n, looks, skip, states))
		return -1;
	for (size_t i = 0; i < n; i++) {
		sweep->acted |= states[i] == PAGE_DONE ||
				(states[i] == PAGE_WAITS && was_absent[i]);
		if (states[i] == PAGE_DONE)
			put_off_end(&sweep->put_off, rows[i].id);
	}
	return 0;
}

/* Handles these coupons, regardless of the sweep's position. 0, or -1. */
static int coupons_turn(struct keeper_sweep *sweep, const int64_t *ids, size_t n)
{
	struct coupon_row rows[KEEPER_PAGE];
	struct coupon_look looks[KEEPER_PAGE];
	enum page_state states[KEEPER_PAGE];

	if (n == 0)
		return 0;
	if (rows_of(sweep->context->database, ids, n, rows, &n) ||
	    rows_look(sweep, rows, n, looks) || rows_verify(sweep, rows, n, looks) ||
	    rows_rebuild(sweep, rows, n, looks, states))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (states[i] == PAGE_LEFT && coupon_turn(sweep, &rows[i], &looks[i]))
			return -1;
	return 0;
}

/* Those whose terms have changed. 0, or -1. */
static int changed_turn(struct keeper_sweep *sweep)
{
	int64_t ids[KEEPER_PAGE];
	size_t n;
	int more;

	n = keeper_database_changed(sweep->context->database, ids, &more);
	if (more) {
		sweep->running = 0;
		sweep->hurry = 1;
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		put_off_hurry(&sweep->put_off, ids[i]); /* the cause may be gone */
	return coupons_turn(sweep, ids, n);
}

/*
 * Those that clients have asked for in vain, as gateways say (lua/ask.lua), so that they need not
 * wait until the sweep comes to them. 0, or -1.
 */
static int asked_turn(struct keeper_sweep *sweep)
{
	char most[NUMBER_SIZE];
	const char *spop[] = { "SPOP", ASKED_KEY, number_text(KEEPER_PAGE, most) };
	int64_t ids[KEEPER_PAGE];
	redisReply *reply;
	size_t n = 0;

	if (!sweep->context->may_open)
		return 0; /* they stay noted */
	reply = redis_client_call(sweep->context->redis, 3, spop);
	for (size_t i = 0; reply && i < reply->elements && n < KEEPER_PAGE; i++) {
		const redisReply *id = reply->element[i];

		if (id->type == REDIS_REPLY_STRING && id_parse(id->str, id->len, &ids[n]) == 0)
			n++;
	}
	if (reply)
		freeReplyObject(reply);
	else if (!redis_client_is_open(sweep->context->redis))
		return -1;
	return coupons_turn(sweep, ids, n);
}

static void settled_begin(struct keeper_sweep *sweep)
{
	sweep->settled_too = 1;
	sweep->settled_left = 0;
	sweep->settled = (struct keeper_expiring)KEEPER_EXPIRING_FIRST;
}

static void sweep_begin(struct keeper_sweep *sweep)
{
	sweep->begun_ms = clock_monotonic_ms();
	sweep->running = 1;
	sweep->after = 0;
	if (sweep->settled_left)
		settled_begin(sweep);
	keeper_watch_begin(&sweep->watch);
	keeper_rest_begin(&sweep->rest);
}

static int has_work(const struct keeper_sweep *sweep)
{
	const struct watch_sums *sums = &sweep->watch.sums;

	return sums->in_flight || sums->outbox || sums->reserved || sums->unreleased ||
	       sums->stands[STAND_UNAVAILABLE] || sweep->put_off.coupons || sweep->settled_left;
}

static void sweep_end(struct keeper_sweep *sweep)
{
	int64_t oldest_ms;

	sweep->running = 0;
	sweep->hurry = 0;
	keeper_watch_end(&sweep->watch);
	keeper_rest_end(&sweep->rest, has_work(sweep));
	keeper_metrics_set(KEEPER_METRIC_SWEEP, clock_monotonic_ms() - sweep->begun_ms);
	oldest_ms = keeper_outbox_oldest_take(sweep->outbox);
	if (oldest_ms || sweep->watch.sums.outbox == 0)
		keeper_metrics_set(KEEPER_METRIC_OUTBOX_AGE,
				   oldest_ms ? later(sweep->now_ms - oldest_ms, 0) : 0);
}

static int watched_turn(struct keeper_sweep *sweep)
{
	struct coupon_row rows[KEEPER_PAGE];
	struct coupon_look looks[KEEPER_PAGE];
	enum page_state states[KEEPER_PAGE];
	struct watch_sums before = sweep->watch.sums;
	size_t n = 0;

	if (rows_page(sweep->context->database, sweep->after, rows, &n) ||
	    rows_look(sweep, rows, n, looks) || rows_verify(sweep, rows, n, looks) ||
	    rows_rebuild(sweep, rows, n, looks, states))
		return -1;
	for (size_t i = 0; i < n; i++) {
		keeper_rest_add(&sweep->rest, &rows[i]);
		if (keeper_watch_add(&sweep->watch, sweep->context, &rows[i], &looks[i],
				     sweep->now_ms) ||
		    (states[i] == PAGE_LEFT && coupon_turn(sweep, &rows[i], &looks[i])) ||
		    outbox_turn(sweep, &rows[i], &looks[i])) {
			sweep->watch.sums = before; /* the page is repeated */
			return -1;
		}
	}
	sweep->after = n == KEEPER_PAGE ? rows[n - 1].id : INT64_MAX;
	return 0;
}

/* A settled coupon only needs to be verified on a new Redis process. 0, or -1. */
static int settled_step(struct keeper_sweep *sweep, const struct coupon_row *row,
			const struct coupon_look *look)
{
	if (!look->present || strcmp(look->run_id, sweep->context->run_id) == 0)
		return 0;
	sweep->context->refused = 0;
	if (put_off_waits(&sweep->put_off, row->id, clock_monotonic_ms())) {
		sweep->settled_left = 1;
		return 0;
	}
	if (keeper_coupon_step(sweep->context, row, look))
		return -1;
	if (sweep->context->refused) {
		keeper_context_put_off(&sweep->put_off, row->id);
		sweep->settled_left = 1;
	}
	return 0;
}

static int settled_turn(struct keeper_sweep *sweep)
{
	struct coupon_row rows[KEEPER_PAGE];
	struct coupon_look looks[KEEPER_PAGE];
	struct keeper_expiring after = sweep->settled;
	size_t n = 0;

	if (rows_expiring(sweep->context->database, &after, rows, &n) ||
	    rows_look(sweep, rows, n, looks) || rows_verify(sweep, rows, n, looks))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (*sweep->stop || keeper_lock_hold(sweep->lock) ||
		    settled_step(sweep, &rows[i], &looks[i]))
			return -1;
	sweep->settled = after;
	sweep->settled_too = n == KEEPER_PAGE;
	return 0;
}

static int page_turn(struct keeper_sweep *sweep)
{
	int rc = sweep->after < INT64_MAX ? watched_turn(sweep) : settled_turn(sweep);

	if (rc == 0 && sweep->after == INT64_MAX && !sweep->settled_too)
		sweep_end(sweep);
	return rc;
}

/* After a change of the Redis process: schedules the verification of all coupons. */
static void process_look(struct keeper_sweep *sweep)
{
	if (strcmp(sweep->run_id, sweep->context->run_id) != 0) {
		memcpy(sweep->run_id, sweep->context->run_id, sizeof(sweep->run_id));
		sweep->is_new = 1;
		sweep->running = 0;
	}
	if (!sweep->is_new || !sweep->context->may_open)
		return;
	sweep->is_new = 0;
	sweep->running = 0;
	sweep->hurry = 1;
	settled_begin(sweep);
}

/* Runs pages until the round is over. The next page is due at `pages_due_ms`. */
static int pages_turn(struct keeper_sweep *sweep)
{
	sweep->acted = 0;
	process_look(sweep);
	if (asked_turn(sweep))
		return -1;
	if (!sweep->hurry && clock_monotonic_ms() < sweep->pages_due_ms)
		return 0;
	do {
		if (!sweep->running)
			sweep_begin(sweep);
		if (page_turn(sweep) || (sweep->hurry && asked_turn(sweep)))
			return -1;
	} while (sweep->running && clock_monotonic_ms() < sweep->until_ms &&
		 (!sweep->rest.is_rest || sweep->hurry));
	sweep->pages_due_ms = clock_monotonic_ms();
	if (!sweep->running || !(sweep->hurry || sweep->acted))
		sweep->pages_due_ms += sweep->config->keeper_round_ms;
	return 0;
}

/* Continues the rebuild of a big coupon; then there is no pause. 0, or -1. */
static int big_turn(struct keeper_sweep *sweep, int64_t *pause_ms)
{
	int64_t coupon = rebuild_big(sweep->context);
	int64_t part_ms = sweep->config->keeper_lease_ms / 10;

	if (coupon == 0)
		return 0;
	sweep->context->refused = 0;
	if (rebuild_big_step(sweep->context, part_ms < BIG_MS ? part_ms : BIG_MS))
		return -1;
	*pause_ms = 0;
	if (sweep->context->refused)
		keeper_context_put_off(&sweep->put_off, coupon);
	else if (rebuild_big(sweep->context) == 0)
		put_off_end(&sweep->put_off, coupon);
	return 0;
}

int keeper_sweep_round(struct keeper_sweep *sweep, int64_t *pause_ms)
{
	int64_t begun_ms = clock_monotonic_ms(), took_ms;

	sweep->until_ms = begun_ms + sweep->config->keeper_round_ms / 4;
	keeper_outbox_round(sweep->outbox);
	if (keeper_gateways_round(sweep->gateways, sweep->context) ||
	    redis_client_time_ms(sweep->context->redis, &sweep->now_ms) ||
	    keeper_rest_look(&sweep->rest, sweep->lock, sweep->now_ms) || changed_turn(sweep) ||
	    pages_turn(sweep))
		return -1;
	took_ms = clock_monotonic_ms() - begun_ms;
	*pause_ms = later(sweep->pages_due_ms - begun_ms - took_ms, 0);
	if (sweep->is_new && *pause_ms > REPORTS_MS)
		*pause_ms = REPORTS_MS;
	keeper_metrics_add(KEEPER_METRIC_ROUNDS, 1);
	keeper_metrics_add(KEEPER_METRIC_WORK, took_ms);
	keeper_metrics_set(KEEPER_METRIC_ROUND, took_ms);
	return big_turn(sweep, pause_ms);
}

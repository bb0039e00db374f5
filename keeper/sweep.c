/*
 * A round:
 *
 *	named by NOTIFY ─┐
 *	next page ───────┴▶ look ─▶ raise fences ─▶ each coupon ─▶ sums
 *	    ▲                                           │
 *	    └── while there are more, and there is time ┘
 *
 * For each coupon: load, verify, terms, rebuild, close, settle, expire (coupon.h); send
 * its outbox again (outbox.h). Of each page its curves are written (curve.h).
 *
 * Rounds take about a fifth of the time: with more coupons a sweep takes longer, but the load does
 * not grow. A sweep makes no pauses after an event that concerns all coupons (an election, a new
 * Redis process, more notifications than can be stored), and while coupons are loaded or settled.
 * Sweeps skip settled coupons; on a new Redis process these are verified while their keys exist.
 *
 * At rest a round has one page: all coupons were looked at, nothing had to be done for any of them,
 * and since then nothing was written to Redis but the renewals of the keeper's lock. Receives,
 * outcomes, frees, reports of gateways, new terms and lost keys are all writes. The rest ends at
 * the end of the next campaign.
 *
 * A failure that concerns one coupon alone puts that coupon off (common/put_off.h); the page
 * continues.
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
#include "keeper/coupon.h"
#include "keeper/curve.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/rebuild.h"

#include <stdlib.h>
#include <string.h>

#define OUTBOX_MS 300 /* at least, for the outbox of one coupon */
#define BIG_MS 300    /* at most; a tenth of the lease, so that the lock is renewed in time */
#define REPORTS_MS 50 /* between two looks whether gateways have reported */

struct rest {
	int64_t writes; /* of others, when last read */
	int is_quiet;   /* none since the sweep began */
	int is_rest;    /* none since the last complete sweep, which found nothing to do */
	int64_t end_ms; /* the first end of a campaign in this sweep, by Redis' clock */
	int64_t due_ms; /* in the last complete one */
};

struct keeper_sweep {
	const struct config *config;
	struct keeper_context *context;
	struct keeper_outbox *outbox;
	int running;                    /* else the next page begins a new sweep */
	int64_t after;                  /* the last coupon that was checked */
	int settled_too;                /* the sweep includes settled coupons */
	struct coupon_expiring settled; /* the last of these that was checked */
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
	struct curve curve;
	struct rest rest;
	struct coupon_page page; /* the coupons at hand */
	int64_t page_ms;         /* when they were looked at: what was put off then is left alone */
	/* coupons that Redis or PostgreSQL refused: each rebuild uses up a generation */
	struct put_off put_off;
};

struct keeper_sweep *keeper_sweep_new(const struct config *config, struct keeper_context *context,
				      struct keeper_outbox *outbox)
{
	struct keeper_sweep *sweep = checked(calloc(1, sizeof(*sweep)));

	sweep->config = config;
	sweep->context = context;
	sweep->outbox = outbox;
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
	sweep->watch.campaigns_max = (size_t)sweep->config->metrics_campaigns;
	memset(&sweep->curve, 0, sizeof(sweep->curve));
	memset(&sweep->rest, 0, sizeof(sweep->rest));
	put_off_clear(&sweep->put_off);
	keeper_outbox_restart(sweep->outbox);
	sweep->running = 0;
	sweep->hurry = 1;
}

/* Does what the coupon needs, unless it is put off. 0, or -1: the round is over. */
static int coupon_step(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	int rc;

	if (put_off_waits(&sweep->put_off, row->id, sweep->page_ms))
		return 0;
	sweep->context->refused = 0;
	rc = keeper_coupon_step(sweep->context, row, look, sweep->now_ms,
				sweep->config->keep_closed_s * 1000);
	if (rc < 0)
		return -1;
	sweep->acted |= rc;
	if (sweep->context->refused)
		keeper_context_put_off(&sweep->put_off, row->id);
	else
		put_off_end(&sweep->put_off, row->id);
	return 0;
}

/* What a page of coupons is. */
enum part {
	PART_NAMED,   /* by NOTIFY or by clients, whatever the sweep's position */
	PART_WATCHED, /* the next ones of the sweep */
	PART_SETTLED
};

static int coupon_turn(struct keeper_sweep *sweep, enum part part, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	if (keeper_context_goes_on(sweep->context))
		return -1;
	/* A settled coupon only needs to be verified on a new Redis process. */
	if (part == PART_SETTLED
		    ? !look->present || strcmp(look->run_id, sweep->context->run_id) == 0
		    : row->id == rebuild_big(sweep->context))
		return 0;
	if (coupon_step(sweep, row, look))
		return -1;
	sweep->settled_left |= part == PART_SETTLED &&
			       put_off_waits(&sweep->put_off, row->id, sweep->page_ms);
	return 0;
}

/* Adds a coupon to what the sweep has found. 0, or -1. */
static int coupon_watch(struct keeper_sweep *sweep, const struct coupon_row *row,
			const struct coupon_look *look)
{
	if (row->status != COUPON_CLOSED && row->end_ms > 0 && row->end_ms < sweep->rest.end_ms)
		sweep->rest.end_ms = row->end_ms;
	return keeper_watch_add(&sweep->watch, sweep->context->redis, sweep->context->run_id, row,
				look, sweep->now_ms);
}

static int outbox_turn(struct keeper_sweep *sweep, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	int64_t least_ms = clock_monotonic_ms() + OUTBOX_MS;

	return keeper_outbox_step(sweep->outbox, row, look,
				  sweep->until_ms > least_ms ? sweep->until_ms : least_ms);
}

/*
 * Reads the state of the page's coupons in Redis and raises their fences. Those that are put off,
 * or have other work before, are not part of what is done together. 0, or -1.
 */
static int page_look(struct keeper_sweep *sweep)
{
	struct coupon_page *page = &sweep->page;

	if (keeper_coupons_look(sweep->context, page))
		return -1;
	sweep->page_ms = clock_monotonic_ms();
	for (size_t i = 0; i < page->n; i++)
		page->states[i] = close_due(&page->rows[i], sweep->now_ms) ||
						  put_off_waits(&sweep->put_off, page->rows[i].id,
								sweep->page_ms)
					  ? PAGE_APART
					  : PAGE_LEFT;
	return 0;
}

/* Does together what can be. 0, or -1. */
static int page_step(struct keeper_sweep *sweep)
{
	struct coupon_page *page = &sweep->page;
	char was_absent[KEEPER_PAGE];

	for (size_t i = 0; i < page->n; i++)
		was_absent[i] = !page->looks[i].present;
	if (keeper_coupons_step(sweep->context, page))
		return -1;
	for (size_t i = 0; i < page->n; i++) {
		sweep->acted |= page->states[i] == PAGE_DONE ||
				(page->states[i] == PAGE_WAITS && was_absent[i]);
		if (page->states[i] == PAGE_DONE)
			put_off_end(&sweep->put_off, page->rows[i].id);
	}
	return 0;
}

/* Does what the page's coupons need, which were just read. 0, or -1. */
static int coupons_turn(struct keeper_sweep *sweep, enum part part)
{
	const struct coupon_page *page = &sweep->page;

	if (page_look(sweep) || page_step(sweep))
		return -1;
	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];

		if ((part == PART_WATCHED && coupon_watch(sweep, row, look)) ||
		    (page->states[i] <= PAGE_APART && coupon_turn(sweep, part, row, look)) ||
		    (part == PART_WATCHED && outbox_turn(sweep, row, look)))
			return -1;
	}
	return 0;
}

/* 0, or -1. */
static int named_turn(struct keeper_sweep *sweep, const int64_t *ids, size_t n)
{
	if (n == 0)
		return 0;
	return coupon_page_read(&sweep->page, sweep->context->database, 0, ids, n) ||
			       coupons_turn(sweep, PART_NAMED)
		       ? -1
		       : 0;
}

/* Visits the coupons whose terms have changed. 0, or -1. */
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
	return named_turn(sweep, ids, n);
}

/*
 * Visits the coupons that clients have asked for in vain, as gateways say (lua/ask.lua), so that
 * clients need not wait until the sweep comes to them. 0, or -1.
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
	if (!reply)
		return redis_client_is_open(sweep->context->redis) ? 0 : -1;
	for (size_t i = 0; i < reply->elements && n < KEEPER_PAGE; i++) {
		const redisReply *id = reply->element[i];

		if (id->type == REDIS_REPLY_STRING && id_parse(id->str, id->len, &ids[n]) == 0)
			n++;
	}
	freeReplyObject(reply);
	return named_turn(sweep, ids, n);
}

static void settled_begin(struct keeper_sweep *sweep)
{
	sweep->settled_too = 1;
	sweep->settled_left = 0;
	sweep->settled = (struct coupon_expiring){ 0 };
}

static void sweep_begin(struct keeper_sweep *sweep)
{
	sweep->begun_ms = clock_monotonic_ms();
	sweep->running = 1;
	sweep->after = 0;
	if (sweep->settled_left)
		settled_begin(sweep);
	keeper_watch_begin(&sweep->watch);
	curve_begin(&sweep->curve, sweep->context);
	sweep->rest.is_quiet = 1;
	sweep->rest.end_ms = INT64_MAX;
}

static int has_work(const struct keeper_sweep *sweep)
{
	const struct watch_sums *sums = &sweep->watch.sums;

	return sums->of[KEEPER_METRIC_IN_FLIGHT] || sums->of[KEEPER_METRIC_OUTBOX] ||
	       sums->of[KEEPER_METRIC_RESERVED] || sums->of[KEEPER_METRIC_UNFREED] ||
	       sums->states[WATCH_UNAVAILABLE] || sweep->put_off.coupons || sweep->settled_left;
}

static void sweep_end(struct keeper_sweep *sweep)
{
	int64_t oldest_ms;

	sweep->running = 0;
	sweep->hurry = 0;
	keeper_watch_publish(&sweep->watch);
	sweep->rest.is_rest = sweep->rest.is_quiet && !has_work(sweep);
	sweep->rest.due_ms = sweep->rest.end_ms;
	metrics_set(KEEPER_METRIC_SWEEP, clock_monotonic_ms() - sweep->begun_ms);
	oldest_ms = keeper_outbox_oldest_take(sweep->outbox);
	if (oldest_ms || sweep->watch.sums.of[KEEPER_METRIC_OUTBOX] == 0)
		metrics_set(KEEPER_METRIC_OUTBOX_AGE,
			    oldest_ms && oldest_ms < sweep->now_ms ? sweep->now_ms - oldest_ms : 0);
}

static int watched_turn(struct keeper_sweep *sweep)
{
	const struct coupon_page *page = &sweep->page;
	const struct watch_sums before = sweep->watch.sums;

	if (coupon_page_read(&sweep->page, sweep->context->database, sweep->after, NULL, 0))
		return -1;
	if (coupons_turn(sweep, PART_WATCHED) || curve_add(&sweep->curve, sweep->context, page)) {
		sweep->watch.sums = before; /* the page is repeated */
		return -1;
	}
	sweep->after = page->n == KEEPER_PAGE ? page->rows[page->n - 1].id : INT64_MAX;
	return 0;
}

static int settled_turn(struct keeper_sweep *sweep)
{
	struct coupon_expiring after = sweep->settled;

	if (coupon_page_expiring(&sweep->page, sweep->context->database, &after) ||
	    coupons_turn(sweep, PART_SETTLED))
		return -1;
	sweep->settled = after;
	sweep->settled_too = sweep->page.n == KEEPER_PAGE;
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

/* Whether it is still at rest. 0, or -1: Redis is lost. */
static int rest_look(struct keeper_sweep *sweep)
{
	struct rest *rest = &sweep->rest;
	int64_t writes;

	if (redis_client_writes(sweep->context->redis, &writes))
		return -1;
	writes -= sweep->context->lock.writes + sweep->curve.writes;
	if (writes != rest->writes)
		rest->is_quiet = 0;
	if (writes != rest->writes || sweep->now_ms >= rest->due_ms)
		rest->is_rest = 0;
	rest->writes = writes;
	return 0;
}

int keeper_sweep_round(struct keeper_sweep *sweep, int64_t *pause_ms)
{
	int64_t begun_ms = clock_monotonic_ms(), took_ms;

	sweep->until_ms = begun_ms + sweep->config->keeper_round_ms / 4;
	keeper_outbox_round(sweep->outbox);
	if (redis_client_time_ms(sweep->context->redis, &sweep->now_ms) ||
	    curve_refused(&sweep->curve, sweep->context) || rest_look(sweep) ||
	    changed_turn(sweep) || pages_turn(sweep))
		return -1;
	took_ms = clock_monotonic_ms() - begun_ms;
	*pause_ms = sweep->pages_due_ms - begun_ms - took_ms;
	if (*pause_ms < 0)
		*pause_ms = 0;
	if (sweep->is_new && *pause_ms > REPORTS_MS)
		*pause_ms = REPORTS_MS;
	metrics_add(KEEPER_METRIC_ROUNDS, 1);
	metrics_add(KEEPER_METRIC_WORK, took_ms);
	metrics_set(KEEPER_METRIC_ROUND, took_ms);
	return big_turn(sweep, pause_ms);
}

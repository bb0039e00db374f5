/*
 * A round:
 *
 *	named by NOTIFY ─┐
 *	next page ───────┴▶ look ─▶ raise fences ─▶ each coupon ─▶ sums
 *	    ▲                                           │
 *	    └── while there are more, and there is time ┘
 *
 * For each coupon: load, verify, terms, rebuild, close, settle, expire (coupon.h); send
 * its outbox again (outbox.h). The curves of each page are written.
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
 *
 * The curves of coupons: how their sales go, in rows of PostgreSQL (sql/schema/curve.sql) that the
 * sweeps write of what they have read anyway, and of what gateways have refused, which Redis
 * collects (lua/refused.lua). Nothing depends on them: while no keeper is elected, or a statement
 * fails, rows and counts are missing.
 */
#include "keeper/sweep.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis.h"
#include "embed.h"
#include "keeper/coupon.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/rebuild.h"

#include <stdlib.h>
#include <string.h>

#define OUTBOX_MS 300 /* at least, for the outbox of one coupon */
#define BIG_MS 300    /* at most; a tenth of the lease, so that the lock is renewed in time */
#define REPORTS_MS 50 /* between two looks whether gateways have reported */

#define CURVE_SWEEP_MS 900    /* between two sweeps that add rows; curve_add has the same */
#define CURVE_FAILED_MS 60000 /* after PostgreSQL has refused rows, or Redis the refusals */
#define CURVE_TIDY_MS 3600000
#define REFUSED_MS 1000
/*
 * The number of coupons whose last row is remembered, so that PostgreSQL is asked only for another
 * one. When two coupons share an entry, the later one replaces the earlier one.
 */
#define CURVE_COUPONS 4096

struct curve_coupon {
	int64_t coupon;
	struct curve_point {
		int64_t total, stock, taken, issued, settled;
	} told;         /* as PostgreSQL was told last */
	int is_known;   /* it was told */
	int is_changed; /* a row is due: that came too early, or more was refused since */
	int64_t due_ms; /* no row is added before */
};

/* All zero at first. */
struct curve {
	struct curve_coupon coupons[CURVE_COUPONS];
	int is_due;         /* this sweep adds rows */
	int64_t due_ms;     /* the next sweep that does */
	int64_t again_ms;   /* after PostgreSQL has refused them: no row is added before */
	int64_t tidy_ms;    /* the next removal of old rows */
	int64_t refused_ms; /* when refusals are taken next */
	int64_t writes;     /* to Redis, of refusals */
};

struct sweep_rest {
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
	struct sweep_rest rest;
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
	memset(&sweep->curve, 0, sizeof(sweep->curve));
	memset(&sweep->rest, 0, sizeof(sweep->rest));
	put_off_clear(&sweep->put_off);
	keeper_outbox_restart(sweep->outbox);
	sweep->running = 0;
	sweep->hurry = 1;
}

static struct curve_coupon *curve_of(struct curve *curve, int64_t coupon)
{
	struct curve_coupon *entry =
		&curve->coupons[hash_keyed(&coupon, sizeof(coupon)) % CURVE_COUPONS];

	if (entry->coupon != coupon)
		*entry = (struct curve_coupon){ .coupon = coupon };
	return entry;
}

/*
 * Once a second: adds what gateways have refused to the counts of the coupons. 0, or -1: Redis or
 * PostgreSQL is lost.
 */
static int refusals_take(struct curve *curve, struct keeper_context *context)
{
	static const char *const keys[] = { REFUSED_KEY };
	struct postgres_array coupons = { .type = POSTGRES_INT8 },
			      answers = { .type = POSTGRES_TEXT },
			      numbers = { .type = POSTGRES_INT8 };
	int64_t now_ms = clock_monotonic_ms();
	redisReply *taken;
	int rc = 0;

	if (now_ms < curve->refused_ms)
		return 0;
	curve->refused_ms = now_ms + REFUSED_MS;
	taken = redis_client_eval(context->redis, lua_refused_take, 1, keys, 0, NULL);
	if (!taken) {
		curve->refused_ms = now_ms + CURVE_FAILED_MS;
		return redis_client_is_open(context->redis) ? 0 : -1;
	}

	for (size_t i = 0; i + 1 < taken->elements; i += 2) {
		const char *field = taken->element[i]->str, *colon = strchr(field, ':');
		const redisReply *value = taken->element[i + 1];
		int64_t coupon, number;

		if (strcmp(field, "writes") == 0) {
			curve->writes += redis_reply_number(value) + 1;
			continue;
		}
		/* Any other field is "COUPON:ANSWER", unless no gateway has written it. */
		if (!colon || id_parse(field, (size_t)(colon - field), &coupon) ||
		    number_parse(value->str, INT64_MAX, &number))
			continue;
		curve_of(curve, coupon)->is_changed = 1;
		postgres_array_add_number(&coupons, coupon);
		postgres_array_add_text(&answers, colon + 1, strlen(colon + 1));
		postgres_array_add_number(&numbers, number);
	}
	freeReplyObject(taken);
	if (coupons.n > 0 &&
	    keeper_database_run(context->database, sql_query_refusal_add,
				POSTGRES_ARGUMENTS(postgres_array(&coupons),
						   postgres_array(&answers),
						   postgres_array(&numbers),
						   postgres_number(context->fence))))
		rc = keeper_context_usable(context);
	postgres_array_fini(&coupons);
	postgres_array_fini(&answers);
	postgres_array_fini(&numbers);
	return rc;
}

/* Whether a row of the coupon may be due. A coupon that leaves the sweeps gets a last row. */
static int curve_is_due(struct curve *curve, const struct curve_point *point,
			const struct coupon_row *row)
{
	const struct curve_coupon *entry = curve_of(curve, row->id);
	int is_time = curve->is_due && clock_monotonic_ms() >= entry->due_ms;

	if (is_time && entry->is_changed)
		return 1;
	if (!is_time && row->status != COUPON_CLOSED)
		return 0;
	if (entry->is_known)
		return memcmp(&entry->told, point, sizeof(*point)) != 0;
	return point->taken > 0 || point->issued > 0 || point->settled > 0;
}

/*
 * Adds the rows of a page's coupons, in one statement if one of them is to be added. 0, or -1:
 * PostgreSQL is lost.
 */
static int curve_add(struct curve *curve, struct keeper_context *context,
		     const struct coupon_page *page)
{
	struct postgres_array coupons = { .type = POSTGRES_INT8 }, totals = coupons,
			      stocks = coupons, takens = coupons;
	PGresult *rows = NULL;
	int rc = 0;

	if (clock_monotonic_ms() < curve->again_ms)
		return 0;
	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];
		const struct curve_point point = {
			.total = look->total,
			.stock = look->stock,
			.taken = coupon_taken(look),
			.issued = row->issued,
			.settled = row->settled,
		};

		if (!coupon_is_verified(row, look, context->run_id) ||
		    !curve_is_due(curve, &point, row))
			continue;
		*curve_of(curve, row->id) = (struct curve_coupon){ .coupon = row->id,
								   .told = point };
		postgres_array_add_number(&coupons, row->id);
		postgres_array_add_number(&totals, point.total);
		postgres_array_add_number(&stocks, point.stock);
		postgres_array_add_number(&takens, point.taken);
	}
	if (coupons.n > 0)
		rows = keeper_database_query(context->database, sql_query_curve_add,
					     POSTGRES_ARGUMENTS(postgres_array(&coupons),
								postgres_array(&totals),
								postgres_array(&stocks),
								postgres_array(&takens),
								postgres_number(context->fence)));
	if (coupons.n > 0 && !rows) {
		curve->again_ms = clock_monotonic_ms() + CURVE_FAILED_MS;
		rc = keeper_context_usable(context);
	}
	for (int i = 0; i < PQntuples(rows); i++) {
		struct curve_coupon *entry = curve_of(curve, number_at(rows, i, 0));

		entry->is_known = 1;
		entry->is_changed = *PQgetvalue(rows, i, 1) != 't';
		entry->due_ms = clock_monotonic_ms() + number_at(rows, i, 2);
	}
	PQclear(rows);
	postgres_array_fini(&coupons);
	postgres_array_fini(&totals);
	postgres_array_fini(&stocks);
	postgres_array_fini(&takens);
	return rc;
}

/* What a page of coupons is. */
enum sweep_part {
	PART_NAMED,   /* by NOTIFY or by clients, whatever the sweep's position */
	PART_WATCHED, /* the next ones of the sweep */
	PART_SETTLED
};

/* Does what the coupon needs, unless it is put off. 0, or -1: the round is over. */
static int coupon_step(struct keeper_sweep *sweep, enum sweep_part part,
		       const struct coupon_row *row, const struct coupon_look *look)
{
	struct keeper_context *context = sweep->context;
	int rc;

	if (keeper_context_goes_on(context))
		return -1;
	/* A settled coupon only needs to be verified on a new Redis process. */
	if (part == PART_SETTLED ? !look->present || strcmp(look->run_id, context->run_id) == 0
				 : row->id == rebuild_big(context))
		return 0;
	if (!put_off_waits(&sweep->put_off, row->id, sweep->page_ms)) {
		context->refused = 0;
		rc = keeper_coupon_step(context, row, look, sweep->now_ms,
					sweep->config->keep_closed_s * 1000);
		if (rc < 0)
			return -1;
		sweep->acted |= rc;
		if (context->refused)
			keeper_context_put_off(&sweep->put_off, row->id);
		else
			put_off_end(&sweep->put_off, row->id);
	}
	sweep->settled_left |= part == PART_SETTLED &&
			       put_off_waits(&sweep->put_off, row->id, sweep->page_ms);
	return 0;
}

/* Does what the page's coupons need, which were just read. 0, or -1. */
static int coupons_turn(struct keeper_sweep *sweep, enum sweep_part part)
{
	struct keeper_context *context = sweep->context;
	struct coupon_page *page = &sweep->page;
	char was_absent[KEEPER_PAGE];

	/*
	 * Read their state in Redis and raise their fences. A coupon that is put off, or has other
	 * work before, is not part of what is done together.
	 */
	if (keeper_coupons_look(context, page))
		return -1;
	sweep->page_ms = clock_monotonic_ms();
	for (size_t i = 0; i < page->n; i++) {
		int is_apart = close_due(&page->rows[i], sweep->now_ms) ||
			       put_off_waits(&sweep->put_off, page->rows[i].id, sweep->page_ms);

		page->states[i] = is_apart ? PAGE_APART : PAGE_LEFT;
		was_absent[i] = !page->looks[i].present;
	}

	/* Do together what can be. */
	if (keeper_coupons_step(context, page))
		return -1;
	for (size_t i = 0; i < page->n; i++) {
		sweep->acted |= page->states[i] == PAGE_DONE ||
				(page->states[i] == PAGE_WAITS && was_absent[i]);
		if (page->states[i] == PAGE_DONE)
			put_off_end(&sweep->put_off, page->rows[i].id);
	}

	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];
		int64_t outbox_until_ms;

		if (part == PART_WATCHED) {
			if (row->status != COUPON_CLOSED && row->end_ms > 0 &&
			    row->end_ms < sweep->rest.end_ms)
				sweep->rest.end_ms = row->end_ms;
			if (keeper_watch_add(&sweep->watch, context->redis, context->run_id, row,
					     look, sweep->now_ms))
				return -1;
		}
		if (page->states[i] <= PAGE_APART && coupon_step(sweep, part, row, look))
			return -1;
		if (part != PART_WATCHED)
			continue;
		outbox_until_ms = clock_monotonic_ms() + OUTBOX_MS;
		if (outbox_until_ms < sweep->until_ms)
			outbox_until_ms = sweep->until_ms;
		if (keeper_outbox_step(sweep->outbox, row, look, outbox_until_ms))
			return -1;
	}
	return 0;
}

/* Visits these coupons. 0, or -1. */
static int named_turn(struct keeper_sweep *sweep, const int64_t *ids, size_t n)
{
	if (n == 0)
		return 0;
	if (coupon_page_read(&sweep->page, sweep->context->database, 0, ids, n))
		return -1;
	return coupons_turn(sweep, PART_NAMED);
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
	struct curve *curve = &sweep->curve;
	int64_t now_ms = clock_monotonic_ms();

	sweep->begun_ms = now_ms;
	sweep->running = 1;
	sweep->after = 0;
	if (sweep->settled_left)
		settled_begin(sweep);
	keeper_watch_begin(&sweep->watch);
	sweep->rest.is_quiet = 1;
	sweep->rest.end_ms = INT64_MAX;

	curve->is_due = now_ms >= curve->due_ms;
	if (curve->is_due)
		curve->due_ms = now_ms + CURVE_SWEEP_MS;
	if (now_ms >= curve->tidy_ms) {
		curve->tidy_ms = now_ms + CURVE_TIDY_MS;
		keeper_database_run(sweep->context->database, sql_query_curve_expire, 0, NULL);
	}
}

static void sweep_end(struct keeper_sweep *sweep)
{
	const struct watch_sums *sums = &sweep->watch.sums;
	int64_t oldest_ms;
	int has_work;

	sweep->running = 0;
	sweep->hurry = 0;
	keeper_watch_publish(&sweep->watch);
	has_work = sums->of[KEEPER_METRIC_IN_FLIGHT] || sums->of[KEEPER_METRIC_OUTBOX] ||
		   sums->of[KEEPER_METRIC_RESERVED] || sums->of[KEEPER_METRIC_UNFREED] ||
		   sums->states[WATCH_UNAVAILABLE] || sweep->put_off.coupons || sweep->settled_left;
	sweep->rest.is_rest = sweep->rest.is_quiet && !has_work;
	sweep->rest.due_ms = sweep->rest.end_ms;
	metrics_set(KEEPER_METRIC_SWEEP, clock_monotonic_ms() - sweep->begun_ms);
	oldest_ms = keeper_outbox_oldest_take(sweep->outbox);
	if (oldest_ms || sums->of[KEEPER_METRIC_OUTBOX] == 0)
		metrics_set(KEEPER_METRIC_OUTBOX_AGE,
			    oldest_ms && oldest_ms < sweep->now_ms ? sweep->now_ms - oldest_ms : 0);
}

/* Visits the next page of watched coupons. 0, or -1. */
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

/* Visits the next page of settled coupons. 0, or -1. */
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

/* Runs pages until the round is over. The next page is due at `pages_due_ms`. 0, or -1. */
static int pages_turn(struct keeper_sweep *sweep)
{
	int rc;

	/* After a change of the Redis process all coupons are verified, settled ones too. */
	if (strcmp(sweep->run_id, sweep->context->run_id) != 0) {
		memcpy(sweep->run_id, sweep->context->run_id, sizeof(sweep->run_id));
		sweep->is_new = 1;
		sweep->running = 0;
	}
	if (sweep->is_new && sweep->context->may_open) {
		sweep->is_new = 0;
		sweep->running = 0;
		sweep->hurry = 1;
		settled_begin(sweep);
	}

	sweep->acted = 0;
	if (asked_turn(sweep))
		return -1;
	if (!sweep->hurry && clock_monotonic_ms() < sweep->pages_due_ms)
		return 0;
	do {
		if (!sweep->running)
			sweep_begin(sweep);
		rc = sweep->after < INT64_MAX ? watched_turn(sweep) : settled_turn(sweep);
		if (rc == 0 && sweep->after == INT64_MAX && !sweep->settled_too)
			sweep_end(sweep);
		if (rc || (sweep->hurry && asked_turn(sweep)))
			return -1;
	} while (sweep->running && clock_monotonic_ms() < sweep->until_ms &&
		 (!sweep->rest.is_rest || sweep->hurry));
	sweep->pages_due_ms = clock_monotonic_ms();
	if (!sweep->running || !(sweep->hurry || sweep->acted))
		sweep->pages_due_ms += sweep->config->keeper_round_ms;
	return 0;
}

int keeper_sweep_round(struct keeper_sweep *sweep, int64_t *pause_ms)
{
	struct keeper_context *context = sweep->context;
	struct sweep_rest *rest = &sweep->rest;
	int64_t begun_ms = clock_monotonic_ms(), big_ms = sweep->config->keeper_lease_ms / 10;
	int64_t writes, took_ms, big;

	sweep->until_ms = begun_ms + sweep->config->keeper_round_ms / 4;
	keeper_outbox_round(sweep->outbox);
	if (redis_client_time_ms(context->redis, &sweep->now_ms) ||
	    refusals_take(&sweep->curve, context) || redis_client_writes(context->redis, &writes))
		return -1;

	/* The coupon is no longer at rest once anybody else has written to Redis. */
	writes -= context->lock.writes + sweep->curve.writes;
	if (writes != rest->writes)
		rest->is_quiet = 0;
	if (writes != rest->writes || sweep->now_ms >= rest->due_ms)
		rest->is_rest = 0;
	rest->writes = writes;

	if (changed_turn(sweep) || pages_turn(sweep))
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

	/* Continue the rebuild of a big coupon; then there is no pause. */
	big = rebuild_big(context);
	if (big == 0)
		return 0;
	context->refused = 0;
	if (rebuild_big_step(context, big_ms < BIG_MS ? big_ms : BIG_MS))
		return -1;
	*pause_ms = 0;
	if (context->refused)
		keeper_context_put_off(&sweep->put_off, big);
	else if (rebuild_big(context) == 0)
		put_off_end(&sweep->put_off, big);
	return 0;
}

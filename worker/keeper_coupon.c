#include "worker/keeper_coupon.h"

#include "common/fault.h"
#include "common/log.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_SIZE 24

static const char *number(int64_t value, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%" PRId64, value);
	return out;
}

/* Whether this is news of the coupon. */
static int tell(struct keeper_view *view, int64_t coupon, const char *event)
{
	struct keeper_told *told = &view->told[coupon % KEEPER_TOLD_N];

	if (told->coupon == coupon && told->event == event)
		return 0;
	*told = (struct keeper_told){ coupon, event };
	return 1;
}

/* The word a script answered with, copied; empty when it failed. */
static void word_take(redisReply *reply, char word[16])
{
	const redisReply *first = reply;

	word[0] = '\0';
	if (!reply)
		return;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
		first = reply->element[0];
	if (first->type == REDIS_REPLY_STRING || first->type == REDIS_REPLY_STATUS)
		snprintf(word, 16, "%s", first->str);
	freeReplyObject(reply);
}

int keeper_fenced(struct keeper_view *view)
{
	log_warn("keeper_fenced", LOG_I("fence", view->fence));
	view->fenced = 1;
	return -1;
}

/* A script that Redis refused concerns this coupon alone; a lost connection ends the round. */
static int round_over(struct keeper_view *view, const char *word)
{
	if (strcmp(word, "fenced") == 0)
		return keeper_fenced(view);
	view->refused = !*word;
	return *word || keeper_redis_connected(view->redis) ? 0 : -1;
}

static int load(struct keeper_view *view, const struct coupon_row *row)
{
	char fence[NUMBER_SIZE], generation_text[NUMBER_SIZE], version[NUMBER_SIZE], total[NUMBER_SIZE], stock[NUMBER_SIZE],
		begin[NUMBER_SIZE], end[NUMBER_SIZE], limit[NUMBER_SIZE], word[16];
	int64_t generation;
	const char *argv[11] = { number(view->fence, fence), view->run_id, generation_text,
				 number(row->version, version), coupon_status_text(row->status),
				 number(row->total, total), number(row->total - row->issued, stock), "0",
				 number(row->begin_ms, begin), number(row->end_ms, end), number(row->limit, limit) };

	if (keeper_database_generation(view->database, row->id, row->generation, view->fence, &generation))
		return -1;
	if (generation == 0)
		return keeper_fenced(view);
	number(generation, generation_text);
	fault_point(FAULT_KEEPER_AFTER_GENERATION);
	word_take(keeper_redis_coupon_eval(view->redis, lua_load, row->id, 11, argv), word);
	if (strcmp(word, "loaded") == 0) {
		tell(view, row->id, "loaded");
		log_info("coupon_loaded", LOG_I("coupon", row->id), LOG_I("generation", generation),
			 LOG_I("stock", row->total - row->issued), LOG_S("status", coupon_status_text(row->status)));
	}
	return round_over(view, word);
}

/*
 * Redis has lost a coupon, and receives of it may be in flight that it knew of. It stays unavailable: to load it as if
 * nothing had happened would promise stock that is already promised. This is where a rebuild begins.
 */
static int missing(struct keeper_view *view, const struct coupon_row *row)
{
	if (tell(view, row->id, "missing"))
		log_error("coupon_missing", LOG_I("coupon", row->id), LOG_I("generation", row->generation),
			  LOG_I("issued", row->issued), LOG_I("seq_seen", row->seq_seen));
	return 0;
}

static void behind(struct keeper_view *view, const struct coupon_row *row, const struct coupon_cache *cache)
{
	if (tell(view, row->id, "behind"))
		log_error("coupon_behind", LOG_I("coupon", row->id), LOG_I("generation", row->generation),
			  LOG_I("redis_generation", cache->generation), LOG_I("seq_seen", row->seq_seen));
}

static int verify(struct keeper_view *view, const struct coupon_row *row, const struct coupon_cache *cache)
{
	char fence[NUMBER_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE], word[16];
	const char *argv[4] = { number(view->fence, fence), view->run_id, number(row->generation, generation),
				number(row->seq_seen, seq) };

	fault_point(FAULT_KEEPER_BEFORE_VERIFY);
	word_take(keeper_redis_coupon_eval(view->redis, lua_verify, row->id, 4, argv), word);
	fault_point(FAULT_KEEPER_AFTER_VERIFY);
	if (strcmp(word, "verified") == 0) {
		tell(view, row->id, "verified");
		log_info("coupon_verified", LOG_I("coupon", row->id), LOG_I("generation", row->generation));
	} else if (strcmp(word, "behind") == 0) {
		behind(view, row, cache);
	}
	return round_over(view, word);
}

static int terms(struct keeper_view *view, const struct coupon_row *row)
{
	char version[NUMBER_SIZE], total[NUMBER_SIZE], begin[NUMBER_SIZE], end[NUMBER_SIZE], limit[NUMBER_SIZE],
		fence[NUMBER_SIZE], word[16];
	const char *argv[7] = { number(row->version, version), coupon_status_text(row->status),
				number(row->total, total),     number(row->begin_ms, begin),
				number(row->end_ms, end),      number(row->limit, limit),
				number(view->fence, fence) };

	fault_point(FAULT_KEEPER_BEFORE_TERMS);
	word_take(keeper_redis_coupon_eval(view->redis, lua_terms, row->id, 7, argv), word);
	if (strcmp(word, "applied") == 0) {
		tell(view, row->id, "terms");
		log_info("coupon_terms", LOG_I("coupon", row->id), LOG_I("version", row->version),
			 LOG_S("status", coupon_status_text(row->status)), LOG_I("total", row->total));
	} else if (strcmp(word, "taken") == 0 && tell(view, row->id, "taken")) {
		log_error("coupon_terms_refused", LOG_I("coupon", row->id), LOG_I("version", row->version),
			  LOG_I("total", row->total), LOG_S("why", "more is taken than the new total"));
	}
	return round_over(view, word);
}

/* New terms first: Redis must not open under those that were changed while it was away. */
static int terms_and_verify(struct keeper_view *view, const struct coupon_row *row, const struct coupon_cache *cache)
{
	if (cache->generation == row->generation && row->version > cache->version && terms(view, row))
		return -1;
	return verify(view, row, cache);
}

int keeper_coupon_step(struct keeper_view *view, const struct coupon_row *row, const struct coupon_cache *cache)
{
	switch (keeper_judge(row, cache, view->run_id)) {
	case COUPON_KEEP:
		return 0;
	case COUPON_LOAD:
		return load(view, row);
	case COUPON_MISSING:
		return missing(view, row);
	case COUPON_VERIFY:
		return terms_and_verify(view, row, cache);
	case COUPON_FOREIGN:
		behind(view, row, cache);
		return 0;
	case COUPON_TERMS:
		return terms(view, row);
	}
	return 0;
}

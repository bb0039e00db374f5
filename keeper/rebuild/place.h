/*
 * Opens a coupon in Redis: verifies what is there, or puts it there under a new generation
 * (lua/place.lua), with its revoked codes. The script computes the stock and puts the slots in
 * place that were filled by fill.h. The keeper's thread.
 */
#pragma once

#include "keeper/context.h"
#include "keeper/rebuild/fill.h"

struct placing {
	int64_t generation; /* the new one */
	int64_t issued;     /* PostgreSQL's rows, all of them filled */
	const char *why;    /* for the log, a constant; NULL: it is loaded for the first time */
	int64_t begun_ms;
};

/*
 * Appends the call of the script with context->fence_text, for redis_client_next(). 0, or -1: the
 * coupon has too many generations.
 */
int place_append(struct keeper_context *context, const struct snapshot *snapshot,
		 const struct placing *placing);
/*
 * Logs the reply. Whether the coupon is in place: then it has the five elements of the script.
 * `word` as of redis_word_take().
 */
int place_is_done(struct keeper_context *context, const struct snapshot *snapshot,
		  const struct placing *placing, const redisReply *reply,
		  char word[REDIS_WORD_SIZE]);

/* Marks the revoked codes that Redis does not have yet: couponctl has died meanwhile. 0, or -1. */
int codes_revoke(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look);

/*
 * Raises in PostgreSQL the highest number of each older generation of these coupons to what Redis
 * has, and to what gateways have reported to it, before a rebuild replaces that. Gateways remember
 * the latest generation only, so the next loss of Redis would lose these numbers. The coupons are
 * held, and their new generations open. 0, or -1 when Redis or PostgreSQL failed.
 */
int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n);

/*
 * After Redis was restarted: opens coupons, at most KEEPER_PAGE, on the connected Redis process if
 * no numbers are missing there: lua/verify.lua. All of them take one statement and one round trip
 * to Redis. Each of `words` gets the reply of the script, empty when Redis failed or refused.
 * Before that, all rejected receives are marked as not freed, because Redis may have lost
 * that. 0, or -1 when PostgreSQL failed.
 */
int place_verify(struct keeper_context *context, const struct coupon_row *const *rows, size_t n,
		 char (*words)[REDIS_WORD_SIZE]);

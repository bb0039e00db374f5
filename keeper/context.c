#include "keeper/context.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "keeper/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCK_NAME "keeper"
#define PUT_OFF_FIRST_MS 1000
#define PUT_OFF_LONGEST_MS 10000

static enum lock_reply renew(struct keeper_lock *lock)
{
	enum lock_reply reply = redis_lease_renew(&lock->lease);

	if (reply == LOCK_REPLY_YES)
		lock->writes += REDIS_LEASE_RENEWAL_WRITES;
	return reply;
}

int keeper_lock_take(struct keeper_context *context)
{
	struct keeper_lock *lock = &context->lock;
	const struct lock_request request = { LOCK_NAME, LOCK_EXCLUSIVE, lock->lease_ms };
	enum lock_reply reply = LOCK_REPLY_NO;
	int64_t unused;

	lock->renewed_ms = clock_monotonic_ms();
	if (lock->may_own)
		reply = renew(lock);
	/* Without an answer it may have its lease still, for whose end a new request would wait. */
	if (reply == LOCK_REPLY_NO) {
		redis_lease_begin(&lock->lease, &request);
		reply = redis_lease_take(&lock->lease, 0, &unused);
		lock->may_own = reply != LOCK_REPLY_NO;
	}
	lock->held = reply == LOCK_REPLY_YES;
	return lock->held;
}

int keeper_lock_hold(struct keeper_context *context)
{
	struct keeper_lock *lock = &context->lock;
	int64_t now_ms = clock_monotonic_ms();

	if (!lock->held)
		return -1;
	if (now_ms - lock->renewed_ms < lock->lease_ms / 3)
		return 0;
	lock->held = renew(lock) == LOCK_REPLY_YES;
	if (lock->held) {
		lock->renewed_ms = now_ms;
		return 0;
	}
	log_warn("keeper_lost", LOG_I("since_renewal_ms", now_ms - lock->renewed_ms));
	return -1;
}

void keeper_lock_release(struct keeper_context *context)
{
	if (!context->lock.held)
		return;
	context->lock.held = 0;
	redis_lease_release(&context->lock.lease);
}

int keeper_context_goes_on(struct keeper_context *context)
{
	return *context->stop || keeper_lock_hold(context) ? -1 : 0;
}

int keeper_context_usable(struct keeper_context *context)
{
	return !context->fenced && redis_client_is_open(context->redis) &&
			       postgres_fd(keeper_database_session(context->database)) >= 0
		       ? keeper_context_goes_on(context)
		       : -1;
}

int keeper_context_failed(struct keeper_context *context)
{
	context->refused = 1;
	return keeper_context_usable(context);
}

int keeper_context_word(struct keeper_context *context, const char *word)
{
	if (strcmp(word, "fenced") == 0)
		return keeper_context_fenced(context);
	return *word ? 0 : keeper_context_failed(context);
}

int keeper_context_fenced(struct keeper_context *context)
{
	if (!context->fenced)
		log_warn("keeper_fenced", LOG_I("fence", context->fence));
	context->fenced = 1;
	return -1;
}

void keeper_context_next(struct keeper_context *context, char word[REDIS_WORD_SIZE])
{
	redis_word_take(redis_client_next(context->redis), word);
	if (strcmp(word, "fenced") == 0)
		keeper_context_fenced(context);
}

const char *keeper_context_fence(struct keeper_context *context)
{
	const struct keeper_lock *lock = &context->lock;
	int64_t until_ms;

	(void)keeper_lock_hold(context);
	until_ms = lock->lease.until_ms;
	snprintf(context->fence_text, sizeof(context->fence_text),
		 "%" PRId64 ":%" PRId64 ":%" PRId64, context->fence,
		 until_ms > lock->lease_ms ? until_ms - lock->lease_ms : 0, until_ms);
	return context->fence_text;
}

int keeper_context_change(struct keeper_context *context, const char *sql, int n,
			  const struct postgres_argument *arguments, int *done)
{
	PGresult *result = keeper_database_query(context->database, sql, n, arguments);
	int elected;

	*done = 0;
	if (!result)
		return keeper_context_failed(context);
	elected = *PQgetvalue(result, 0, 0) == 't';
	*done = *PQgetvalue(result, 0, 1) == 't';
	PQclear(result);
	return elected ? 0 : keeper_context_fenced(context);
}

static struct keeper_memory *memory_of(struct keeper_context *context, int64_t coupon)
{
	struct keeper_memory *memory = &context->memory[coupon % KEEPER_MEMORY_N];

	if (memory->coupon != coupon)
		*memory = (struct keeper_memory){ .coupon = coupon };
	return memory;
}

int keeper_context_event_is_new(struct keeper_context *context, int64_t coupon, const char *event)
{
	struct keeper_memory *memory = memory_of(context, coupon);

	if (memory->event == event)
		return 0;
	memory->event = event;
	return 1;
}

int keeper_context_reserved_changed(struct keeper_context *context, int64_t coupon,
				    int64_t reserved)
{
	struct keeper_memory *memory = memory_of(context, coupon);
	int changed = memory->reserved != reserved;

	memory->reserved = reserved;
	return changed;
}

void keeper_context_put_off(struct put_off *put_off, int64_t coupon)
{
	const struct put_off_coupon *entry;

	put_off->first_ms = PUT_OFF_FIRST_MS;
	put_off->longest_ms = PUT_OFF_LONGEST_MS;
	entry = put_off_add(put_off, coupon, clock_monotonic_ms());
	log_warn("coupon_put_off", LOG_I("coupon", coupon), LOG_I("for_ms", entry->wait_ms),
		 LOG_I("failures", entry->failures));
	metrics_add(KEEPER_METRIC_PUT_OFF, 1);
}

#include "keeper/context.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "keeper/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int keeper_context_goes_on(struct keeper_context *context)
{
	return *context->stop || keeper_lock_hold(context->lock) ? -1 : 0;
}

int keeper_context_waiting(void *context)
{
	return keeper_context_goes_on(context);
}

int keeper_context_usable(struct keeper_context *context)
{
	return !context->fenced && redis_client_is_open(context->redis) &&
			       keeper_database_fd(context->database) >= 0
		       ? keeper_context_goes_on(context)
		       : -1;
}

int keeper_context_failed(struct keeper_context *context)
{
	if (!keeper_database_of_coupon(context->database) || keeper_context_usable(context))
		return -1;
	context->refused = 1;
	return 0;
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

int keeper_context_run_id_read(struct keeper_context *context)
{
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s, now_ms = clock_monotonic_ms();

	if (redis_client_process(context->redis, run_id, &uptime_s))
		return -1;
	if (strcmp(run_id, context->run_id) == 0)
		return 0;
	context->run_since_ms = *context->run_id ? now_ms : now_ms - uptime_s * 1000;
	memcpy(context->run_id, run_id, sizeof(run_id));
	return 0;
}

void keeper_context_put_off(struct put_off *put_off, int64_t coupon)
{
	const struct put_off_coupon *entry = put_off_add(put_off, coupon, clock_monotonic_ms());

	log_warn("coupon_put_off", LOG_I("coupon", coupon), LOG_I("for_ms", entry->wait_ms),
		 LOG_I("failures", entry->failures));
	keeper_metrics_add(KEEPER_METRIC_PUT_OFF, 1);
}

const char *keeper_context_fence(struct keeper_context *context, char text[KEEPER_FENCE_SIZE])
{
	struct keeper_lock *lock = context->lock;
	int64_t until_ms;

	(void)keeper_lock_hold(lock);
	until_ms = lock->lease.until_ms;
	snprintf(text, KEEPER_FENCE_SIZE, "%" PRId64 ":%" PRId64 ":%" PRId64, context->fence,
		 until_ms > lock->lease_ms ? until_ms - lock->lease_ms : 0, until_ms);
	return text;
}

int keeper_context_fenced(struct keeper_context *context)
{
	log_warn("keeper_fenced", LOG_I("fence", context->fence));
	context->fenced = 1;
	return -1;
}

int keeper_context_redis_failed(struct keeper_context *context)
{
	context->refused = 1;
	return redis_client_is_open(context->redis) ? 0 : -1;
}

int keeper_context_word(struct keeper_context *context, const char *word)
{
	if (strcmp(word, "fenced") == 0)
		return keeper_context_fenced(context);
	return *word ? 0 : keeper_context_redis_failed(context);
}

#include "keeper/context.h"

#include "common/clock.h"
#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int keeper_view_goes_on(struct keeper_view *view)
{
	return *view->stop || keeper_lock_hold(view->lock) ? -1 : 0;
}

int keeper_view_waiting(void *view)
{
	return keeper_view_goes_on(view);
}

int keeper_view_usable(struct keeper_view *view)
{
	return !view->fenced && keeper_redis_connected(view->redis) &&
			       keeper_database_fd(view->database) >= 0
		       ? keeper_view_goes_on(view)
		       : -1;
}

static struct keeper_memory *memory_of(struct keeper_view *view, int64_t coupon)
{
	struct keeper_memory *memory = &view->memory[coupon % KEEPER_MEMORY_N];

	if (memory->coupon != coupon)
		*memory = (struct keeper_memory){ .coupon = coupon };
	return memory;
}

int keeper_view_tell(struct keeper_view *view, int64_t coupon, const char *event)
{
	struct keeper_memory *memory = memory_of(view, coupon);

	if (memory->event == event)
		return 0;
	memory->event = event;
	return 1;
}

int keeper_view_reserved(struct keeper_view *view, int64_t coupon, int64_t reserved)
{
	struct keeper_memory *memory = memory_of(view, coupon);
	int changed = memory->reserved != reserved;

	memory->reserved = reserved;
	return changed;
}

int keeper_view_run_id(struct keeper_view *view)
{
	char run_id[KEEPER_RUN_ID_SIZE];
	int64_t uptime_s, now_ms = clock_monotonic_ms();

	if (keeper_redis_run_id(view->redis, run_id, &uptime_s))
		return -1;
	if (strcmp(run_id, view->run_id) == 0)
		return 0;
	view->run_since_ms = *view->run_id ? now_ms : now_ms - uptime_s * 1000;
	memcpy(view->run_id, run_id, sizeof(run_id));
	return 0;
}

int keeper_fenced(struct keeper_view *view)
{
	log_warn("keeper_fenced", LOG_I("fence", view->fence));
	view->fenced = 1;
	return -1;
}

int keeper_view_word(struct keeper_view *view, const char *word)
{
	if (strcmp(word, "fenced") == 0)
		return keeper_fenced(view);
	view->refused = !*word;
	return *word || keeper_redis_connected(view->redis) ? 0 : -1;
}

const char *keeper_number(int64_t value, char out[KEEPER_NUMBER_SIZE])
{
	snprintf(out, KEEPER_NUMBER_SIZE, "%" PRId64, value);
	return out;
}

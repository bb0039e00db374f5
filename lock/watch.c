/*
 * The thread of an owner that holds locks: renews their leases after a third, and tells the owner
 * of each lease that has ended. A renewal that fails is tried again until the lease ends.
 *
 * While it renews it has the owner's mutex: the owner waits if it takes or releases a lock then.
 */
#include "lock/state.h"

#include <time.h>

#define AGAIN_MS 100

/* A lease that was not to be renewed is given up also where the session would go on. */
static void lose(struct lock *lock)
{
	lock->until_ms = 0;
	lock->is_told = 1;
	if (!lock->options.is_watched)
		lock->owner->backend->release(lock->session);
	if (lock->owner->lost)
		lock->owner->lost(lock->owner->context, lock->name);
}

static void renew(struct lock *lock)
{
	int64_t asked_ms = lock_clock_ms();

	switch (lock->owner->backend->renew(lock->session)) {
	case LOCK_REPLY_YES:
		lock_lease_begin(lock, asked_ms);
		break;
	case LOCK_REPLY_NO:
		lose(lock);
		break;
	case LOCK_REPLY_DOWN:
	case LOCK_REPLY_ERROR:
		lock->renew_ms = lock_clock_ms() + AGAIN_MS;
		break;
	}
}

/* Does what is due for the lock. Returns when to look at it again. */
static int64_t look(struct lock *lock)
{
	if (lock->is_told)
		return INT64_MAX;
	if (lock->options.is_watched && lock_clock_ms() >= lock->renew_ms)
		renew(lock);
	if (!lock->is_told && lock_clock_ms() >= lock->until_ms)
		lose(lock);
	if (lock->is_told)
		return INT64_MAX;
	return lock->options.is_watched && lock->renew_ms < lock->until_ms ? lock->renew_ms
									   : lock->until_ms;
}

/* Until then, or until something has changed. */
static void wait_until(struct lock_owner *owner, int64_t until_ms)
{
	int64_t left_ms = until_ms - lock_clock_ms();
	struct timespec end;

	if (until_ms == INT64_MAX) {
		pthread_cond_wait(&owner->changed, &owner->mutex);
		return;
	}
	if (left_ms <= 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += left_ms / 1000;
	end.tv_nsec += left_ms % 1000 * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&owner->changed, &owner->mutex, &end);
}

void *lock_watch(void *opaque)
{
	struct lock_owner *owner = opaque;

	pthread_mutex_lock(&owner->mutex);
	while (!owner->is_stopping) {
		int64_t next_ms = INT64_MAX;

		for (struct lock *lock = owner->held; lock; lock = lock->next) {
			int64_t due_ms = look(lock);

			if (due_ms < next_ms)
				next_ms = due_ms;
		}
		wait_until(owner, next_ms);
	}
	pthread_mutex_unlock(&owner->mutex);
	return NULL;
}

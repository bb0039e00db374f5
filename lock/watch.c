/*
 * The threads of an owner that holds locks: they renew leases after a third, and tell the owner of
 * each lease that has ended. A renewal that fails is tried again until the lease ends.
 *
 * There is a thread for each lock that is held, so that a renewal never waits for that of another
 * lock. Any of them does what is due next. The store is asked without the owner's mutex: a lock
 * that is busy meanwhile stays in the list, and its session is the thread's. The owner is told
 * without it, too, and by one thread at a time.
 */
#include "lock/state.h"

#include <stdio.h>
#include <time.h>

#define AGAIN_MS 100

static int64_t due_ms(const struct lock *lock)
{
	if (lock->is_busy || lock->is_told)
		return INT64_MAX;
	return lock->options.is_watched && lock->renew_ms < lock->until_ms ? lock->renew_ms
									   : lock->until_ms;
}

/* The one that is due first; NULL: none will be. */
static struct lock *next_find(const struct lock_owner *owner)
{
	struct lock *next = NULL;

	for (struct lock *lock = owner->held; lock; lock = lock->next)
		if (due_ms(lock) < (next ? due_ms(next) : INT64_MAX))
			next = lock;
	return next;
}

static void busy_begin(struct lock *lock)
{
	lock->is_busy = 1;
	pthread_mutex_unlock(&lock->owner->mutex);
}

static void busy_end(struct lock *lock)
{
	pthread_mutex_lock(&lock->owner->mutex);
	lock->is_busy = 0;
	pthread_cond_broadcast(&lock->owner->changed);
}

/*
 * A lease that was not to be renewed is given up also where the session would go on. When the
 * owner is told it may release the lock.
 */
static void lose(struct lock *lock)
{
	struct lock_owner *owner = lock->owner;
	char name[LOCK_NAME_MAX + 1];

	lock->until_ms = 0;
	lock->is_told = 1;
	if (!lock->options.is_watched) {
		busy_begin(lock);
		owner->backend->release(lock->session);
		busy_end(lock);
	}
	if (!owner->lost)
		return;
	snprintf(name, sizeof(name), "%s", lock->name);
	owner->telling_n++;
	pthread_mutex_unlock(&owner->mutex);
	pthread_mutex_lock(&owner->telling);
	owner->lost(owner->context, name);
	pthread_mutex_unlock(&owner->telling);
	pthread_mutex_lock(&owner->mutex);
	owner->telling_n--;
}

static void renew(struct lock *lock)
{
	int64_t asked_ms = lock_clock_ms();
	enum lock_reply reply;

	busy_begin(lock);
	reply = lock->owner->backend->renew(lock->session);
	busy_end(lock);
	switch (reply) {
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
		struct lock *lock = next_find(owner);

		if (!lock || due_ms(lock) > lock_clock_ms())
			wait_until(owner, lock ? due_ms(lock) : INT64_MAX);
		else if (lock_is_held(lock))
			renew(lock);
		else
			lose(lock);
	}
	pthread_mutex_unlock(&owner->mutex);
	return NULL;
}

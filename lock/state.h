/* What owner.c shares with watch.c, which renews. */
#ifndef LOCK_STATE_H
#define LOCK_STATE_H

#include "lock/backend.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOCK_SESSIONS_MAX 8 /* kept for later locks */
#define LOCK_ERROR_SIZE 320

struct lock {
	struct lock_owner *owner;
	struct lock *next; /* of its owner */
	void *session;
	struct lock_options options;
	int64_t fence;
	int64_t renew_ms;         /* when it is to be renewed */
	_Atomic int64_t until_ms; /* the end of its lease, by lock_clock_ms() */
	int is_told;              /* its loss */
	int is_busy;              /* a watcher uses its session */
	int depth;                /* how often it is taken */
	char name[LOCK_NAME_MAX + 1];
};

struct lock_owner {
	const struct lock_backend *backend;
	const char *url;
	lock_lost_fn *lost;
	void *context;
	pthread_mutex_t mutex; /* of what follows, and of the locks that are held */
	pthread_cond_t changed;
	struct lock *held;
	int held_n;
	int telling_n; /* watchers that are telling the owner, or wait to */
	int is_stopping;
	pthread_mutex_t telling; /* `lost` is called by one of them at a time */
	/* of the owner's thread alone */
	pthread_t *watchers;
	int watchers_n;
	void *idle[LOCK_SESSIONS_MAX];
	int idle_n;
	char error[LOCK_ERROR_SIZE];
};

/* The lease that was asked for at this time is granted. */
void lock_lease_begin(struct lock *lock, int64_t asked_ms);

/* A watcher's thread: the argument is the owner. */
void *lock_watch(void *owner);

#endif

/*
 * An owner of locks, whatever the store: takes, keeps and releases them; and names of locks from
 * templates.
 *
 * The threads of an owner that holds locks renew leases after a third, and tell the owner of each
 * lease that has ended. A renewal that fails is tried again until the lease ends.
 *
 * There is a thread for each lock that is held, so that a renewal never waits for that of another
 * lock. Any of them does what is due next. The store is asked without the owner's mutex: a lock
 * that is busy meanwhile stays in the list, and its session is the thread's. The owner is told
 * without it, too, and by one thread at a time.
 */
#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/thread.h"
#include "lock/backend.h"

#include <ctype.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SESSIONS_MAX 8 /* kept for later locks */
#define ERROR_SIZE 352
#define AGAIN_MS 100
#define ARGUMENTS_MAX 32 /* of a name */

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
	struct thread *watchers;
	int watchers_n;
	void *idle[SESSIONS_MAX];
	int idle_n;
	char error[ERROR_SIZE];
};

int64_t lock_clock_ms(void)
{
	struct timespec now;

	check(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int lock_is_held(const struct lock *lock)
{
	return lock_clock_ms() < lock->until_ms;
}

/* The lease that was asked for at this time is granted. */
static void lease_begin(struct lock *lock, int64_t asked_ms)
{
	lock->until_ms = asked_ms + lock->options.lease_ms;
	lock->renew_ms = asked_ms + lock->options.lease_ms / 3;
}

static int64_t due_ms(const struct lock *lock)
{
	if (lock->is_busy || lock->is_told)
		return INT64_MAX;
	return lock->options.is_watched && lock->renew_ms < lock->until_ms ? lock->renew_ms
									   : lock->until_ms;
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
		lock->is_busy = 1;
		pthread_mutex_unlock(&owner->mutex);
		owner->backend->release(lock->session);
		pthread_mutex_lock(&owner->mutex);
		lock->is_busy = 0;
		pthread_cond_broadcast(&owner->changed);
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
	struct lock_owner *owner = lock->owner;
	int64_t asked_ms = lock_clock_ms();
	enum lock_reply reply;

	lock->is_busy = 1;
	pthread_mutex_unlock(&owner->mutex);
	reply = owner->backend->renew(lock->session);
	pthread_mutex_lock(&owner->mutex);
	lock->is_busy = 0;
	pthread_cond_broadcast(&owner->changed);

	switch (reply) {
	case LOCK_REPLY_YES:
		lease_begin(lock, asked_ms);
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

/* A thread: the argument is the owner. */
static void *watch(void *opaque)
{
	struct lock_owner *owner = opaque;

	pthread_mutex_lock(&owner->mutex);
	while (!owner->is_stopping) {
		struct lock *next = NULL; /* is due first; NULL: none will be */
		int64_t left_ms, end_ms;

		for (struct lock *lock = owner->held; lock; lock = lock->next)
			if (due_ms(lock) < (next ? due_ms(next) : INT64_MAX))
				next = lock;
		left_ms = next ? due_ms(next) - lock_clock_ms() : 0;
		if (!next) {
			pthread_cond_wait(&owner->changed, &owner->mutex);
		} else if (left_ms > 0) {
			end_ms = clock_monotonic_ms() + left_ms;
			pthread_cond_clockwait(&owner->changed, &owner->mutex, CLOCK_MONOTONIC,
					       &(struct timespec){ .tv_sec = end_ms / 1000,
								   .tv_nsec = end_ms % 1000 *
									      1000000 });
		} else if (lock_is_held(next)) {
			renew(next);
		} else {
			lose(next);
		}
	}
	pthread_mutex_unlock(&owner->mutex);
	return NULL;
}

struct lock_owner *lock_owner_new(enum lock_backend_id backend, const char *url, lock_lost_fn *lost,
				  void *context)
{
	static const struct lock_backend *const backends[] = {
		[LOCK_REDIS] = &lock_redis,
		[LOCK_POSTGRES] = &lock_postgres,
#ifdef WITH_ZOOKEEPER
		[LOCK_ZOOKEEPER] = &lock_zookeeper,
#else
		[LOCK_ZOOKEEPER] = NULL,
#endif
	};
	struct lock_owner *owner;

	if (!backends[backend])
		return NULL;
	owner = checked(calloc(1, sizeof(*owner)));
	owner->backend = backends[backend];
	owner->url = url;
	owner->lost = lost;
	owner->context = context;
	check(pthread_mutex_init(&owner->mutex, NULL) == 0);
	check(pthread_mutex_init(&owner->telling, NULL) == 0);
	check(pthread_cond_init(&owner->changed, NULL) == 0);
	return owner;
}

void lock_owner_free(struct lock_owner *owner)
{
	if (!owner)
		return;
	while (owner->held) {
		owner->held->depth = 1;
		lock_release(owner->held);
	}

	pthread_mutex_lock(&owner->mutex);
	owner->is_stopping = 1;
	pthread_cond_broadcast(&owner->changed);
	pthread_mutex_unlock(&owner->mutex);
	while (owner->watchers_n > 0)
		thread_join(&owner->watchers[--owner->watchers_n]);
	free(owner->watchers);

	while (owner->idle_n > 0)
		owner->backend->close(owner->idle[--owner->idle_n]);
	pthread_cond_destroy(&owner->changed);
	pthread_mutex_destroy(&owner->telling);
	pthread_mutex_destroy(&owner->mutex);
	free(owner);
}

const char *lock_error(const struct lock_owner *owner)
{
	return owner->error;
}

static enum lock_result refuse(struct lock_owner *owner, const char *why)
{
	snprintf(owner->error, sizeof(owner->error), "%s", why);
	return LOCK_REFUSED;
}

static void session_put(struct lock_owner *owner, void *session, enum lock_reply last)
{
	if (last == LOCK_REPLY_DOWN || last == LOCK_REPLY_ERROR)
		snprintf(owner->error, sizeof(owner->error), "%s: %s", owner->backend->name,
			 owner->backend->why(session));
	if (last != LOCK_REPLY_DOWN && owner->idle_n < SESSIONS_MAX)
		owner->idle[owner->idle_n++] = session;
	else
		owner->backend->close(session);
}

/* Takes a name that the owner does not hold. */
static enum lock_result take_new(struct lock_owner *owner, const char *name,
				 const struct lock_options *options, struct lock **taken)
{
	const struct lock_request request = { .name = name,
					      .kind = options->kind,
					      .lease_ms = options->lease_ms };
	void *session = owner->idle_n > 0 ? owner->idle[--owner->idle_n]
					  : owner->backend->open(owner->url);
	int64_t begun_ms = lock_clock_ms(), left_ms = options->wait_ms, pause_ms;
	struct backoff backoff = { 0 };
	struct lock_grant grant;
	enum lock_reply reply;
	struct lock *lock;
	int is_watcher_missing;

	/* Waits as long as the options let it, also for a store that cannot be reached. */
	for (;;) {
		reply = owner->backend->take(session, &request, left_ms, &grant);
		if (reply != LOCK_REPLY_DOWN || left_ms <= 0)
			break;
		pause_ms = backoff_ms(&backoff);
		poll(NULL, 0, (int)(pause_ms < left_ms ? pause_ms : left_ms));
		left_ms = options->wait_ms - (lock_clock_ms() - begun_ms);
		if (left_ms <= 0)
			break;
	}

	if (reply != LOCK_REPLY_YES) {
		session_put(owner, session, reply);
		if (reply == LOCK_REPLY_NO)
			return options->skips ? LOCK_SKIPPED : LOCK_FAILED;
		return reply == LOCK_REPLY_DOWN ? LOCK_UNREACHABLE : LOCK_REFUSED;
	}

	*taken = lock = checked(calloc(1, sizeof(*lock)));
	lock->owner = owner;
	lock->session = session;
	lock->options = *options;
	lock->fence = grant.fence;
	lock->depth = 1;
	snprintf(lock->name, sizeof(lock->name), "%s", name);
	lease_begin(lock, grant.asked_ms);
	pthread_mutex_lock(&owner->mutex);
	lock->next = owner->held;
	owner->held = lock;
	owner->held_n++;
	is_watcher_missing = owner->watchers_n - owner->telling_n < owner->held_n;
	pthread_cond_broadcast(&owner->changed);
	pthread_mutex_unlock(&owner->mutex);

	if (is_watcher_missing) {
		size_t n = (size_t)owner->watchers_n++;

		owner->watchers = checked(
			realloc(owner->watchers, (n + 1) * sizeof(*owner->watchers)));
		thread_start(&owner->watchers[n], watch, owner);
	}
	return LOCK_TAKEN;
}

enum lock_result lock_take(struct lock_owner *owner, const char *name,
			   const struct lock_options *options, struct lock **lock)
{
	struct lock *held;
	size_t len = 0;

	*lock = NULL;
	owner->error[0] = '\0';
	while (name[len] >= '!' && name[len] <= '~')
		len++;
	if (len == 0 || len > LOCK_NAME_MAX || name[len] || name[0] == '}') /* {} is no hash tag */
		return refuse(owner, "the name must be 1 to 200 bytes of printable ASCII without "
				     "spaces, and must not begin with }");
	if (options->lease_ms < LOCK_LEASE_LEAST_MS || options->lease_ms > LOCK_LEASE_MOST_MS ||
	    options->wait_ms < 0)
		return refuse(owner, "the lease must be 100 to 86400000 ms, the wait 0 or more");
	for (held = owner->held; held; held = held->next) /* only this thread changes the list */
		if (strcmp(held->name, name) == 0)
			break;
	if (!held) {
		if (owner->backend->url_check &&
		    owner->backend->url_check(owner->url, owner->error, sizeof(owner->error)))
			return LOCK_REFUSED;
		return take_new(owner, name, options, lock);
	}

	/* The owner has it: once more. */
	*lock = held;
	if (!lock_is_held(held))
		return refuse(owner, "its lease has ended: release it first");
	if (held->options.kind == LOCK_READ && options->kind != LOCK_READ)
		return refuse(owner, "a reader cannot become a writer: release it first");
	held->depth++;
	return LOCK_TAKEN;
}

int64_t lock_fence(const struct lock *lock)
{
	return lock->fence;
}

int lock_release(struct lock *lock)
{
	struct lock_owner *owner = lock->owner;
	struct lock **link = &owner->held;
	enum lock_reply reply;
	int was_held;

	owner->error[0] = '\0';
	if (--lock->depth > 0)
		return lock_is_held(lock) ? 0 : -1;

	/* Out of the list no watcher uses it. One that does now comes to its end first. */
	pthread_mutex_lock(&owner->mutex);
	while (lock->is_busy)
		pthread_cond_wait(&owner->changed, &owner->mutex);
	while (*link != lock)
		link = &(*link)->next;
	*link = lock->next;
	owner->held_n--;
	pthread_mutex_unlock(&owner->mutex);

	was_held = lock_is_held(lock);
	reply = owner->backend->release(lock->session);
	session_put(owner, lock->session, reply);
	free(lock);
	return was_held && reply == LOCK_REPLY_YES ? 0 : -1;
}

/* Names from templates */

__attribute__((format(printf, 2, 3))) static int name_refuse(char why[LOCK_NAME_WHY_SIZE],
							     const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, LOCK_NAME_WHY_SIZE, format, arguments);
	va_end(arguments);
	return -1;
}

static int name_write(FILE *out, const char *template, const struct lock_argument *arguments,
		      size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	uint32_t used = 0;
	size_t len, i;

	if (n > ARGUMENTS_MAX)
		return name_refuse(why, "there are more than %d arguments", ARGUMENTS_MAX);
	for (const char *p = template; *p; p++) {
		if (*p == '}')
			return name_refuse(why, "the template has a } without {");
		if (*p != '{') {
			fputc(*p, out);
			continue;
		}
		len = strcspn(++p, "{}");
		if (p[len] != '}' || len == 0)
			return name_refuse(why, "the template has a { without a name and }");
		for (i = 0; i < n; i++)
			if (strlen(arguments[i].name) == len &&
			    memcmp(arguments[i].name, p, len) == 0)
				break;
		if (i == n)
			return name_refuse(why, "there is no argument {%.*s}",
					   (int)(len < 64 ? len : 64), p);
		used |= (uint32_t)1 << i;
		for (const char *value = arguments[i].value; *value; value++)
			fprintf(out,
				isalnum((unsigned char)*value) || strchr("-._~|@", *value)
					? "%c"
					: "%%%02X",
				(unsigned char)*value);
		p += len;
	}
	for (i = 0; i < n; i++)
		if (!(used & (uint32_t)1 << i))
			return name_refuse(why, "the template has no {%.64s}", arguments[i].name);
	return 0;
}

int lock_name_format(char out[LOCK_NAME_SIZE], const char *name_template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	size_t len;
	char *text;
	FILE *stream = checked(open_memstream(&text, &len));
	int rc = name_write(stream, name_template, arguments, n, why);

	check(fclose(stream) == 0);
	if (rc == 0 && len > LOCK_NAME_MAX)
		rc = name_refuse(why, "the name has %zu bytes: at most %d are allowed", len,
				 LOCK_NAME_MAX);
	if (rc == 0)
		memcpy(out, text, len + 1);
	free(text);
	return rc;
}

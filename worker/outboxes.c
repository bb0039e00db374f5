/*
 *	loop ──outboxes_settled()──▶ settled ──outboxes_send()──▶ inbox ──▶ work ──script──▶ Redis
 *	     ──outboxes_dead()──────────────────────────────────▶ inbox ──▶ work ──SADD────▶
 *
 * The loop owns `settled`, the thread `work` and the connection. A batch stays in `work` until
 * Redis has replied, so after a lost connection it is sent again: both commands may run twice.
 *
 * The numbers of transactions go the same way, and stay until `work` is empty. Each round copies
 * them, and removes batches only after Redis has replied to that.
 */
#include "worker/outboxes.h"

#include "common/backoff.h"
#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/client.h"
#include "embed.h"
#include "worker/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#define MANY 512        /* with so many batches the thread waits for no more */
#define BATCHES_MAX 64  /* of one command, as of lua/settled.lua */
#define COMMANDS_MAX 64 /* sent before their replies are read */
#define SHA_SIZE 41
#define BATCH_SIZE (ULID_SIZE + NUMBER_SIZE) /* 'BATCH:AT' */

enum kind { KIND_SETTLED, KIND_DEAD, KINDS };

struct entry {
	STAILQ_ENTRY(entry) next;
	int64_t coupon;
	struct ulid batch;
	/* of a settled one: */
	int64_t at_ms;
	char **rejected; /* 'BATCH:INDEX:SLOT:REASON:USER' */
	size_t rejected_n;
};

STAILQ_HEAD(entry_head, entry);

struct entry_list {
	struct entry_head head;
	size_t size; /* entries and their rejected receives */
};

struct outboxes {
	pthread_t thread;

	/* of the loop */
	struct entry_list settled;
	struct entry *last; /* of `settled` */
	struct changes changes;

	pthread_mutex_t mutex; /* guards from here … */
	pthread_cond_t changed;
	struct entry_list inbox[KINDS];
	struct changes inbox_changes;
	size_t held[KINDS];      /* the sizes of `inbox` and `work` */
	int64_t since_ms[KINDS]; /* when the oldest of them came */
	/* … to here */
	atomic_int_least64_t stop_by_ms; /* 0: not stopping */

	/* of the thread */
	struct redis_client *redis;
	struct entry_list work[KINDS];
	struct changes work_changes;
	char settled_sha[SHA_SIZE];
	int64_t retry_ms[KINDS]; /* after a failure: nothing is sent before; 0: none */
	struct backoff backoff[KINDS];
};

static void list_init(struct entry_list *list)
{
	STAILQ_INIT(&list->head);
	list->size = 0;
}

static int list_is_empty(const struct entry_list *list)
{
	return STAILQ_EMPTY(&list->head);
}

static void list_add(struct entry_list *list, struct entry *entry)
{
	STAILQ_INSERT_TAIL(&list->head, entry, next);
	list->size += 1 + entry->rejected_n;
}

static struct entry *list_take(struct entry_list *list)
{
	struct entry *entry = STAILQ_FIRST(&list->head);

	STAILQ_REMOVE_HEAD(&list->head, next);
	list->size -= 1 + entry->rejected_n;
	return entry;
}

/* Appends a list, which is empty afterwards. */
static void list_join(struct entry_list *list, struct entry_list *other)
{
	STAILQ_CONCAT(&list->head, &other->head);
	list->size += other->size;
	other->size = 0;
}

static struct entry *entry_new(int64_t coupon, const struct ulid *batch)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	check(entry != NULL);
	entry->coupon = coupon;
	entry->batch = *batch;
	return entry;
}

static void entry_free(struct entry *entry)
{
	for (size_t i = 0; i < entry->rejected_n; i++)
		free(entry->rejected[i]);
	free(entry->rejected);
	free(entry);
}

static void entries_free(struct entry_list *list, size_t n)
{
	for (; n > 0; n--)
		entry_free(list_take(list));
}

/* The first `n` batches. */
static void forget(struct entry_list *list, size_t n, const char *why)
{
	entries_free(list, n);
	metrics_count(METRIC_OUTBOX_FORGOTTEN, (int64_t)n);
	log_warn("outbox_forgotten", LOG_I("batches", n), LOG_S("why", why));
}

static void forget_all(struct entry_list *list, const char *why)
{
	const struct entry *entry;
	size_t n = 0;

	STAILQ_FOREACH (entry, &list->head, next) {
		n++;
	}
	if (n > 0)
		forget(list, n, why);
}

/* Hands a list over to the thread; afterwards it is empty. */
static void hand_over(struct outboxes *outboxes, enum kind kind, struct entry_list *list)
{
	size_t before, after;

	pthread_mutex_lock(&outboxes->mutex);
	before = outboxes->held[kind];
	after = before + list->size;
	if (after <= OUTBOXES_HELD_MAX) {
		list_join(&outboxes->inbox[kind], list);
		outboxes->held[kind] = after;
		if (before == 0)
			outboxes->since_ms[kind] = clock_monotonic_ms();
		if (before == 0 || (before < MANY && after >= MANY))
			pthread_cond_signal(&outboxes->changed);
	}
	changes_raise(&outboxes->inbox_changes, &outboxes->changes);
	pthread_mutex_unlock(&outboxes->mutex);
	forget_all(list, "too many wait for Redis");
}

int outboxes_changed(struct outboxes *outboxes, const char *number)
{
	return changes_add(&outboxes->changes, number);
}

void outboxes_settled(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch,
		      int64_t at_ms)
{
	struct entry *entry = entry_new(coupon, batch);

	entry->at_ms = at_ms;
	outboxes->last = entry;
	list_add(&outboxes->settled, entry);
}

void outboxes_rejected(struct outboxes *outboxes, size_t index, int slot, const char *reason,
		       const struct user_id *user)
{
	struct entry *entry = outboxes->last;
	char batch[ULID_SIZE], **text;

	entry->rejected = realloc(entry->rejected, (entry->rejected_n + 1) * sizeof(*text));
	check(entry->rejected != NULL);
	text = &entry->rejected[entry->rejected_n++];
	outboxes->settled.size++;
	check(asprintf(text, "%s:%zu:%d:%s:%s", ulid_format(&entry->batch, batch), index, slot,
		       reason, user->text) > 0);
}

void outboxes_send(struct outboxes *outboxes)
{
	if (list_is_empty(&outboxes->settled))
		return;
	hand_over(outboxes, KIND_SETTLED, &outboxes->settled);
	memset(&outboxes->changes, 0, sizeof(outboxes->changes));
}

void outboxes_dead(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch)
{
	struct entry_list list;

	list_init(&list);
	list_add(&list, entry_new(coupon, batch));
	hand_over(outboxes, KIND_DEAD, &list);
}

/* The thread: waiting */

/* When batches of the kind are to be sent; INT64_MAX: there are none. */
static int64_t kind_due_ms(const struct outboxes *outboxes, enum kind kind)
{
	if (outboxes->held[kind] == 0)
		return INT64_MAX;
	if (outboxes->retry_ms[kind])
		return outboxes->retry_ms[kind];
	return outboxes->held[kind] >= MANY ? 0 : outboxes->since_ms[kind] + OUTBOXES_GATHER_MS;
}

static int64_t due_ms(const struct outboxes *outboxes)
{
	int64_t settled_ms = kind_due_ms(outboxes, KIND_SETTLED),
		dead_ms = kind_due_ms(outboxes, KIND_DEAD);

	return settled_ms < dead_ms ? settled_ms : dead_ms;
}

static void changed_wait(struct outboxes *outboxes, int64_t until_ms)
{
	struct timespec until = { .tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000 };

	if (until_ms == INT64_MAX)
		pthread_cond_wait(&outboxes->changed, &outboxes->mutex);
	else
		pthread_cond_timedwait(&outboxes->changed, &outboxes->mutex, &until);
}

/* Whether batches of the kind are sent now; while it stops, those that did not fail before. */
static int kind_is_due(const struct outboxes *outboxes, enum kind kind)
{
	if (outboxes->stop_by_ms)
		return outboxes->held[kind] > 0 && !outboxes->retry_ms[kind] &&
		       clock_monotonic_ms() < outboxes->stop_by_ms;
	return kind_due_ms(outboxes, kind) <= clock_monotonic_ms();
}

/* Waits until there is something to send, and takes it. 0: the thread is to end. */
static int work_take(struct outboxes *outboxes, int is_due[KINDS])
{
	int64_t until_ms;

	pthread_mutex_lock(&outboxes->mutex);
	while (!outboxes->stop_by_ms && (until_ms = due_ms(outboxes)) > clock_monotonic_ms())
		changed_wait(outboxes, until_ms);
	for (int kind = 0; kind < KINDS; kind++) {
		list_join(&outboxes->work[kind], &outboxes->inbox[kind]);
		is_due[kind] = kind_is_due(outboxes, kind);
	}
	changes_raise(&outboxes->work_changes, &outboxes->inbox_changes);
	memset(&outboxes->inbox_changes, 0, sizeof(outboxes->inbox_changes));
	pthread_mutex_unlock(&outboxes->mutex);
	return is_due[KIND_SETTLED] || is_due[KIND_DEAD] || !outboxes->stop_by_ms;
}

/* The thread: sending */

static void failed(struct outboxes *outboxes, enum kind kind)
{
	outboxes->retry_ms[kind] = clock_monotonic_ms() + backoff_ms(&outboxes->backoff[kind]);
}

static void succeeded(struct outboxes *outboxes, enum kind kind)
{
	outboxes->retry_ms[kind] = 0;
	backoff_reset(&outboxes->backoff[kind]);
}

/* A settled batch as arguments of lua/settled.lua. */
static size_t settled_put(const struct entry *entry, char batch[BATCH_SIZE], const char **argv)
{
	char ulid[ULID_SIZE], number[NUMBER_SIZE];

	snprintf(batch, BATCH_SIZE, "%s:%s", ulid_format(&entry->batch, ulid),
		 number_text(entry->at_ms, number));
	argv[0] = batch;
	for (size_t i = 0; i < entry->rejected_n; i++)
		argv[1 + i] = entry->rejected[i];
	return 1 + entry->rejected_n;
}

/*
 * Appends the command for `*at` and those of the same coupon that follow it, and moves `*at` behind
 * them. Returns how many they are.
 */
static size_t settled_append(struct outboxes *outboxes, const struct entry **at)
{
	char batches[BATCHES_MAX][BATCH_SIZE];
	const char *argv[REDIS_CLIENT_ARGS_MAX];
	int64_t coupon = (*at)->coupon;
	size_t n = 0, argc = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		if (argc + 1 + (*at)->rejected_n > REDIS_CLIENT_ARGS_MAX)
			break;
		argc += settled_put(*at, batches[n], argv + argc);
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append_coupon_evalsha(outboxes->redis, outboxes->settled_sha, coupon,
					   COUPON_KEYS_SETTLED, (int)argc, argv);
	return n;
}

/* The same for dead ones. */
static size_t dead_append(struct outboxes *outboxes, const struct entry **at)
{
	char key[COUPON_KEY_SIZE], seconds[NUMBER_SIZE], batches[BATCHES_MAX][ULID_SIZE];
	int64_t coupon = (*at)->coupon;
	const char *sadd[2 + BATCHES_MAX] = { "SADD", coupon_key(coupon, COUPON_KEY_DEAD, key) };
	const char *expire[] = { "EXPIRE", key, number_text(OUTBOXES_DEAD_S, seconds) };
	size_t n = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		sadd[2 + n] = ulid_format(&(*at)->batch, batches[n]);
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append(outboxes->redis, (int)(2 + n), sadd);
	redis_client_append(outboxes->redis, 3, expire);
	return n;
}

/* The number that Redis replied; -1: it refused, or the connection is lost. */
static int64_t reply_take(struct outboxes *outboxes, enum kind kind)
{
	redisReply *reply = redis_client_next(outboxes->redis);
	int64_t number = reply ? redis_reply_number(reply) : -1;

	if (reply)
		freeReplyObject(reply);
	if (kind == KIND_DEAD && (reply = redis_client_next(outboxes->redis)))
		freeReplyObject(reply); /* of EXPIRE */
	return number;
}

static void work_rotate(struct entry_list *work, size_t n)
{
	for (; n > 0; n--)
		list_add(work, list_take(work));
}

/*
 * Reads the reply to the command for the first `n` batches of the work. 0 when these are finished,
 * or -1; a refused addition is not, because Redis refuses it when it is out of memory.
 */
static int command_finish(struct outboxes *outboxes, enum kind kind, size_t n)
{
	int64_t number = reply_take(outboxes, kind);

	if (number < 0 && !redis_client_is_open(outboxes->redis))
		return -1;
	if (number < 0 && kind == KIND_DEAD) {
		work_rotate(&outboxes->work[kind], n);
		return -1;
	}
	if (number < 0) {
		forget(&outboxes->work[kind], n, redis_client_error(outboxes->redis));
		return 0;
	}
	if (kind == KIND_SETTLED)
		metrics_count(METRIC_OUTBOX_REMOVED, number);
	entries_free(&outboxes->work[kind], n);
	return 0;
}

static int is_over(const struct outboxes *outboxes)
{
	return outboxes->stop_by_ms && clock_monotonic_ms() >= outboxes->stop_by_ms;
}

/* Copies the numbers. Returns whether there were any. */
static int changes_append(struct outboxes *outboxes)
{
	char texts[CHANGES_STRIPES][2][NUMBER_SIZE];
	const char *argv[4 + 2 * CHANGES_STRIPES] = { "EVAL", lua_changes, "1", CHANGES_KEY };
	int argc = 4;

	for (int i = 0; i < CHANGES_STRIPES; i++) {
		if (outboxes->work_changes.num[i] == 0)
			continue;
		argv[argc++] = number_text(i, texts[i][0]);
		argv[argc++] = number_text(outboxes->work_changes.num[i], texts[i][1]);
	}
	if (argc > 4)
		redis_client_append(outboxes->redis, argc, argv);
	return argc > 4;
}

/*
 * What comes before removals, in a round trip of its own: should Redis refuse it, nothing is
 * removed. 0, or -1.
 */
static int removals_prepare(struct outboxes *outboxes)
{
	const char *load[] = { "SCRIPT", "LOAD", lua_settled };
	redisReply *reply;
	int has_changes, rc;

	redis_client_append(outboxes->redis, 3, load); /* each time: it may be flushed */
	has_changes = changes_append(outboxes);
	reply = redis_client_next(outboxes->redis);
	rc = reply && reply->type == REDIS_REPLY_STRING && reply->len < SHA_SIZE ? 0 : -1;
	if (rc == 0)
		memcpy(outboxes->settled_sha, reply->str, (size_t)reply->len + 1);
	if (reply)
		freeReplyObject(reply);
	if (!has_changes)
		return rc;
	reply = redis_client_next(outboxes->redis);
	if (!reply)
		return -1;
	freeReplyObject(reply);
	return rc;
}

/* Sends commands, as many as fit into one round trip. 0, or -1: some are not finished. */
static int commands_send(struct outboxes *outboxes, enum kind kind)
{
	const struct entry *at = STAILQ_FIRST(&outboxes->work[kind].head);
	size_t counts[COMMANDS_MAX], n = 0;
	int rc = 0;

	for (; at && n < COMMANDS_MAX; n++)
		counts[n] = kind == KIND_SETTLED ? settled_append(outboxes, &at)
						 : dead_append(outboxes, &at);
	for (size_t i = 0; i < n; i++)
		if (is_over(outboxes) || command_finish(outboxes, kind, counts[i]))
			rc = -1;
	return rc;
}

/* Sends what is there of the kind, as far as it fits. 0, or -1: not all. */
static int kind_send(struct outboxes *outboxes, enum kind kind)
{
	struct entry_list *work = &outboxes->work[kind];
	int rc = 0;

	fault_point(FAULT_WORKER_BEFORE_REMOVE);
	if (kind == KIND_SETTLED)
		rc = removals_prepare(outboxes);
	if (rc == 0 && !is_over(outboxes))
		rc = commands_send(outboxes, kind);
	if (kind == KIND_SETTLED && list_is_empty(work))
		memset(&outboxes->work_changes, 0, sizeof(outboxes->work_changes));
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->held[kind] = outboxes->inbox[kind].size + work->size;
	if (list_is_empty(work)) /* what is held came meanwhile */
		outboxes->since_ms[kind] = clock_monotonic_ms();
	pthread_mutex_unlock(&outboxes->mutex);
	return rc;
}

static void round_run(struct outboxes *outboxes, const int is_due[KINDS])
{
	redis_client_open(outboxes->redis);
	for (int kind = 0; kind < KINDS; kind++) {
		if (!is_due[kind] || is_over(outboxes))
			continue;
		if (redis_client_is_open(outboxes->redis) && kind_send(outboxes, kind) == 0)
			succeeded(outboxes, kind);
		else
			failed(outboxes, kind);
	}
}

static void *run(void *argument)
{
	struct outboxes *outboxes = argument;
	int is_due[KINDS];

	while (work_take(outboxes, is_due))
		round_run(outboxes, is_due);
	return NULL;
}

static void redis_failed(enum redis_failure failure, const char *why)
{
	(void)failure;
	log_warn("outbox_failed", LOG_S("why", why));
}

static void changed_init(pthread_cond_t *changed)
{
	pthread_condattr_t attributes;

	check(pthread_condattr_init(&attributes) == 0);
	check(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
	check(pthread_cond_init(changed, &attributes) == 0);
	pthread_condattr_destroy(&attributes);
}

struct outboxes *outboxes_start(const char *redis_url)
{
	struct outboxes *outboxes = calloc(1, sizeof(*outboxes));

	check(outboxes != NULL);
	list_init(&outboxes->settled);
	for (int kind = 0; kind < KINDS; kind++) {
		list_init(&outboxes->inbox[kind]);
		list_init(&outboxes->work[kind]);
	}
	outboxes->redis = redis_client_new(redis_url, redis_failed);
	changed_init(&outboxes->changed);
	check(pthread_mutex_init(&outboxes->mutex, NULL) == 0);
	check(pthread_create(&outboxes->thread, NULL, run, outboxes) == 0);
	return outboxes;
}

void outboxes_stop(struct outboxes *outboxes)
{
	if (!outboxes)
		return;
	outboxes_send(outboxes);
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->stop_by_ms = clock_monotonic_ms() + OUTBOXES_STOP_MS;
	pthread_cond_signal(&outboxes->changed);
	pthread_mutex_unlock(&outboxes->mutex);
	pthread_join(outboxes->thread, NULL);
	for (int kind = 0; kind < KINDS; kind++)
		forget_all(&outboxes->work[kind], "the worker ends");
	redis_client_free(outboxes->redis);
	pthread_cond_destroy(&outboxes->changed);
	pthread_mutex_destroy(&outboxes->mutex);
	free(outboxes);
}

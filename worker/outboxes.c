/*
 *	loop ──outboxes_settled()──▶ settled ──outboxes_send()──▶ inbox ──▶ work ──script──▶ Redis
 *	     ──outboxes_dead()──────────────────────────────────▶ inbox ──▶ work ──SADD────▶
 *
 *	     ──look, write──▶ asked ──▶ commands ──▶ answered ──▶ loop
 *
 * The loop owns `settled`, the thread `work` and the connection. A batch stays in `work` until
 * Redis has replied, so after a lost connection it is sent again: both commands may run twice.
 *
 * The numbers of transactions go the same way, and stay until `work` is empty. Each round copies
 * them, and removes batches only after Redis has replied to that. All of `work` was settled by one
 * server: another one empties it.
 */
#include "worker/outboxes.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/client.h"
#include "common/thread.h"
#include "coupon/restore.h"
#include "embed.h"
#include "worker/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MANY 16384       /* with so many batches the thread waits for no more */
#define WAIT_MS 60000    /* at most, and then it looks again */
#define COMMANDS_MAX 256 /* sent before their replies are read */

#define DEAD_S 2592000 /* 30 days: the set of dead ones expires so long after the last */
#define BATCHES_MAX 64 /* of one command, as of lua/settled.lua */
#define OTHER_SERVER "settled by another server of PostgreSQL"
#define BATCH_SIZE (ULID_SIZE + NUMBER_SIZE) /* 'BATCH:AT' */

/* Lists of batches that have come to their end. */

struct entry {
	STAILQ_ENTRY(entry) next;
	int64_t coupon;
	struct ulid batch;
	/* of a settled one: */
	int64_t at_ms;
	char **rejected; /* 'BATCH:INDEX:SLOT:REASON:USER' */
	size_t rejected_n;
	UT_hash_handle hh; /* while they are grouped */
};

struct entries {
	STAILQ_HEAD(, entry) head;
	size_t size; /* entries and their rejected receives; 0: it is empty */
};

static void append(struct entries *entries, struct entry *entry)
{
	STAILQ_INSERT_TAIL(&entries->head, entry, next);
	entries->size += 1 + entry->rejected_n;
}

static struct entry *take(struct entries *entries)
{
	struct entry *entry = STAILQ_FIRST(&entries->head);

	STAILQ_REMOVE_HEAD(&entries->head, next);
	entries->size -= 1 + entry->rejected_n;
	return entry;
}

static struct entry *entries_add(struct entries *entries, int64_t coupon, const struct ulid *batch)
{
	struct entry *entry = checked(calloc(1, sizeof(*entry)));

	entry->coupon = coupon;
	entry->batch = *batch;
	append(entries, entry);
	return entry;
}

/* Appends a list, which is empty afterwards. */
static void entries_join(struct entries *entries, struct entries *other)
{
	STAILQ_CONCAT(&entries->head, &other->head);
	entries->size += other->size;
	other->size = 0;
}

/* Brings the entries of each coupon together, in their order. */
static void entries_group(struct entries *entries)
{
	struct entries grouped = { .size = entries->size };
	struct entry *entry, *last, *lasts = NULL; /* the last one of each coupon */

	STAILQ_INIT(&grouped.head);
	while ((entry = STAILQ_FIRST(&entries->head))) {
		STAILQ_REMOVE_HEAD(&entries->head, next);
		HASH_REPLACE(hh, lasts, coupon, sizeof(entry->coupon), entry, last);
		if (last)
			STAILQ_INSERT_AFTER(&grouped.head, last, entry, next);
		else
			STAILQ_INSERT_TAIL(&grouped.head, entry, next);
	}
	HASH_CLEAR(hh, lasts);
	entries->size = 0;
	entries_join(entries, &grouped);
}

/* The first `n`, or all. Returns how many these are. */
static size_t entries_free(struct entries *entries, size_t n)
{
	size_t freed = 0;

	for (; freed < n && entries->size > 0; freed++) {
		struct entry *entry = take(entries);

		for (size_t i = 0; i < entry->rejected_n; i++)
			free(entry->rejected[i]);
		free(entry->rejected);
		free(entry);
	}
	return freed;
}

/* As entries_free(), but logs and counts them. */
static void entries_forget(struct entries *entries, size_t n, const char *why)
{
	n = entries_free(entries, n);
	if (n == 0)
		return;
	metrics_add(METRIC_OUTBOX_FORGOTTEN, (int64_t)n);
	log_warn("outbox_forgotten", LOG_I("batches", n), LOG_S("why", why));
}

enum kind { KIND_SETTLED, KIND_DEAD, KINDS };

/* A question, or messages to write, of copies.h; and the reply. */
struct copy_call {
	STAILQ_ENTRY(copy_call) next;
	struct copies_coupon *asked;
	int64_t coupon;
	int is_replied; /* to a question */
	struct copies_look look;
	enum copies_result result;
	char process[REDIS_RUN_ID_SIZE];
	size_t n; /* messages; 0: it is a question */
	struct copy messages[COPIES_MESSAGES_MAX];
	char bodies[];
};

STAILQ_HEAD(copy_calls, copy_call);

struct outboxes {
	struct thread thread;
	int64_t gather_ms;

	/* of the loop */
	struct entries settled;
	struct entry *last;     /* of `settled` */
	struct changes changes; /* the numbers since the last one was sent, and whose these are */

	pthread_mutex_t mutex; /* guards from here … */
	struct entries inbox[KINDS];
	struct changes inbox_changes;
	int origin_is_new;       /* what is in `work` was settled by another server */
	size_t held[KINDS];      /* the sizes of `inbox` and `work` */
	int64_t since_ms[KINDS]; /* when the oldest of them came */
	struct copy_calls asked, answered;
	size_t copy_calls_n; /* of both, and in the thread */
	/* … to here */
	atomic_int_least64_t stop_by_ms; /* 0: not stopping */

	/* of the thread */
	struct redis_client *redis;
	struct entries work[KINDS];
	struct changes work_changes;
	int64_t retry_ms[KINDS]; /* after a failure: nothing is sent before; 0: none */
	struct backoff backoff[KINDS];
};

/* Hands a list over to the thread; afterwards it is empty. */
static void hand_over(struct outboxes *outboxes, enum kind kind, struct entries *list)
{
	size_t before, after;

	pthread_mutex_lock(&outboxes->mutex);
	before = outboxes->held[kind];
	after = before + list->size;
	if (after <= OUTBOXES_HELD_MAX) {
		entries_join(&outboxes->inbox[kind], list);
		outboxes->held[kind] = after;
		if (before == 0)
			outboxes->since_ms[kind] = clock_monotonic_ms();
		if (before == 0 || (before < MANY && after >= MANY))
			thread_wake(&outboxes->thread);
	}
	changes_raise(&outboxes->inbox_changes, &outboxes->changes);
	pthread_mutex_unlock(&outboxes->mutex);
	entries_forget(list, SIZE_MAX, "too many wait for Redis");
}

int outboxes_changed(struct outboxes *outboxes, const char *number)
{
	return changes_add(&outboxes->changes, number);
}

void outboxes_origin(struct outboxes *outboxes, const struct changes *changes)
{
	const struct postgres_server *before = &outboxes->changes.server;
	int is_new = *before->system && !server_equals(before, &changes->server);

	memcpy(outboxes->changes.installation, changes->installation, INSTALLATION_SIZE);
	outboxes->changes.server = changes->server;
	if (!is_new)
		return;
	memset(outboxes->changes.num, 0, sizeof(outboxes->changes.num));
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->origin_is_new = 1;
	outboxes->held[KIND_SETTLED] -= outboxes->inbox[KIND_SETTLED].size;
	entries_forget(&outboxes->inbox[KIND_SETTLED], SIZE_MAX, OTHER_SERVER);
	memset(&outboxes->inbox_changes, 0, sizeof(outboxes->inbox_changes));
	pthread_mutex_unlock(&outboxes->mutex);
}

void outboxes_settled(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch,
		      int64_t at_ms)
{
	outboxes->last = entries_add(&outboxes->settled, coupon, batch);
	outboxes->last->at_ms = at_ms;
}

void outboxes_rejected(struct outboxes *outboxes, size_t index, int slot, const char *reason,
		       const struct user_id *user)
{
	struct entry *entry = outboxes->last;
	char batch[ULID_SIZE], **text;

	entry->rejected = checked(
		realloc(entry->rejected, (entry->rejected_n + 1) * sizeof(*text)));
	text = &entry->rejected[entry->rejected_n++];
	outboxes->settled.size++;
	check(asprintf(text, "%s:%zu:%d:%s:%s", ulid_format(&entry->batch, batch), index, slot,
		       reason, user->text) > 0);
}

void outboxes_send(struct outboxes *outboxes)
{
	if (outboxes->settled.size == 0)
		return;
	hand_over(outboxes, KIND_SETTLED, &outboxes->settled);
	memset(outboxes->changes.num, 0, sizeof(outboxes->changes.num));
}

void outboxes_dead(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch)
{
	struct entries list = { .size = 0 };

	STAILQ_INIT(&list.head);
	entries_add(&list, coupon, batch);
	hand_over(outboxes, KIND_DEAD, &list);
}

static void copy_call_add(struct outboxes *outboxes, struct copy_call *call)
{
	pthread_mutex_lock(&outboxes->mutex);
	STAILQ_INSERT_TAIL(&outboxes->asked, call, next);
	outboxes->copy_calls_n++;
	pthread_mutex_unlock(&outboxes->mutex);
	thread_wake(&outboxes->thread);
}

void outboxes_copies_look(void *outboxes, struct copies_coupon *asked, int64_t coupon)
{
	struct copy_call *call = checked(calloc(1, sizeof(*call)));

	call->asked = asked;
	call->coupon = coupon;
	copy_call_add(outboxes, call);
}

void outboxes_copies_write(void *outboxes, struct copies_coupon *asked, int64_t coupon,
			   const struct copy *const *messages, size_t n)
{
	struct copy_call *call;
	size_t bytes = 0;
	char *at;

	for (size_t i = 0; i < n; i++)
		bytes += messages[i]->body_len + 1;
	call = checked(calloc(1, sizeof(*call) + bytes));
	call->asked = asked;
	call->coupon = coupon;
	call->n = n;
	at = call->bodies;
	for (size_t i = 0; i < n; i++) {
		call->messages[i] = *messages[i];
		call->messages[i].body = at;
		at = (char *)mempcpy(at, messages[i]->body, messages[i]->body_len) + 1;
	}
	copy_call_add(outboxes, call);
}

int outboxes_copies_end(struct outboxes *outboxes, struct copies *copies)
{
	struct copy_calls ended = STAILQ_HEAD_INITIALIZER(ended);
	struct copy_call *call;
	size_t left;

	pthread_mutex_lock(&outboxes->mutex);
	STAILQ_CONCAT(&ended, &outboxes->answered);
	STAILQ_FOREACH (call, &ended, next)
		outboxes->copy_calls_n--;
	pthread_mutex_unlock(&outboxes->mutex);
	while ((call = STAILQ_FIRST(&ended))) {
		STAILQ_REMOVE_HEAD(&ended, next);
		if (call->n > 0)
			copies_written(copies, call->asked, call->result);
		else
			copies_looked(copies, call->asked, call->process,
				      call->is_replied ? &call->look : NULL);
		free(call);
	}
	pthread_mutex_lock(&outboxes->mutex);
	left = outboxes->copy_calls_n;
	pthread_mutex_unlock(&outboxes->mutex);
	return left > 0;
}

/* The thread: waiting */

/* When batches of the kind are to be sent; INT64_MAX: there are none. */
static int64_t kind_due_ms(const struct outboxes *outboxes, enum kind kind)
{
	if (outboxes->held[kind] == 0)
		return INT64_MAX;
	if (outboxes->retry_ms[kind])
		return outboxes->retry_ms[kind];
	return outboxes->held[kind] >= MANY ? 0 : outboxes->since_ms[kind] + outboxes->gather_ms;
}

/* Until when there is nothing to do, but for a while at most; 0: there is something. */
static int64_t idle_until_ms(const struct outboxes *outboxes)
{
	int64_t now_ms = clock_monotonic_ms(), until_ms = now_ms + WAIT_MS;

	for (enum kind kind = 0; kind < KINDS; kind++)
		if (kind_due_ms(outboxes, kind) < until_ms)
			until_ms = kind_due_ms(outboxes, kind);
	if (outboxes->stop_by_ms || until_ms <= now_ms || !STAILQ_EMPTY(&outboxes->asked))
		return 0;
	return until_ms;
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
static int work_take(struct outboxes *outboxes, int is_due[KINDS], struct copy_calls *calls)
{
	int64_t until_ms;

	pthread_mutex_lock(&outboxes->mutex);
	while ((until_ms = idle_until_ms(outboxes))) {
		pthread_mutex_unlock(&outboxes->mutex);
		thread_pause(&outboxes->thread, until_ms, NULL, 0);
		pthread_mutex_lock(&outboxes->mutex);
	}
	if (outboxes->origin_is_new) {
		outboxes->origin_is_new = 0;
		outboxes->held[KIND_SETTLED] -= outboxes->work[KIND_SETTLED].size;
		entries_forget(&outboxes->work[KIND_SETTLED], SIZE_MAX, OTHER_SERVER);
		memset(&outboxes->work_changes, 0, sizeof(outboxes->work_changes));
	}
	for (enum kind kind = 0; kind < KINDS; kind++) {
		entries_join(&outboxes->work[kind], &outboxes->inbox[kind]);
		is_due[kind] = kind_is_due(outboxes, kind);
	}
	changes_raise(&outboxes->work_changes, &outboxes->inbox_changes);
	memset(&outboxes->inbox_changes, 0, sizeof(outboxes->inbox_changes));
	if (!outboxes->stop_by_ms)
		STAILQ_CONCAT(calls, &outboxes->asked);
	pthread_mutex_unlock(&outboxes->mutex);
	return is_due[KIND_SETTLED] || is_due[KIND_DEAD] || !outboxes->stop_by_ms;
}

/* The thread: commands to Redis about batches that have come to their end, and the replies */

/*
 * Appends the command for `*at` and those of the same coupon that follow it, and moves `*at` behind
 * them. Returns how many they are.
 */
static size_t commands_append_settled(struct redis_client *redis, const struct entry **at)
{
	char batches[BATCHES_MAX][BATCH_SIZE], ulid[ULID_SIZE], number[NUMBER_SIZE];
	const char *argv[REDIS_CLIENT_ARGS_MAX];
	int64_t coupon = (*at)->coupon;
	size_t n = 0, argc = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		if (argc + 1 + (*at)->rejected_n > REDIS_CLIENT_ARGS_MAX)
			break;
		snprintf(batches[n], BATCH_SIZE, "%s:%s", ulid_format(&(*at)->batch, ulid),
			 number_text((*at)->at_ms, number));
		argv[argc++] = batches[n];
		for (size_t i = 0; i < (*at)->rejected_n; i++)
			argv[argc++] = (*at)->rejected[i];
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append_coupon_eval(redis, lua_settled, coupon, COUPON_KEYS_SETTLED, (int)argc,
					argv);
	return n;
}

/* As commands_append_settled(), for batches that were dead-lettered. */
static size_t commands_append_dead(struct redis_client *redis, const struct entry **at)
{
	char key[COUPON_KEY_SIZE], seconds[NUMBER_SIZE], batches[BATCHES_MAX][ULID_SIZE];
	int64_t coupon = (*at)->coupon;
	const char *sadd[2 + BATCHES_MAX] = { "SADD", coupon_key(coupon, COUPON_KEY_DEAD, key) };
	const char *expire[] = { "EXPIRE", key, number_text(DEAD_S, seconds) };
	size_t n = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		sadd[2 + n] = ulid_format(&(*at)->batch, batches[n]);
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append(redis, (int)(2 + n), sadd);
	redis_client_append(redis, 3, expire);
	return n;
}

/*
 * Reads the reply to the command for the first `n` batches of the work. 0 when these are finished,
 * or -1; a refused addition is not, because Redis refuses it when it is out of memory.
 */
static int command_finish(struct outboxes *outboxes, enum kind kind, size_t n)
{
	struct redis_client *redis = outboxes->redis;
	redisReply *reply = redis_client_next(redis);
	int64_t number = reply ? redis_reply_number(reply) : -1;

	if (reply)
		freeReplyObject(reply);
	if (kind == KIND_DEAD && (reply = redis_client_next(redis))) /* to EXPIRE */
		freeReplyObject(reply);
	if (number < 0 && !redis_client_is_open(redis))
		return -1;
	if (number < 0 && kind == KIND_DEAD) {
		for (; n > 0; n--) /* others go first */
			append(&outboxes->work[kind], take(&outboxes->work[kind]));
		return -1;
	}
	if (number < 0) {
		entries_forget(&outboxes->work[kind], n, redis_client_error(redis));
		return 0;
	}
	if (kind == KIND_SETTLED)
		metrics_add(METRIC_OUTBOX_REMOVED, number);
	entries_free(&outboxes->work[kind], n);
	return 0;
}

static int is_over(const struct outboxes *outboxes)
{
	return outboxes->stop_by_ms && clock_monotonic_ms() >= outboxes->stop_by_ms;
}

/* Sends commands, as many as fit into one round trip. 0, or -1: some are not finished. */
static int commands_send(struct outboxes *outboxes, enum kind kind)
{
	const struct entry *at = STAILQ_FIRST(&outboxes->work[kind].head);
	size_t counts[COMMANDS_MAX], n = 0;
	int rc = 0;

	for (; at && n < COMMANDS_MAX; n++)
		counts[n] = kind == KIND_SETTLED ? commands_append_settled(outboxes->redis, &at)
						 : commands_append_dead(outboxes->redis, &at);
	for (size_t i = 0; i < n; i++)
		if (is_over(outboxes) || command_finish(outboxes, kind, counts[i]))
			rc = -1;
	return rc;
}

/*
 * Sends what is there of the kind, as far as it fits. 0, or -1: not all. Before settled batches the
 * numbers are copied, in a round trip of its own, so that nothing is removed should Redis refuse it
 * or not belong to this installation. The script is loaded each time: it may have been flushed.
 */
static int kind_send(struct outboxes *outboxes, enum kind kind)
{
	static const struct changes none;
	struct entries *work = &outboxes->work[kind];
	int rc = 0;

	entries_group(work);
	fault_point(FAULT_WORKER_BEFORE_REMOVE);
	if (kind == KIND_SETTLED) {
		redis_client_prepare(outboxes->redis, lua_settled);
		if (is_over(outboxes) ||
		    changes_copy(outboxes->redis, &outboxes->work_changes, &none) != RELATION_OWN)
			rc = -1;
		fault_point(FAULT_WORKER_COPIED);
	}
	if (rc == 0 && !is_over(outboxes))
		rc = commands_send(outboxes, kind);
	redis_client_prepared_end(outboxes->redis);
	if (kind == KIND_SETTLED && work->size == 0)
		memset(&outboxes->work_changes, 0, sizeof(outboxes->work_changes));
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->held[kind] = outboxes->inbox[kind].size + work->size;
	if (work->size == 0) /* what is held came meanwhile */
		outboxes->since_ms[kind] = clock_monotonic_ms();
	pthread_mutex_unlock(&outboxes->mutex);
	return rc;
}

/* Sends the command of a call, and reads its reply. */
static void copy_call_run(struct redis_client *redis, struct copy_call *call)
{
	const struct copy *messages[COPIES_MESSAGES_MAX];
	struct restore_command command;
	char key[COUPON_KEY_SIZE];
	const char *look[] = { RESTORE_LOOK_WORDS(
		coupon_key(call->coupon, COUPON_KEY_COUPON, key)) };
	redisReply *reply;

	call->result = COPIES_FAILED;
	if (!redis_client_is_open(redis))
		return;
	if (call->n == 0) {
		reply = redis_client_call(redis, RESTORE_LOOK_WORDS_N, look);
		call->is_replied = restore_look_take(&call->look, reply) == 0;
	} else {
		for (size_t i = 0; i < call->n; i++)
			messages[i] = &call->messages[i];
		restore_command_make(&command, call->coupon, lua_restore, messages, call->n);
		reply = redis_client_call(redis, command.n, command.words);
		call->result = restore_result_take(reply);
		if (reply && reply->type == REDIS_REPLY_INTEGER)
			metrics_add(METRIC_OUTBOX_RESTORED, reply->integer);
	}
	freeReplyObject(reply);
}

/* All of them name the process that replied: it is read before and after. */
static void copy_calls_run(struct outboxes *outboxes, struct copy_calls *calls)
{
	char before[REDIS_RUN_ID_SIZE] = "", after[REDIS_RUN_ID_SIZE] = "";
	struct copy_call *call;
	int64_t uptime_s;

	if (STAILQ_EMPTY(calls))
		return;
	if (redis_client_is_open(outboxes->redis))
		redis_client_process(outboxes->redis, before, &uptime_s);
	STAILQ_FOREACH (call, calls, next)
		copy_call_run(outboxes->redis, call);
	if (redis_client_is_open(outboxes->redis))
		redis_client_process(outboxes->redis, after, &uptime_s);
	STAILQ_FOREACH (call, calls, next) {
		memcpy(call->process, before, sizeof(before));
		call->is_replied &= *before && strcmp(before, after) == 0;
	}
	pthread_mutex_lock(&outboxes->mutex);
	STAILQ_CONCAT(&outboxes->answered, calls);
	pthread_mutex_unlock(&outboxes->mutex);
}

static void *run(void *argument)
{
	struct copy_calls calls = STAILQ_HEAD_INITIALIZER(calls);
	struct outboxes *outboxes = argument;
	int is_due[KINDS];

	while (work_take(outboxes, is_due, &calls)) {
		redis_client_open(outboxes->redis);
		copy_calls_run(outboxes, &calls);
		for (enum kind kind = 0; kind < KINDS; kind++) {
			if (!is_due[kind] || is_over(outboxes))
				continue;
			if (redis_client_is_open(outboxes->redis) &&
			    kind_send(outboxes, kind) == 0) {
				outboxes->retry_ms[kind] = 0;
				backoff_reset(&outboxes->backoff[kind]);
			} else {
				outboxes->retry_ms[kind] = clock_monotonic_ms() +
							   backoff_connect_ms(
								   &outboxes->backoff[kind]);
			}
		}
	}
	return NULL;
}

static void redis_failed(enum redis_failure failure, const char *why)
{
	(void)failure;
	log_warn("outbox_failed", LOG_S("why", why));
}

struct outboxes *outboxes_start(const char *redis_url, int64_t gather_ms)
{
	struct outboxes *outboxes = checked(calloc(1, sizeof(*outboxes)));

	outboxes->gather_ms = gather_ms;
	STAILQ_INIT(&outboxes->settled.head);
	STAILQ_INIT(&outboxes->asked);
	STAILQ_INIT(&outboxes->answered);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		STAILQ_INIT(&outboxes->inbox[kind].head);
		STAILQ_INIT(&outboxes->work[kind].head);
	}
	outboxes->redis = redis_client_new(redis_url, redis_failed);
	check(pthread_mutex_init(&outboxes->mutex, NULL) == 0);
	thread_start(&outboxes->thread, run, outboxes);
	return outboxes;
}

void outboxes_stop(struct outboxes *outboxes)
{
	struct copy_call *call;

	if (!outboxes)
		return;
	outboxes_send(outboxes);
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->stop_by_ms = clock_monotonic_ms() + OUTBOXES_STOP_MS;
	pthread_mutex_unlock(&outboxes->mutex);
	thread_stop(&outboxes->thread);
	for (enum kind kind = 0; kind < KINDS; kind++)
		entries_forget(&outboxes->work[kind], SIZE_MAX, "the worker ends");
	STAILQ_CONCAT(&outboxes->answered, &outboxes->asked);
	while ((call = STAILQ_FIRST(&outboxes->answered))) {
		STAILQ_REMOVE_HEAD(&outboxes->answered, next);
		free(call);
	}
	redis_client_free(outboxes->redis);
	pthread_mutex_destroy(&outboxes->mutex);
	free(outboxes);
}

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
#include "common/redis/redis_client.h"
#include "common/thread.h"
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
#define OTHER_SERVER "another PostgreSQL server settled these batches"
#define BATCH_SIZE (ULID_SIZE + NUMBER_SIZE) /* 'BATCH:AT' */

/* Lists of batches that have come to their end. */

struct ended_batch {
	STAILQ_ENTRY(ended_batch) next;
	int64_t coupon;
	struct ulid batch;
	/* of a settled one: */
	int64_t at_ms;
	char **rejected; /* 'BATCH:INDEX:SLOT:REASON:USER' */
	size_t rejected_n;
	UT_hash_handle hh; /* while they are grouped */
};

struct ended_batches {
	STAILQ_HEAD(, ended_batch) head;
	size_t size; /* batches and their rejected receives; 0: it is empty */
};

static void append(struct ended_batches *list, struct ended_batch *ended)
{
	STAILQ_INSERT_TAIL(&list->head, ended, next);
	list->size += 1 + ended->rejected_n;
}

static struct ended_batch *take(struct ended_batches *list)
{
	struct ended_batch *ended = STAILQ_FIRST(&list->head);

	STAILQ_REMOVE_HEAD(&list->head, next);
	list->size -= 1 + ended->rejected_n;
	return ended;
}

static struct ended_batch *batches_add(struct ended_batches *list, int64_t coupon,
				       const struct ulid *batch)
{
	struct ended_batch *ended = checked(calloc(1, sizeof(*ended)));

	ended->coupon = coupon;
	ended->batch = *batch;
	append(list, ended);
	return ended;
}

/* Appends a list, which is empty afterwards. */
static void batches_join(struct ended_batches *list, struct ended_batches *other)
{
	STAILQ_CONCAT(&list->head, &other->head);
	list->size += other->size;
	other->size = 0;
}

/* The first `n`, or all. Returns how many these are. */
static size_t batches_free(struct ended_batches *list, size_t n)
{
	size_t freed = 0;

	for (; freed < n && list->size > 0; freed++) {
		struct ended_batch *ended = take(list);

		for (size_t i = 0; i < ended->rejected_n; i++)
			free(ended->rejected[i]);
		free(ended->rejected);
		free(ended);
	}
	return freed;
}

/* Frees batches, as batches_free() does, but logs and counts them. */
static void batches_forget(struct ended_batches *list, size_t n, const char *why)
{
	n = batches_free(list, n);
	if (n == 0)
		return;
	metrics_add(METRIC_OUTBOX_FORGOTTEN, (int64_t)n);
	log_warn("outbox_forgotten", LOG_I("batches", n), LOG_S("why", why));
}

/* How a batch has come to its end. */
enum batch_end { END_SETTLED, END_DEAD, ENDS };

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
	struct ended_batches settled;
	struct ended_batch *last; /* of `settled` */
	struct changes changes;   /* the numbers since the last one was sent, and whose these are */

	pthread_mutex_t mutex; /* guards from here … */
	struct ended_batches inbox[ENDS];
	struct changes inbox_changes;
	int origin_is_new;      /* what is in `work` was settled by another server */
	size_t held[ENDS];      /* the sizes of `inbox` and `work` */
	int64_t since_ms[ENDS]; /* when the oldest of them came */
	struct copy_calls asked, answered;
	size_t copy_calls_n; /* of both, and in the thread */
	/* … to here */
	atomic_int_least64_t stop_by_ms; /* 0: not stopping */

	/* of the thread */
	struct redis_client *redis;
	struct ended_batches work[ENDS];
	struct changes work_changes;
	int64_t retry_ms[ENDS]; /* after a failure: nothing is sent before; 0: none */
	struct backoff backoff[ENDS];
};

/* Hands a list over to the thread; afterwards it is empty. */
static void hand_over(struct outboxes *outboxes, enum batch_end end, struct ended_batches *list)
{
	size_t before, after;

	pthread_mutex_lock(&outboxes->mutex);
	before = outboxes->held[end];
	after = before + list->size;
	if (after <= OUTBOXES_HELD_MAX) {
		batches_join(&outboxes->inbox[end], list);
		outboxes->held[end] = after;
		if (before == 0)
			outboxes->since_ms[end] = clock_monotonic_ms();
		if (before == 0 || (before < MANY && after >= MANY))
			thread_wake(&outboxes->thread);
	}
	changes_raise(&outboxes->inbox_changes, &outboxes->changes);
	pthread_mutex_unlock(&outboxes->mutex);
	batches_forget(list, SIZE_MAX, "too many batches wait for Redis");
}

int outboxes_changed(struct outboxes *outboxes, const char *number)
{
	return changes_add(&outboxes->changes, number);
}

void outboxes_origin(struct outboxes *outboxes, const char *installation,
		     const struct postgres_server *server)
{
	const struct postgres_server *before = &outboxes->changes.server;
	int is_new = *before->system && !server_equals(before, server);

	memcpy(outboxes->changes.installation, installation, INSTALLATION_SIZE);
	outboxes->changes.server = *server;
	if (!is_new)
		return;
	memset(outboxes->changes.num, 0, sizeof(outboxes->changes.num));
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->origin_is_new = 1;
	outboxes->held[END_SETTLED] -= outboxes->inbox[END_SETTLED].size;
	batches_forget(&outboxes->inbox[END_SETTLED], SIZE_MAX, OTHER_SERVER);
	memset(&outboxes->inbox_changes, 0, sizeof(outboxes->inbox_changes));
	pthread_mutex_unlock(&outboxes->mutex);
}

void outboxes_settled(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch,
		      int64_t at_ms)
{
	outboxes->last = batches_add(&outboxes->settled, coupon, batch);
	outboxes->last->at_ms = at_ms;
}

void outboxes_rejected(struct outboxes *outboxes, size_t index, int slot, const char *reason,
		       const struct user_id *user)
{
	struct ended_batch *ended = outboxes->last;
	char batch[ULID_SIZE], **text;

	ended->rejected = checked(
		realloc(ended->rejected, (ended->rejected_n + 1) * sizeof(*text)));
	text = &ended->rejected[ended->rejected_n++];
	outboxes->settled.size++;
	check(asprintf(text, "%s:%zu:%d:%s:%s", ulid_format(&ended->batch, batch), index, slot,
		       reason, user->text) > 0);
}

void outboxes_send(struct outboxes *outboxes)
{
	if (outboxes->settled.size == 0)
		return;
	hand_over(outboxes, END_SETTLED, &outboxes->settled);
	memset(outboxes->changes.num, 0, sizeof(outboxes->changes.num));
}

void outboxes_dead(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch)
{
	struct ended_batches list = { .size = 0 };

	STAILQ_INIT(&list.head);
	batches_add(&list, coupon, batch);
	hand_over(outboxes, END_DEAD, &list);
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

/* When batches of the end are to be sent; INT64_MAX: there are none. */
static int64_t end_due_ms(const struct outboxes *outboxes, enum batch_end end)
{
	if (outboxes->held[end] == 0)
		return INT64_MAX;
	if (outboxes->retry_ms[end])
		return outboxes->retry_ms[end];
	return outboxes->held[end] >= MANY ? 0 : outboxes->since_ms[end] + outboxes->gather_ms;
}

/* Waits until there is something to send, and takes it. 0: the thread is to end. */
static int work_take(struct outboxes *outboxes, int is_due[ENDS], struct copy_calls *calls)
{
	int64_t now_ms;

	pthread_mutex_lock(&outboxes->mutex);
	for (;;) {
		int64_t until_ms;

		now_ms = clock_monotonic_ms();
		until_ms = now_ms + WAIT_MS;
		for (enum batch_end end = 0; end < ENDS; end++)
			if (end_due_ms(outboxes, end) < until_ms)
				until_ms = end_due_ms(outboxes, end);
		if (outboxes->stop_by_ms || until_ms <= now_ms || !STAILQ_EMPTY(&outboxes->asked))
			break;
		pthread_mutex_unlock(&outboxes->mutex);
		thread_pause(&outboxes->thread, until_ms, NULL, 0);
		pthread_mutex_lock(&outboxes->mutex);
	}

	if (outboxes->origin_is_new) {
		outboxes->origin_is_new = 0;
		outboxes->held[END_SETTLED] -= outboxes->work[END_SETTLED].size;
		batches_forget(&outboxes->work[END_SETTLED], SIZE_MAX, OTHER_SERVER);
		memset(&outboxes->work_changes, 0, sizeof(outboxes->work_changes));
	}
	for (enum batch_end end = 0; end < ENDS; end++) {
		batches_join(&outboxes->work[end], &outboxes->inbox[end]);
		/* While it stops, those are sent that did not fail before. */
		is_due[end] = outboxes->stop_by_ms
				      ? outboxes->held[end] > 0 && !outboxes->retry_ms[end] &&
						now_ms < outboxes->stop_by_ms
				      : end_due_ms(outboxes, end) <= now_ms;
	}
	changes_raise(&outboxes->work_changes, &outboxes->inbox_changes);
	memset(&outboxes->inbox_changes, 0, sizeof(outboxes->inbox_changes));
	if (!outboxes->stop_by_ms)
		STAILQ_CONCAT(calls, &outboxes->asked);
	pthread_mutex_unlock(&outboxes->mutex);
	return is_due[END_SETTLED] || is_due[END_DEAD] || !outboxes->stop_by_ms;
}

/* The thread: commands to Redis about batches that have come to their end, and the replies */

/*
 * Appends the command for `*at` and those of the same coupon that follow it, and moves `*at` behind
 * them. Returns how many they are.
 */
static size_t commands_append_settled(struct redis_client *redis, const struct ended_batch **at)
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
static size_t commands_append_dead(struct redis_client *redis, const struct ended_batch **at)
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

static int is_over(const struct outboxes *outboxes)
{
	return outboxes->stop_by_ms && clock_monotonic_ms() >= outboxes->stop_by_ms;
}

/* Sends commands, as many as fit into one round trip. 0, or -1: some are not finished. */
static int commands_send(struct outboxes *outboxes, enum batch_end end)
{
	struct redis_client *redis = outboxes->redis;
	struct ended_batches *work = &outboxes->work[end];
	const struct ended_batch *at = STAILQ_FIRST(&work->head);
	size_t counts[COMMANDS_MAX], n = 0;
	redisReply *reply;
	int64_t number;
	int rc = 0;

	for (; at && n < COMMANDS_MAX; n++)
		counts[n] = end == END_SETTLED ? commands_append_settled(redis, &at)
					       : commands_append_dead(redis, &at);

	for (size_t i = 0; i < n; i++) {
		if (is_over(outboxes)) {
			rc = -1;
			continue;
		}
		reply = redis_client_next(redis);
		number = reply ? redis_reply_number(reply) : -1;
		if (reply)
			freeReplyObject(reply);
		if (end == END_DEAD && (reply = redis_client_next(redis))) /* to EXPIRE */
			freeReplyObject(reply);

		if (number >= 0) {
			if (end == END_SETTLED)
				metrics_add(METRIC_OUTBOX_REMOVED, number);
			batches_free(work, counts[i]);
		} else if (!redis_client_is_open(redis)) {
			rc = -1;
		} else if (end == END_SETTLED) {
			batches_forget(work, counts[i], redis_client_error(redis));
		} else {
			/* Redis refuses an addition when it is out of memory. Others go first. */
			for (size_t k = 0; k < counts[i]; k++)
				append(work, take(work));
			rc = -1;
		}
	}
	return rc;
}

/*
 * Sends what is there of the end, as far as it fits. 0, or -1: not all. Before settled batches the
 * numbers are copied, in a round trip of its own, so that nothing is removed should Redis refuse it
 * or not belong to this installation. The script is loaded each time: it may have been flushed.
 */
static int end_send(struct outboxes *outboxes, enum batch_end end)
{
	static const struct changes none;
	struct ended_batches *work = &outboxes->work[end];
	struct ended_batches grouped = { .size = work->size };
	struct ended_batch *ended, *last, *lasts = NULL; /* the last one of each coupon */
	int rc = 0;

	/* Brings the batches of each coupon together, in their order. */
	STAILQ_INIT(&grouped.head);
	while ((ended = STAILQ_FIRST(&work->head))) {
		STAILQ_REMOVE_HEAD(&work->head, next);
		HASH_REPLACE(hh, lasts, coupon, sizeof(ended->coupon), ended, last);
		if (last)
			STAILQ_INSERT_AFTER(&grouped.head, last, ended, next);
		else
			STAILQ_INSERT_TAIL(&grouped.head, ended, next);
	}
	HASH_CLEAR(hh, lasts);
	work->size = 0;
	batches_join(work, &grouped);

	fault_point(FAULT_WORKER_BEFORE_REMOVE);
	if (end == END_SETTLED) {
		redis_client_prepare(outboxes->redis, lua_settled);
		if (is_over(outboxes) ||
		    changes_copy(outboxes->redis, &outboxes->work_changes, &none) != RELATION_OWN)
			rc = -1;
		fault_point(FAULT_WORKER_COPIED);
	}
	if (rc == 0 && !is_over(outboxes))
		rc = commands_send(outboxes, end);
	redis_client_prepared_end(outboxes->redis);
	if (end == END_SETTLED && work->size == 0)
		memset(&outboxes->work_changes, 0, sizeof(outboxes->work_changes));
	pthread_mutex_lock(&outboxes->mutex);
	outboxes->held[end] = outboxes->inbox[end].size + work->size;
	if (work->size == 0) /* what is held came meanwhile */
		outboxes->since_ms[end] = clock_monotonic_ms();
	pthread_mutex_unlock(&outboxes->mutex);
	return rc;
}

/*
 * Sends the command of each call, and reads its reply. All of them name the process that replied:
 * it is read before and after.
 */
static void copy_calls_run(struct outboxes *outboxes, struct copy_calls *calls)
{
	char before[REDIS_RUN_ID_SIZE] = "", after[REDIS_RUN_ID_SIZE] = "";
	struct redis_client *redis = outboxes->redis;
	const struct copy *messages[COPIES_MESSAGES_MAX];
	struct restore_command command;
	char key[COUPON_KEY_SIZE];
	struct copy_call *call;
	redisReply *reply;
	int64_t uptime_s;

	if (STAILQ_EMPTY(calls))
		return;
	if (redis_client_is_open(redis))
		redis_client_process(redis, before, &uptime_s);
	STAILQ_FOREACH (call, calls, next) {
		call->result = COPIES_FAILED;
		if (!redis_client_is_open(redis))
			continue;
		if (call->n == 0) {
			const char *look[] = { RESTORE_LOOK_WORDS(
				coupon_key(call->coupon, COUPON_KEY_COUPON, key)) };

			reply = redis_client_call(redis, RESTORE_LOOK_WORDS_N, look);
			call->is_replied = restore_look_take(&call->look, reply) == 0;
		} else {
			for (size_t i = 0; i < call->n; i++)
				messages[i] = &call->messages[i];
			restore_command_make(&command, call->coupon, lua_restore, messages,
					     call->n);
			reply = redis_client_call(redis, command.n, command.words);
			call->result = restore_result_take(reply);
			if (reply && reply->type == REDIS_REPLY_INTEGER)
				metrics_add(METRIC_OUTBOX_RESTORED, reply->integer);
		}
		freeReplyObject(reply);
	}
	if (redis_client_is_open(redis))
		redis_client_process(redis, after, &uptime_s);
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
	int is_due[ENDS];

	while (work_take(outboxes, is_due, &calls)) {
		redis_client_open(outboxes->redis);
		copy_calls_run(outboxes, &calls);
		for (enum batch_end end = 0; end < ENDS; end++) {
			if (!is_due[end] || is_over(outboxes))
				continue;
			if (redis_client_is_open(outboxes->redis) && end_send(outboxes, end) == 0) {
				outboxes->retry_ms[end] = 0;
				backoff_reset(&outboxes->backoff[end]);
			} else {
				outboxes->retry_ms[end] = clock_monotonic_ms() +
							  backoff_connect_ms(
								  &outboxes->backoff[end]);
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
	for (enum batch_end end = 0; end < ENDS; end++) {
		STAILQ_INIT(&outboxes->inbox[end].head);
		STAILQ_INIT(&outboxes->work[end].head);
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
	for (enum batch_end end = 0; end < ENDS; end++)
		batches_forget(&outboxes->work[end], SIZE_MAX, "the worker is ending");
	STAILQ_CONCAT(&outboxes->answered, &outboxes->asked);
	while ((call = STAILQ_FIRST(&outboxes->answered))) {
		STAILQ_REMOVE_HEAD(&outboxes->answered, next);
		free(call);
	}
	redis_client_free(outboxes->redis);
	pthread_mutex_destroy(&outboxes->mutex);
	free(outboxes);
}

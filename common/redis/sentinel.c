/*
 *	a thread for each Sentinel ──▶ its last answer ─┐
 *	                                                ├─▶ view: whom a majority names, since when
 *	a thread for each Sentinel ──▶ its last answer ─┘
 *
 * Answers and view are under one lock. A Sentinel that does not answer is asked again twice a
 * second, and counts as silent a second after its last answer.
 */
#include "common/redis/sentinel.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/redis/redis_tls.h"
#include "common/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#define ASK_MS 200
#define AGAIN_MS 500
#define TIMEOUT_MS 500 /* to connect, for each reply */
#define FRESH_MS 1000
#define REPLICAS_SIZE 4096 /* replicas that do not fit count as ones that are not promoted */

/* What one Sentinel says. */
struct sentinel_answer {
	int64_t asked_ms, answered_ms; /* 0: nothing yet */
	char host[SENTINEL_HOST_SIZE];
	int port;                     /* 0: it does not know the name */
	char replicas[REPLICAS_SIZE]; /* " HOST:PORT=PRIORITY " of each */
	char error[SENTINEL_ERROR_SIZE];
};

struct sentinel {
	struct sentinels *all;
	size_t i;
	redisContext *connection; /* NULL: not connected */
};

struct sentinels {
	LIST_ENTRY(sentinels) next;
	char *name;
	int is_tls;
	size_t n;
	struct redis_host hosts[REDIS_SENTINELS_MAX];
	struct sentinel threads[REDIS_SENTINELS_MAX];
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct sentinel_answer answers[REDIS_SENTINELS_MAX];
	struct sentinels_view view; /* as of the last answer */
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, sentinels) known = LIST_HEAD_INITIALIZER(known);
static char *login_user, *login_password;

void sentinels_login_set(const char *user, const char *password)
{
	free(login_user);
	free(login_password);
	login_user = checked(strdup(user));
	login_password = checked(strdup(password));
}

static int is_fresh(const struct sentinel_answer *answer, int64_t now_ms)
{
	return answer->answered_ms && now_ms - answer->answered_ms <= FRESH_MS && answer->port;
}

/* Finds whom a majority names, and the latest time after which it was asked. NULL: none. */
static const struct sentinel_answer *agreed_find(const struct sentinels *all, int64_t now_ms,
						 int64_t *asked_ms)
{
	size_t needed = all->n / 2 + 1;

	for (size_t i = 0; i < all->n; i++) {
		const struct sentinel_answer *one = &all->answers[i];
		int64_t times[REDIS_SENTINELS_MAX];
		size_t n = 0;

		for (size_t j = 0; is_fresh(one, now_ms) && j < all->n; j++) {
			const struct sentinel_answer *other = &all->answers[j];

			if (is_fresh(other, now_ms) && one->port == other->port &&
			    strcmp(one->host, other->host) == 0)
				times[n++] = other->asked_ms;
		}
		if (n >= needed) {
			qsort(times, n, sizeof(*times), number_compare);
			*asked_ms = times[n - needed];
			return one;
		}
	}
	return NULL;
}

/*
 * Under the lock. Without a majority the view is the latest answer. A break in what the majority
 * says counts from its end.
 */
static void view_update(struct sentinels *all)
{
	struct sentinels_view *view = &all->view;
	int64_t now_ms = clock_monotonic_ms(), asked_ms = 0;
	const struct sentinel_answer *agreed = agreed_find(all, now_ms, &asked_ms), *named = agreed;
	int is_other;

	for (size_t i = 0; i < all->n && !agreed; i++)
		if (is_fresh(&all->answers[i], now_ms) &&
		    (!named || all->answers[i].answered_ms > named->answered_ms))
			named = &all->answers[i];
	is_other = named && (view->port != named->port || strcmp(view->host, named->host) != 0);

	if (agreed && (!view->is_agreed || is_other)) {
		view->since_ms = now_ms;
		log_info("redis_master", LOG_S("name", all->name), LOG_S("host", agreed->host),
			 LOG_I("port", agreed->port));
	} else if (!agreed && view->is_agreed) {
		log_warn("redis_master_unknown", LOG_S("name", all->name),
			 LOG_S("why", "no majority of the Sentinels names a master"));
	}
	view->is_agreed = agreed != NULL;
	view->asked_ms = asked_ms;
	view->is_named = named != NULL;
	if (named) {
		snprintf(view->host, sizeof(view->host), "%s", named->host);
		view->port = named->port;
	}
}

/* Closes the connection. -1, with a sentence. */
static int fail(struct sentinel *sentinel, const char *why, char error[SENTINEL_ERROR_SIZE])
{
	const struct redis_host *host = &sentinel->all->hosts[sentinel->i];

	snprintf(error, SENTINEL_ERROR_SIZE, "Sentinel %s:%d: %s", host->name, host->port, why);
	if (sentinel->connection)
		redisFree(sentinel->connection);
	sentinel->connection = NULL;
	return -1;
}

/* Connects and logs in, when it is not connected. 0, or -1 with a sentence. */
static int connection_open(struct sentinel *sentinel, char error[SENTINEL_ERROR_SIZE])
{
	const struct redis_host *host = &sentinel->all->hosts[sentinel->i];
	const char *argv[] = { "AUTH", login_user, login_password };
	int has_user = login_user && *login_user, rc = 0;
	char why[TRUST_ERROR_SIZE];
	redisReply *reply;

	if (sentinel->connection)
		return 0;
	sentinel->connection = redis_connect(host->name, host->port, sentinel->all->is_tls,
					     TIMEOUT_MS, TIMEOUT_MS, why);
	if (!sentinel->connection)
		return fail(sentinel, why, error);
	if (!login_password || !*login_password)
		return 0;
	if (!has_user)
		argv[1] = login_password;
	reply = redisCommandArgv(sentinel->connection, has_user ? 3 : 2, argv, NULL);
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		rc = fail(sentinel, reply ? reply->str : sentinel->connection->errstr, error);
	if (reply)
		freeReplyObject(reply);
	return rc;
}

/* A value of a flat list of names and values; "": it is absent. */
static const char *value_of(const redisReply *list, const char *name)
{
	for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i + 1 < list->elements; i += 2)
		if (list->element[i]->type == REDIS_REPLY_STRING &&
		    list->element[i + 1]->type == REDIS_REPLY_STRING &&
		    strcmp(list->element[i]->str, name) == 0)
			return list->element[i + 1]->str;
	return "";
}

/*
 * Asks for the replicas. The priority of a replica that does not answer may be the default above 0,
 * from before it was asked. 0, or -1 with a sentence.
 */
static int replicas_ask(struct sentinel *sentinel, char text[REPLICAS_SIZE], char *error)
{
	const char *argv[] = { "SENTINEL", "replicas", sentinel->all->name };
	redisReply *list = redisCommandArgv(sentinel->connection, 3, argv, NULL);
	size_t len = 0;

	if (!list)
		return fail(sentinel, sentinel->connection->errstr, error);
	for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i < list->elements; i++) {
		const redisReply *replica = list->element[i];
		const char *priority = value_of(replica, "slave-priority");
		int n;

		if (strcmp(priority, "0") != 0 && strstr(value_of(replica, "flags"), "s_down"))
			continue;
		n = snprintf(text + len, REPLICAS_SIZE - len, " %s:%s=%s ", value_of(replica, "ip"),
			     value_of(replica, "port"), priority);
		if ((size_t)n < REPLICAS_SIZE - len)
			len += (size_t)n;
	}
	text[len] = '\0';
	freeReplyObject(list);
	return 0;
}

/*
 * Asks for the master and its replicas. 0, or -1: `answer` has a sentence, and what the Sentinel
 * said before is left as it was.
 */
static int ask(struct sentinel *sentinel, struct sentinel_answer *answer)
{
	const char *argv[] = { "SENTINEL", "get-master-addr-by-name", sentinel->all->name };
	struct sentinel_answer got = { .asked_ms = clock_monotonic_ms() };
	int64_t port = 0;
	redisReply *reply;
	int rc = 0;

	if (connection_open(sentinel, answer->error))
		return -1;
	reply = redisCommandArgv(sentinel->connection, 3, argv, NULL);
	if (!reply)
		return fail(sentinel, sentinel->connection->errstr, answer->error);
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	    reply->element[0]->type == REDIS_REPLY_STRING &&
	    reply->element[0]->len < SENTINEL_HOST_SIZE) {
		snprintf(got.host, sizeof(got.host), "%s", reply->element[0]->str);
		port = redis_reply_number(reply->element[1]);
	}
	if (port > 0 && port < 65536)
		got.port = (int)port;
	else if (reply->type == REDIS_REPLY_ERROR)
		rc = fail(sentinel, reply->str, answer->error);
	else
		rc = fail(sentinel, "the Sentinel knows no master of this name", answer->error);
	freeReplyObject(reply);
	if (rc || replicas_ask(sentinel, got.replicas, answer->error))
		return -1;
	got.answered_ms = clock_monotonic_ms();
	*answer = got;
	return 0;
}

/* The thread of one Sentinel. */
static void *run(void *argument)
{
	struct sentinel *sentinel = argument;
	struct sentinels *all = sentinel->all;
	struct sentinel_answer answer = { .asked_ms = 0 };

	for (;;) {
		int rc = ask(sentinel, &answer);

		pthread_mutex_lock(&all->lock);
		all->answers[sentinel->i] = answer;
		view_update(all);
		pthread_cond_broadcast(&all->answered);
		pthread_mutex_unlock(&all->lock);
		usleep((rc ? AGAIN_MS : ASK_MS) * 1000);
	}
	return NULL;
}

struct sentinels *sentinels_of(const struct redis_url *url)
{
	struct sentinels *all;
	int is_same;

	pthread_mutex_lock(&known_lock);
	LIST_FOREACH (all, &known, next) {
		is_same = strcmp(all->name, url->name) == 0 && all->n == url->sentinels_n;
		for (size_t i = 0; is_same && i < all->n; i++)
			is_same = all->hosts[i].port == url->sentinels[i].port &&
				  strcmp(all->hosts[i].name, url->sentinels[i].name) == 0;
		if (is_same)
			goto out;
	}

	all = checked(calloc(1, sizeof(*all)));
	all->name = checked(strdup(url->name));
	all->is_tls = url->is_tls;
	all->n = url->sentinels_n;
	check(pthread_mutex_init(&all->lock, NULL) == 0);
	check(pthread_cond_init(&all->answered, NULL) == 0);
	for (size_t i = 0; i < all->n; i++) {
		all->hosts[i].name = checked(strdup(url->sentinels[i].name));
		all->hosts[i].port = url->sentinels[i].port;
		all->threads[i] = (struct sentinel){ .all = all, .i = i };
	}
	for (size_t i = 0; i < all->n; i++)
		check(thread_detach(run, &all->threads[i]) == 0);
	LIST_INSERT_HEAD(&known, all, next);
out:
	pthread_mutex_unlock(&known_lock);
	return all;
}

int sentinels_view(struct sentinels *sentinels, int64_t wait_ms, struct sentinels_view *view,
		   char error[SENTINEL_ERROR_SIZE])
{
	int64_t until_ms = clock_monotonic_ms() + wait_ms;
	const struct timespec until = { .tv_sec = until_ms / 1000,
					.tv_nsec = until_ms % 1000 * 1000000 };

	pthread_mutex_lock(&sentinels->lock);
	view_update(sentinels);
	while (!sentinels->view.is_named && clock_monotonic_ms() < until_ms) {
		pthread_cond_clockwait(&sentinels->answered, &sentinels->lock, CLOCK_MONOTONIC,
				       &until);
		view_update(sentinels);
	}
	*view = sentinels->view;
	if (!view->is_named)
		snprintf(error, SENTINEL_ERROR_SIZE, "no Sentinel has answered yet");
	for (size_t i = 0; i < sentinels->n && !view->is_named; i++)
		if (*sentinels->answers[i].error)
			snprintf(error, SENTINEL_ERROR_SIZE, "%s", sentinels->answers[i].error);
	pthread_mutex_unlock(&sentinels->lock);
	return view->is_named ? 0 : -1;
}

int sentinels_may_promote(struct sentinels *sentinels, const char *host, int port)
{
	int64_t now_ms = clock_monotonic_ms();
	char name[SENTINEL_HOST_SIZE + 16];
	int may = 0, may_not = 0;

	snprintf(name, sizeof(name), " %s:%d=", host, port);
	pthread_mutex_lock(&sentinels->lock);
	for (size_t i = 0; i < sentinels->n; i++) {
		const struct sentinel_answer *answer = &sentinels->answers[i];
		const char *at = is_fresh(answer, now_ms) ? strstr(answer->replicas, name) : NULL;
		int priority = at ? atoi(at + strlen(name)) : 0;

		may |= priority > 0;
		may_not |= at && priority <= 0;
	}
	pthread_mutex_unlock(&sentinels->lock);
	return may && !may_not;
}

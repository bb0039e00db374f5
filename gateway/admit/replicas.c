/*
 *	held ──▶ covered ──▶ INFO, SET, WAIT and INFO, sent together
 *	                            ├──▶ enough: answered; else `unknown`, and `is_short`
 *	         held ◀─────────────┘ more replicas are there than were waited for
 *
 * The first INFO has the offset of all that is covered, the second one which replicas have reached
 * it. SET and WAIT are there because replicas then tell at once, and not once a second. A replica
 * that lacks what was answered before, as one that has come back, is not waited for: of replicas
 * with the same priority Sentinels promote the one with the highest offset.
 *
 * One such round is in flight at a time, so answers gather while Redis waits for its replicas.
 * While it is short, rounds go on without answers, and now and then while nothing is held: what is
 * missing is known before the next request is decided.
 */
#include "gateway/admit/replicas.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/sentinel.h"
#include "gateway/admit/redis_link.h"
#include "embed.h"
#include "gateway/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define SILENT_S 3   /* after which a replica is not waited for */
#define AGAIN_MS 100 /* between two rounds while it is short */
#define LOOK_MS 1000 /* and while nothing is held */
#define TROUBLE_SIZE 512
#define NAME_SIZE (SENTINEL_HOST_SIZE + 16) /* HOST:PORT */

/* Not in the append-only file, which Redis would have to sync for it. */
#define REPLICATED_SET "redis.set_repl(redis.REPL_REPLICA) return redis.call('SET', KEYS[1], '')"

struct held_entry {
	STAILQ_ENTRY(held_entry) next;
	struct held held;
	char run_id[REDIS_RUN_ID_SIZE];
};

STAILQ_HEAD(held_list, held_entry);

struct replicas {
	struct redis_link *link;
	struct sentinels *sentinels; /* NULL: none */
	int wanted;
	int64_t timeout_ms;
	struct held_list held, covered; /* by the WAIT in flight */
	int is_asking;                  /* a round is in flight */
	int64_t begun_offset;     /* Redis had all that is covered at this one; < 0: no reply */
	int64_t answered_offset;  /* and all that was answered at this one */
	int waits_for;            /* replicas, in the WAIT in flight */
	int online;               /* replicas to wait for; < 0: no reply */
	int fit;                  /* those among them that may be promoted, */
	int lacking;              /* and those of them that lack what is covered */
	char unfit[NAME_SIZE];    /* one that is online and may not be promoted; "": none */
	int is_set;               /* the write that it waits for was made */
	char error[TROUBLE_SIZE]; /* what WAIT has returned; "": a number */
	int is_short;
	int64_t ended_ms;  /* the last round */
	uint64_t connects; /* redis_link_connects(), as last seen */
	char trouble[TROUBLE_SIZE];
};

struct replicas *replicas_new(struct event_base *base, const struct config *config)
{
	const struct redis_link_options options = { .base = base,
						    .url = config->redis_url,
						    .timeout_ms = config->call_timeout_ms,
						    .script = lua_ask };
	struct replicas *replicas;
	struct redis_url url;

	if (config->redis_replicas == 0)
		return NULL;
	replicas = checked(calloc(1, sizeof(*replicas)));
	STAILQ_INIT(&replicas->held);
	STAILQ_INIT(&replicas->covered);
	replicas->wanted = (int)config->redis_replicas;
	replicas->is_short = 1;
	snprintf(replicas->trouble, sizeof(replicas->trouble), "no replica is known yet");
	replicas->timeout_ms = config->call_timeout_ms / 2;
	replicas->link = redis_link_new(&options);
	redis_url_need(&url, config->redis_url);
	if (url.sentinels_n > 0)
		replicas->sentinels = sentinels_of(&url);
	redis_url_fini(&url);
	return replicas;
}

void replicas_hold(struct replicas *replicas, const char *run_id, const struct held *held)
{
	struct held_entry *entry = checked(malloc(sizeof(*entry)));

	entry->held = *held;
	snprintf(entry->run_id, sizeof(entry->run_id), "%s", run_id ? run_id : "");
	STAILQ_INSERT_TAIL(&replicas->held, entry, next);
}

static void round_end(struct replicas *replicas, int is_replicated, const char *trouble)
{
	const char *run_id = redis_link_handshake(replicas->link)->run_id;
	int64_t now_us = clock_monotonic_us();
	struct held_entry *entry;

	replicas->is_asking = 0;
	replicas->ended_ms = clock_monotonic_ms();
	if (!is_replicated && !replicas->is_short)
		log_warn("replicas_short", LOG_I("wanted", replicas->wanted),
			 LOG_S("why", trouble));
	else if (is_replicated && replicas->is_short)
		log_info("replicas_enough", LOG_I("wanted", replicas->wanted));
	replicas->is_short = !is_replicated;
	snprintf(replicas->trouble, sizeof(replicas->trouble), "%s", trouble);

	/*
	 * Only those of the process that this connection leads to are known to be replicated. It
	 * may have become another one without a new connection, which the others have noticed: a
	 * first replica gives a master another history.
	 */
	while ((entry = STAILQ_FIRST(&replicas->covered))) {
		struct held *held = &entry->held;
		int is_other = strcmp(entry->run_id, run_id) != 0,
		    is_safe = is_replicated && !is_other;

		STAILQ_REMOVE_HEAD(&replicas->covered, next);
		if (is_other)
			redis_link_process_read(replicas->link);

		if (held->done) {
			held->done(held->context, is_safe);
		} else if (held->object && is_safe) {
			request_answer_object(held->request, ANSWER_OK, held->status, held->object);
		} else if (held->object) {
			cJSON_Delete(held->object);
			request_fail(held->request, ANSWER_UNAVAILABLE,
				     "too few replicas of Redis have the receive");
		} else {
			if (!is_safe)
				held->result.answer = ANSWER_UNKNOWN;
			metrics_issue_time(now_us - held->request->begun_us);
			request_answer(held->request, &held->result);
		}
		free(entry);
	}
}

static void on_info_before(void *context, const redisReply *reply)
{
	static const char name[] = "\nmaster_repl_offset:";
	struct replicas *replicas = context;
	const char *at = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name)
								    : NULL;

	replicas->begun_offset = at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

static void on_set(void *context, const redisReply *reply)
{
	struct replicas *replicas = context;

	replicas->is_set = reply && reply->type == REDIS_REPLY_STATUS;
}

static void on_wait(void *context, const redisReply *reply)
{
	struct replicas *replicas = context;
	int is_number = reply && reply->type == REDIS_REPLY_INTEGER;

	snprintf(replicas->error, sizeof(replicas->error), "%s",
		 is_number             ? ""
		 : reply && reply->str ? reply->str
				       : "no reply");
}

/* What the second INFO tells decides. */
static void on_info_after(void *context, const redisReply *reply)
{
	char host[SENTINEL_HOST_SIZE], state[32], trouble[TROUBLE_SIZE] = "";
	struct replicas *replicas = context;
	const char *line = NULL;
	long long offset;
	int port, lag;

	/* Each replica counts that is online, was heard of lately, and has what was answered. */
	replicas->online = -1;
	replicas->fit = replicas->lacking = 0;
	if (reply && reply->type == REDIS_REPLY_STRING) {
		replicas->online = 0;
		replicas->unfit[0] = '\0';
		line = strstr(reply->str, "\nslave");
	}
	for (; line; line = strstr(line + 1, "\nslave")) {
		if (sscanf(line, "\nslave%*d:ip=%255[^,],port=%d,state=%31[^,],offset=%lld,lag=%d",
			   host, &port, state, &offset, &lag) != 5 ||
		    strcmp(state, "online") != 0 || lag > SILENT_S ||
		    offset < replicas->answered_offset)
			continue;
		replicas->online++;
		if (replicas->sentinels &&
		    !sentinels_may_promote(replicas->sentinels, host, port)) {
			snprintf(replicas->unfit, NAME_SIZE, "%s:%d", host, port);
			continue;
		}
		replicas->fit++;
		replicas->lacking += offset < replicas->begun_offset;
	}
	metrics_set(METRIC_REPLICAS, replicas->fit);

	if (replicas->begun_offset < 0 || replicas->online < 0)
		snprintf(trouble, TROUBLE_SIZE, "INFO: no reply");
	else if (replicas->fit < replicas->wanted)
		snprintf(trouble, TROUBLE_SIZE,
			 "%d replicas that may be promoted are online, but %d are wanted%s%s%s",
			 replicas->fit, replicas->wanted, *replicas->unfit ? "; " : "",
			 replicas->unfit, *replicas->unfit ? " may not be promoted" : "");
	else if (!replicas->is_set) /* out of memory, or min-replicas-to-write */
		snprintf(trouble, TROUBLE_SIZE, "SET was refused or not answered");
	else if (*replicas->error)
		snprintf(trouble, TROUBLE_SIZE, "WAIT: %.100s", replicas->error);
	else if (replicas->lacking > 0)
		snprintf(trouble, TROUBLE_SIZE, "%d of %d replicas lack what Redis has",
			 replicas->lacking, replicas->fit);

	/* This round did not wait for all of them; the next one does. */
	if (replicas->is_set && replicas->lacking > 0 && replicas->waits_for < replicas->online) {
		STAILQ_CONCAT(&replicas->covered, &replicas->held);
		STAILQ_CONCAT(&replicas->held, &replicas->covered);
		replicas->is_asking = 0;
		return;
	}
	if (!*trouble)
		replicas->answered_offset = replicas->begun_offset;
	round_end(replicas, !*trouble, trouble);
}

void replicas_flush(struct replicas *replicas)
{
	char waits_for[NUMBER_SIZE], timeout[NUMBER_SIZE];
	const char *info[] = { "INFO", "replication" };
	const char *set[] = { "EVAL", REPLICATED_SET, "1", REPLICAS_KEY };
	const char *wait[] = { "WAIT", waits_for, timeout };
	struct redis_link *link = replicas->link;
	int64_t ago_ms = clock_monotonic_ms() - replicas->ended_ms;
	int is_due;

	/* Another process of Redis may have no replica. */
	if (replicas->connects != redis_link_connects(link)) {
		replicas->connects = redis_link_connects(link);
		replicas->answered_offset = 0;
		replicas->is_short = 1;
		snprintf(replicas->trouble, sizeof(replicas->trouble), "no replica is known yet");
	}

	if (replicas->is_short)
		is_due = ago_ms >= AGAIN_MS;
	else
		is_due = !STAILQ_EMPTY(&replicas->held) || ago_ms >= LOOK_MS;
	if (is_due && !replicas->is_asking) {
		replicas->waits_for = replicas->online > replicas->wanted ? replicas->online
									  : replicas->wanted;
		number_text(replicas->waits_for, waits_for);
		number_text(replicas->timeout_ms, timeout);
		replicas->is_asking = 1;
		replicas->is_set = 0;
		STAILQ_CONCAT(&replicas->covered, &replicas->held);
		if (redis_link_trouble(link) ||
		    redis_link_command(link, 2, info, NULL, on_info_before, replicas) ||
		    redis_link_command(link, 4, set, NULL, on_set, replicas) ||
		    redis_link_command(link, 3, wait, NULL, on_wait, replicas) ||
		    redis_link_command(link, 2, info, NULL, on_info_after, replicas))
			round_end(replicas, 0, "Redis is unreachable");
	}
	redis_link_flush(link);
}

const char *replicas_trouble(const struct replicas *replicas)
{
	return replicas && replicas->is_short ? replicas->trouble : NULL;
}

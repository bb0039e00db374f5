#include "common/redis/master_lease.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/client.h"
#include "common/redis/sentinel.h"
#include "common/thread.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS 200

struct keeping {
	struct redis_client *redis;
	int64_t term; /* that was told last; 0: none */
	/* Redis' clock, and when it was read; 0: it is not, on this connection. */
	int64_t from_ms, read_ms;
	char run_id[REDIS_RUN_ID_SIZE]; /* read with it */
};

static void told(struct keeping *keeping, const char *word, int64_t term)
{
	if (strcmp(word, "begun") == 0)
		log_info("redis_lease_begun", LOG_I("term", term),
			 LOG_S("run_id", keeping->run_id));
	else if (strcmp(word, "over") == 0 && term > 0 && keeping->term == term)
		log_warn("redis_lease_over", LOG_I("term", term), LOG_S("run_id", keeping->run_id));
	keeping->term = strcmp(word, "over") == 0 ? 0 : term;
}

/* What redis_failed() has told since the lease was extended. Of this thread. */
static char failure_told[SENTINEL_ERROR_SIZE];

static void extend(struct keeping *keeping, int may_begin)
{
	char process[REDIS_PROCESS_LEN + 1], from[NUMBER_SIZE], lease[NUMBER_SIZE];
	const char *keys[] = { MASTER_LEASE_KEY };
	const char *argv[] = { process, number_text(keeping->from_ms, from),
			       number_text(MASTER_LEASE_MS, lease), may_begin ? "1" : "0" };
	char word[REDIS_WORD_SIZE];
	redisReply *reply;

	snprintf(process, sizeof(process), "%.*s", REDIS_PROCESS_LEN, keeping->run_id);
	reply = redis_client_eval(keeping->redis, lua_master_lease, 1, keys, 4, argv);
	if (!reply)
		return;
	*failure_told = '\0';
	redis_reply_word(reply, word);
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
		told(keeping, word, redis_reply_number(reply->element[1]));
	freeReplyObject(reply);
}

static void clock_read(struct keeping *keeping)
{
	int64_t uptime_s;

	keeping->read_ms = 0;
	if (redis_client_process(keeping->redis, keeping->run_id, &uptime_s) ||
	    redis_client_time_ms(keeping->redis, &keeping->from_ms))
		return;
	keeping->read_ms = clock_monotonic_ms(); /* who is asked from now on is asked after it */
}

static void step(struct keeping *keeping)
{
	struct sentinels_view view;

	if (redis_client_open(keeping->redis)) {
		keeping->read_ms = 0;
		return;
	}
	if (redis_client_master(keeping->redis, &view) || !view.is_agreed) {
		keeping->read_ms = 0;
		return;
	}
	if (keeping->read_ms && view.asked_ms < keeping->read_ms)
		return;
	if (keeping->read_ms)
		extend(keeping, clock_monotonic_ms() - view.since_ms >= MASTER_LEASE_WAIT_MS);
	clock_read(keeping);
}

/* Tells each reason once. */
static void redis_failed(enum redis_failure failure, const char *why)
{
	if (strcmp(failure_told, why) == 0)
		return;
	snprintf(failure_told, sizeof(failure_told), "%s", why);
	log_warn("redis_lease_error", LOG_S("why", why),
		 LOG_S("kind", failure == REDIS_REFUSED ? "refused" : "lost"));
}

static void *run(void *argument)
{
	struct keeping *keeping = argument;

	for (;;) {
		step(keeping);
		usleep(STEP_MS * 1000);
	}
	return NULL;
}

void master_lease_keep(const char *redis_url)
{
	struct keeping *keeping;

	if (!redis_url_has_sentinels(redis_url))
		return;
	keeping = checked(calloc(1, sizeof(*keeping)));
	keeping->redis = redis_client_new(redis_url, redis_failed);
	check(thread_detach(run, keeping) == 0);
}

/*
 * Where Redis is, by its Sentinels: threads of this process, one for each of them, ask five times a
 * second who the master is. So a switch is seen at once, whichever Sentinel announces it, and no
 * announcement can be missed.
 *
 * The Sentinels of the URL are all there are: a majority is more than half of these.
 */
#pragma once

#include "common/redis/redis.h"

#include <stdint.h>

#define SENTINEL_HOST_SIZE 256
#define SENTINEL_ERROR_SIZE 640

struct sentinels;

/* How this process logs in to the Sentinels; "": not. Before the first thread. Copied. */
void sentinels_login_set(const char *user, const char *password);

/*
 * The Sentinels of the URL, which has some. They are asked from the first call on, for the rest of
 * the process, whoever calls it again. Not before a fork().
 */
struct sentinels *sentinels_of(const struct redis_url *url);

struct sentinels_view {
	char host[SENTINEL_HOST_SIZE];
	int port;
	int is_named; /* by one Sentinel at least, within the last second; else the rest is unset */
	/* By a majority. Else the answer is the latest of any, and may be that of a minority. */
	int is_agreed;
	/* Monotonic times: since when a majority names it, without a break, */
	int64_t since_ms;
	/* and the latest time after which a majority was asked. */
	int64_t asked_ms;
};

/*
 * Reads the view; if no master is named, waits for one for at most `wait_ms`. 0, or -1 with a
 * sentence: none is named.
 */
int sentinels_view(struct sentinels *sentinels, int64_t wait_ms, struct sentinels_view *view,
		   char error[SENTINEL_ERROR_SIZE]);

/*
 * Whether they may promote the replica: within the last second one of them said that it answers and
 * has a replica-priority above 0, and none that it has 0.
 */
int sentinels_may_promote(struct sentinels *sentinels, const char *host, int port);

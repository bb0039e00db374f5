/*
 * The wait before the next attempt, with jitter of half its length: doubles from 50 ms to at most
 * 2 s. That of a connection stays at 200 ms for the first attempts, because a store that was
 * restarted is back within seconds, and what waits for it should not wait longer than that.
 */
#ifndef COMMON_BACKOFF_H
#define COMMON_BACKOFF_H

#include <stdint.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000
#define BACKOFF_CONNECT_MS 200
#define BACKOFF_CONNECT_TRIES 100 /* of these; some 15 s */

struct backoff {
	int64_t next_ms; /* 0: no failure yet */
	int tries;       /* of a connection */
};

/* the wait after one more failure, BACKOFF_FIRST_MS/2…BACKOFF_MOST_MS */
int64_t backoff_ms(struct backoff *backoff);
/* the same for a connection, BACKOFF_CONNECT_MS/2…BACKOFF_MOST_MS */
int64_t backoff_connect_ms(struct backoff *backoff);
void backoff_reset(struct backoff *backoff); /* after a success */

#endif

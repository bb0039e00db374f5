/*
 * The wait before the next attempt, with jitter of half its length: doubles from 50 ms to at most
 * 2 s. The wait of a connection stays at 200 ms for the first attempts, because a store that was
 * restarted is back within seconds, and what waits for it should not wait longer than that.
 *
 * And when the machine at the other end of a connection counts as gone.
 */
#pragma once

#include <stdint.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000
#define BACKOFF_CONNECT_MS 200
#define BACKOFF_CONNECT_TRIES 100 /* with that wait; some 15 s */

/*
 * Failures in a row are logged once, again after a minute, and after ten seconds if the reason is
 * another one: each of several hosts may have its own.
 */
#define BACKOFF_TELL_MS 60000
#define BACKOFF_TELL_OTHER_MS 10000

struct backoff {
	int64_t next_ms; /* 0: no failure yet */
	int tries;       /* attempts of a connection */
	uint64_t told;   /* a hash of the reason that was logged last; 0: none was */
	int64_t told_ms; /* when it was logged */
};

/* Returns the wait after one more failure, BACKOFF_FIRST_MS/2…BACKOFF_MOST_MS. */
int64_t backoff_ms(struct backoff *backoff);
/* Returns the wait of a connection, BACKOFF_CONNECT_MS/2…BACKOFF_MOST_MS. */
int64_t backoff_connect_ms(struct backoff *backoff);
/* Whether a failure for this reason is to be logged now. If so, it counts as logged. */
int backoff_tells(struct backoff *backoff, const char *why, int64_t now_ms);
void backoff_reset(struct backoff *backoff); /* after a success */

/*
 * A machine counts as gone when its kernel has acknowledged neither data nor a probe for so long. A
 * process that hangs does not count: its kernel still answers. Longer than the 3 s for which a
 * machine may stand still and go on.
 */
#define SILENCE_MS 5000   /* TCP_USER_TIMEOUT */
#define SILENCE_IDLE_S 2  /* then probes, */
#define SILENCE_PROBE_S 1 /* one in so long, */

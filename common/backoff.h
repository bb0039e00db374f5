/*
 * The wait before the next attempt: doubles from 50 ms to at most 2 s, with jitter of half its
 * length.
 */
#ifndef COMMON_BACKOFF_H
#define COMMON_BACKOFF_H

#include <stdint.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000

struct backoff {
	int64_t next_ms; /* 0: no failure yet */
};

/* the wait after one more failure, BACKOFF_FIRST_MS/2…BACKOFF_MOST_MS */
int64_t backoff_ms(struct backoff *backoff);
void backoff_reset(struct backoff *backoff); /* after a success */

#endif

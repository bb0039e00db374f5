/* What follows from an attempt to deliver: decided without I/O. */
#ifndef WEBHOOK_VERDICT_H
#define WEBHOOK_VERDICT_H

#include "webhook/post.h"

#include <stdint.h>

/* With the names that webhook_finish() in PostgreSQL knows. */
#define VERDICTS(X)                                                                      \
	X(VERDICT_DELIVERED, "delivered") /* 2xx */                                      \
	X(VERDICT_RETRY, "retry")         /* anything else: it is tried again */         \
	X(VERDICT_FAILED, "failed")       /* as before, but it was the last attempt */   \
	X(VERDICT_GONE, "gone")           /* 410: the endpoint wants nothing any more */ \
	X(VERDICT_RELEASED, "released")   /* it was not tried to its end */

enum verdict {
#define VERDICT(name, text) name,
	VERDICTS(VERDICT)
#undef VERDICT
};

#define RETRY_AFTER_S_MAX 3600 /* an endpoint cannot ask for a longer pause */

const char *verdict_name(enum verdict verdict);

/* `attempts`: with this one; of `attempts_most`. */
enum verdict verdict_of(const struct post_result *result, int64_t attempts, int64_t attempts_most);

/* Whether what a request has got counts as delivered. */
int is_delivered(const struct post_result *result);

/* The pause that the endpoint asks for, within the bound; 0: none. Only 429 and 503 can ask. */
int64_t verdict_pause_ms(const struct post_result *result);

/*
 * The delay after the n-th failed attempt, from 1 on: `first_ms` and then in proportion 5 s, 5 min,
 * 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h, 24 h …; longer by up to a quarter, as `random` says.
 */
int64_t retry_delay_ms(int64_t n, int64_t first_ms, uint32_t random);

#endif

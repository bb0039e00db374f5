/*
 * Budgets of wrong exchange codes, so that nobody finds a code by trying. They are in memory that
 * all processes of the gateway share; those of addresses are limits (gateway/auth/limits.h).
 *
 *	take ─▶ the code is looked up ─┬─ wrong: it is spent
 *	                               └─ right, or unknown: given back
 *
 * A guess takes from the budget before it is judged, so that many at once get no further than one
 * after the other. What guesses under way may still give back, nobody is refused for: they wait.
 *
 *	of a user     some wrong codes cost nothing; from then on each makes the user wait, twice
 *	              as long as the one before it
 *	of an address wrong_max a second (intake.h), and as many again that only connections in good
 *	              standing may spend: those with few wrong codes lately
 *	of all        ATTEMPTS_ALL_TIMES as many a second, which refuse only other connections
 *
 * No locks: each budget is of atomic words. What a process held when it died is given back by its
 * successor. One thread of each process.
 */
#pragma once

#include "gateway/listen/request.h"

#include <stddef.h>
#include <stdint.h>

#define ATTEMPTS_FIRST_WAIT_MS 1000
#define ATTEMPTS_LONGEST_WAIT_MS 3600000
#define ATTEMPTS_FORGET_MS 3600000 /* after the wait is over */
#define ATTEMPTS_ALL_TIMES 10
#define ATTEMPTS_TAKEN_MAX 257 /* at once, in one process */

struct attempts_limits {
	int64_t free_max;  /* wrong codes of a user that cost nothing; 0: no limit */
	int64_t wrong_max; /* a second, of an address; 0: no limit of addresses and of all */
};

/* Before the fork, beside limits_init(). */
void attempts_init(size_t processes, const struct attempts_limits *limits);
/* From now on this process takes as `process`; what a predecessor had taken is given back. */
void attempts_enter(size_t process);

enum attempt_verdict {
	ATTEMPT_ALLOWED,
	ATTEMPT_WAITS, /* until guesses under way are judged */
	ATTEMPT_HELD   /* refused because of wrong codes */
};

struct attempt {
	enum attempt_verdict verdict;
	int64_t wait_ms; /* ATTEMPT_HELD: until the next one may be allowed; at least 1 */
	size_t ticket;   /* ATTEMPT_ALLOWED by attempts_take() */
};

/*
 * A guess is charged to the user of the request, the address of its responder, and the responder
 * itself.
 */

/* Whether a guess is allowed now. One of the two before any answer tells about the code. */
struct attempt attempts_look(const struct request *request, int64_t now_us);
/* As attempts_look(), and takes; attempts_end() follows. */
struct attempt attempts_take(const struct request *request, int64_t now_us);
/* `wrong`: has the wrong code; NULL: it is right, or was not judged. */
void attempts_end(size_t ticket, const struct request *wrong, int64_t now_us);
/* A wrong code that was not taken for. */
void attempts_wrong(const struct request *request, int64_t now_us);

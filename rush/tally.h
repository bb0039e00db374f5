/*
 * The requests of a rush: when and on which connection each was sent, how it ended, and the verdict
 * on them. No I/O.
 *
 *	requests:  0 ……………………… first_open ……………… next ……………… requests_n
 *	           all have ended      some are open      not sent yet
 *
 * Requests are sent in the order of their numbers, so the oldest open one times out next.
 */
#pragma once

#include "client/client.h"
#include "rush/plan.h"

#define RUSH_CODES_MAX 100

/* How a request ended: an answer's code, or one of these. */
enum rush_end {
	RUSH_NOT_SENT = RUSH_CODES_MAX,
	RUSH_OPEN,
	RUSH_LOST,        /* its connection ended: unknown */
	RUSH_LATE,        /* no answer in time: unknown */
	RUSH_UNCONNECTED, /* its last connection could not be opened */
	RUSH_ENDS
};

struct rush_receive {
	uint32_t user, coupon; /* their indexes in the plan */
	struct ulid batch;
	int16_t index;
	int16_t code; /* of answered ones: the code of the answer */
};

struct rush_receives {
	struct rush_receive *list;
	size_t n, size;
};

void rush_receives_add(struct rush_receives *receives, const struct rush_receive *receive);

struct rush_request {
	int64_t time_us; /* when it was due (open) or how long it took (answered) */
	uint32_t sent_ms;
	uint16_t connection; /* on which it was sent */
	uint8_t end;
	uint8_t doubts; /* times that it was sent and may have been accepted without an answer */
};

struct rush_requests {
	const struct rush_plan *plan;
	struct rush_request *list; /* all of the plan's */
	uint32_t first_open, next;
	uint32_t ends[RUSH_ENDS];  /* numbers of requests */
	struct rush_receives told; /* in the answers, some several times */
	uint32_t strange;          /* lines that are no valid answer to an open request */
	uint32_t doubted;          /* requests with doubts: the unknown ones */
	uint32_t overdue;          /* answers that came after RUSH_LATE or RUSH_LOST */
	char strange_first[256];   /* the first strange line */
	int64_t answered_last_us;
};

/* All zero; never NULL. */
void *rush_array_new(size_t n, size_t size);

void rush_requests_init(struct rush_requests *requests, const struct rush_plan *plan);
void rush_requests_fini(struct rush_requests *requests);

/* Takes the next request. Times are microseconds from the start. Returns its number. */
uint32_t rush_requests_send(struct rush_requests *requests, uint16_t connection, int64_t due_us,
			    int64_t now_us);

/*
 * Records an answer. Returns the connection whose request it ended. RUSH_NONE: it ended none;
 * RUSH_WRONG: it is invalid.
 */
#define RUSH_NONE (-1)
#define RUSH_WRONG (-2)
int rush_requests_answer(struct rush_requests *requests, const struct client_reply *reply,
			 int64_t now_us);
void rush_requests_strange(struct rush_requests *requests, const char *line, size_t len);

/* Ends a request in another way, and counts that it may have been accepted. */
void rush_requests_end(struct rush_requests *requests, uint32_t request, enum rush_end end);
void rush_requests_doubt(struct rush_requests *requests, uint32_t request);

/* Ends the open requests of a lost connection: unknown. */
void rush_requests_lost(struct rush_requests *requests, uint16_t connection);

/* Ends one request that timed out. Returns its connection, or RUSH_NONE. */
int rush_requests_expire(struct rush_requests *requests, int64_t now_us);
/* When the next request times out; INT64_MAX: none is open. */
int64_t rush_requests_deadline_us(struct rush_requests *requests);

uint32_t rush_requests_answered(const struct rush_requests *requests);

/*
 * How long the answers of one code took, or with RUSH_ENDS all of them: exact, ascending, to be
 * freed.
 */
int64_t *rush_requests_times_us(const struct rush_requests *requests, int code, size_t *n);

/* The smallest value that `permyriad` of 10000 values do not exceed; 0 when n is 0. */
int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad);

/*
 * Compares the answers of a rush with PostgreSQL (P3): each accepted receive is exactly one user
 * coupon or exactly one recorded rejection, and every outcome belongs to an accepted or an unknown
 * answer.
 */

#define RUSH_WRONG_MAX 20 /* what is wrong is named up to this number, and all is counted */
#define RUSH_WRONG_SIZE 192

struct rush_tally {
	int64_t told;         /* distinct receives that were answered as accepted */
	int64_t issued;       /* of these: user coupons */
	int64_t rejected;     /* of these: recorded rejections */
	int64_t lost;         /* of these: neither */
	int64_t both;         /* of these: both */
	int64_t twice;        /* more than one row, or answered to two requests without a key */
	int64_t other;        /* answered as issued and rejected, or the other way round */
	int64_t unkept;       /* users whose one key was answered with different receives */
	int64_t stray;        /* outcomes that no answer explains */
	int64_t from_unknown; /* outcomes that an unknown answer explains: allowed */
	size_t wrong_n;
	char wrong[RUSH_WRONG_MAX][RUSH_WRONG_SIZE];
};

/* In the order of user, coupon, batch and index, as all that is compared. */
void rush_receives_sort(struct rush_receives *receives);

/*
 * The number of distinct receives of `told` that are not in `before`. Adds them to `of_coupons`,
 * the numbers of each of the plan's coupons.
 */
int64_t rush_receives_new(const struct rush_receives *told, const struct rush_receives *before,
			  int64_t *of_coupons);

/*
 * `before` has the outcomes from before the rush, `rows` and `rejections` the present ones, of the
 * plan's users and coupons. Each, and what the answers told, is sorted.
 */
void rush_tally(struct rush_tally *tally, const struct rush_requests *requests,
		const struct rush_receives *before, const struct rush_receives *rows,
		const struct rush_receives *rejections);

/* Adds a sentence to `wrong`, if there is room. */
void rush_tally_note(struct rush_tally *tally, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The number of violations. */
int64_t rush_tally_wrong(const struct rush_tally *tally);

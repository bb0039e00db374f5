/*
 * The requests of a rush: when and on which connection each was sent, and how it ended. No I/O.
 *
 *	requests:  0 ……………………… first_open ……………… next ……………… requests_n
 *	           all have ended      some are open      not sent yet
 *
 * Requests are sent in the order of their numbers, so the oldest open one times out next.
 */
#ifndef RUSH_REQUESTS_H
#define RUSH_REQUESTS_H

#include "common/message/receive.h"
#include "rush/plan.h"
#include "client/client.h"

#define RUSH_CODES_MAX 100

/* How a request ended: an answer's code, or one of these. */
enum rush_end {
	RUSH_NOT_SENT = RUSH_CODES_MAX,
	RUSH_OPEN,
	RUSH_LOST, /* its connection ended: unknown */
	RUSH_LATE, /* no answer in time: unknown */
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
void rush_receives_fini(struct rush_receives *receives);

struct rush_request {
	int64_t time_us; /* when it was due (open) or how long it took (answered) */
	uint32_t sent_ms;
	uint16_t connection; /* on which it was sent */
	uint8_t end;
};

struct rush_requests {
	const struct rush_plan *plan;
	struct rush_request *list; /* all of the plan's */
	uint32_t first_open, next;
	uint32_t ends[RUSH_ENDS];  /* numbers of requests */
	struct rush_receives told; /* in the answers, some several times */
	uint32_t strange;          /* lines that are no valid answer to an open request */
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

/* Ends the open requests of a lost connection: unknown. */
void rush_requests_lost(struct rush_requests *requests, uint16_t connection);

/* Ends one request that timed out. Returns its connection, or RUSH_NONE. */
int rush_requests_expire(struct rush_requests *requests, int64_t now_us);
/* When the next request times out; INT64_MAX: none is open. */
int64_t rush_requests_deadline_us(struct rush_requests *requests);

uint32_t rush_requests_answered(const struct rush_requests *requests);
/* Requests that may or may not have been accepted. */
uint32_t rush_requests_unknown(const struct rush_requests *requests);
int rush_requests_is_unknown(const struct rush_requests *requests, uint32_t request);

/* How long answers took: exact, from all of them. */
struct rush_latency {
	size_t n;
	int64_t p50_us, p90_us, p99_us, p999_us, max_us; /* 0 when n is 0 */
};

/* Of the answers of one code, or of all with RUSH_ENDS. */
void rush_requests_latency(const struct rush_requests *requests, int code,
			   struct rush_latency *latency);

/* The smallest value that `permyriad` of 10000 values do not exceed; 0 when n is 0. */
int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad);

#endif

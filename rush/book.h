/*
 * The book of a rush: when and on which connection each request was sent, and how it ended. No I/O.
 *
 *	requests:  0 ……………………… first_open ……………… next ……………… requests_n
 *	           all have ended      some are open      not sent yet
 *
 * Requests are sent in the order of their numbers, so the oldest open one times out next.
 */
#ifndef RUSH_BOOK_H
#define RUSH_BOOK_H

#include "client/client.h"
#include "common/message/receive.h"
#include "rush/plan.h"

#define RUSH_CODES_MAX 100

/* How a request ended: an answer's code, or one of these. */
enum rush_end {
	RUSH_NOT_SENT = RUSH_CODES_MAX,
	RUSH_OPEN,
	RUSH_LOST, /* its connection ended: unknown */
	RUSH_LATE, /* no answer in time: unknown */
	RUSH_ENDS
};

/* The answer to an accepted request. */
struct rush_told {
	uint32_t request;
	uint8_t code; /* 0, 9 rejected or 22 unknown */
	uint8_t index;
	char batch[ULID_LEN];
};

struct rush_book {
	const struct rush_plan *plan;
	uint8_t *end;         /* of each request */
	uint16_t *connection; /* on which it was sent */
	int64_t *time_us;     /* when it was due (open) or how long it took (answered) */
	uint32_t *sent_ms;
	uint32_t first_open, next;
	uint32_t ends[RUSH_ENDS]; /* numbers of requests */
	struct rush_told *told;
	size_t told_n, told_size;
	/* lines that are no valid answer to an open request */
	uint32_t strange;
	uint32_t overdue;        /* answers that came after RUSH_LATE or RUSH_LOST */
	char strange_first[256]; /* the first strange line */
	int64_t answered_last_us;
};

void rush_book_init(struct rush_book *book, const struct rush_plan *plan);
void rush_book_fini(struct rush_book *book);

/* Takes the next request. Times are microseconds from the start. Returns its number. */
uint32_t rush_book_send(struct rush_book *book, uint16_t connection, int64_t due_us,
			int64_t now_us);

/*
 * Records an answer. Returns the connection whose request it ended. RUSH_NONE: it ended none;
 * RUSH_WRONG: it is invalid.
 */
#define RUSH_NONE (-1)
#define RUSH_WRONG (-2)
int rush_book_answer(struct rush_book *book, const struct client_reply *reply, int64_t now_us);
void rush_book_strange(struct rush_book *book, const char *line, size_t len);

/* Ends the open requests of a lost connection: unknown. Returns how many there were. */
uint32_t rush_book_lost(struct rush_book *book, uint16_t connection);

/* Ends one request that timed out. Returns its connection, or RUSH_NONE. */
int rush_book_expire(struct rush_book *book, int64_t now_us);
/* When the next request times out; INT64_MAX: none is open. */
int64_t rush_book_deadline_us(struct rush_book *book);

uint32_t rush_book_open(const struct rush_book *book);
uint32_t rush_book_answered(const struct rush_book *book);
/* Requests that may or may not have been accepted. */
uint32_t rush_book_unknown(const struct rush_book *book);
int rush_book_is_unknown(const struct rush_book *book, uint32_t request);

/* How long answers took: exact, from all of them. */
struct rush_latency {
	size_t n;
	int64_t p50_us, p90_us, p99_us, p999_us, max_us; /* 0 when n is 0 */
};

/* Of the answers of one code, or of all with RUSH_ENDS. */
void rush_book_latency(const struct rush_book *book, int code, struct rush_latency *latency);

/* The smallest value that `permyriad` of 10000 values do not exceed; 0 when n is 0. */
int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad);

#endif

/* A distribution: the listed users, and the run that sends their requests. */
#pragma once

#include "client/client.h"
#include "common/message/answer.h"
#include "common/message/receive.h"
#include "ctl/table.h"

#include <stddef.h>
#include <stdint.h>

#define LIST_USERS_MAX 50000000
#define LIST_REPEATS_MAX RECEIVE_SLOT_MAX /* how often a user may be listed, with repeats */

/* How a request has ended. Ends with the same status for the operator follow each other. */
enum end {
	END_WAITING, /* not sent yet, or to be sent again */
	END_SENT,
	END_ANSWERED, /* and the answer, unless that is ANSWER_REJECTED */
	END_ISSUED = END_ANSWERED + ANSWER_OK,
	/* what the list has wrong: not sent */
	END_INVALID = END_ANSWERED + ANSWER_COUNT,
	END_DUPLICATE,
	END_TOO_MANY,
	END_REJECTED, /* and the reason; REASON_NONE: one that this program does not know */
	ENDS_N = END_REJECTED + REASON_COUNT
};

static inline int end_is_final(enum end end)
{
	return end >= END_ANSWERED;
}

struct listed {
	uint64_t at; /* in the text */
	uint32_t len, line;
	uint32_t repeat; /* 1: the user is listed for the first time */
	enum end end;
};

enum list_format {
	LIST_LINES_GUESSED, /* by the name of the file: it may be CSV nevertheless */
	LIST_LINES,
	LIST_CSV,
	LIST_JSONL
};

struct list { /* the first six are the caller's; all else zero at first */
	const char *path;
	enum list_format format;
	char delimiter; /* of CSV */
	/*
	 * The column, or the member, that has the users: its name, or its number where there is no
	 * heading. NULL: user or user_id, or the only one.
	 */
	const char *column;
	int has_no_heading;      /* the first line lists a user */
	int with_repeats;        /* a user gets as many coupons as it is listed; otherwise one */
	struct text_buffer text; /* the ids */
	struct listed *users;
	size_t size;
	uint32_t n;
	/* finds a user and its repeat; 0: free, otherwise one more than in users */
	uint32_t *index;
	uint64_t index_mask;
};

/*
 * Reads the list. A file that cannot be read, has no users, or is not in the format ends the
 * process with a sentence that shows what was read.
 */
void list_read(struct list *list);
void list_fini(struct list *list);

static inline const char *list_text(const struct list *list, uint32_t i)
{
	return list->text.data + list->users[i].at;
}

/* Returns the index of the entry that lists this user for the `repeat`th time, or -1. */
int64_t list_find(const struct list *list, const char *text, size_t len, uint32_t repeat);

struct run_plan {
	int64_t coupon;
	char prefix[RECEIVE_KEY_MAX + 1]; /* of the keys; the repeat of the user follows it */
	struct gateway_address address;
	uint32_t connections_n;
	int64_t rate;        /* users a second, at most; 0: no limit */
	int64_t target_us;   /* the delay of answers that is to be kept; see window.h */
	int64_t patience_us; /* how long nothing may end */
};

enum run_end {
	RUN_DONE,        /* all users have ended */
	RUN_INTERRUPTED, /* SIGINT or SIGTERM */
	RUN_IMPATIENT,   /* nothing has ended for too long */
	RUN_FAILED       /* an answer that no repetition would change */
};

struct run_report {
	enum run_end end;
	uint32_t answered_n; /* users that ended in this run */
	int64_t duration_us;
	char why[300]; /* RUN_IMPATIENT, RUN_FAILED: what was answered last */
};

/*
 * Sends the requests and sets the ends in the list. Returns when the run has ended and every
 * request in flight is answered, or is overdue.
 */
void run(struct list *list, const struct run_plan *plan, struct run_report *report);

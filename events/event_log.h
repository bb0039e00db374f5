/*
 * The relay's connection to PostgreSQL, over which it reads and empties the event log. One relay
 * holds the lock of the log; it is lost with the connection. A failure drops the connection and is
 * logged. One thread.
 */
#ifndef EVENTS_EVENT_LOG_H
#define EVENTS_EVENT_LOG_H

#include "common/postgres/query.h"

struct event_log;

/* `url` is lent. `waiting` as in struct postgres_patience. */
struct event_log *event_log_new(const char *url, int (*waiting)(void *context), void *context);
void event_log_free(struct event_log *log);

/* Connects and takes the lock, where that is not done. 1: held; 0: another has it; -1: failed. */
int event_log_open(struct event_log *log);
/* Gives the lock up. */
void event_log_close(struct event_log *log);

/* The others fail when the lock is not held. */

int event_log_webhooks(struct event_log *log); /* whether events go to webhooks too; -1: failed */

/*
 * The oldest rows: at least one, where there are any, and no further ones beyond so many events.
 * Rows of sql_query_event_log_read in binary form, to be cleared, or NULL.
 */
PGresult *event_log_read(struct event_log *log, int rows_max, int64_t events_max);

/* What is removed, and what is passed on to webhooks with it. */
struct event_log_done {
	struct postgres_array ids;
	struct postgres_array coupons, types, events;
};
int event_log_remove(struct event_log *log, const struct event_log_done *done); /* 0, or -1 */

struct event_lag {
	int64_t events;
	int64_t age_ms; /* of the oldest */
	int64_t size_bytes;
};
int event_log_lag(struct event_log *log, struct event_lag *lag); /* 0, or -1 */

#endif

/*
 * The events of one row of event_log, one after the other. The texts of an event are valid until
 * the next one is read. One thread.
 */
#ifndef WORKER_RELAY_ROW_H
#define WORKER_RELAY_ROW_H

#include "worker/relay/event.h"

#include <libpq-fe.h>

struct row;

struct row *row_new(const char *source); /* lent */
void row_free(struct row *row);          /* NULL is allowed */

/*
 * Begins with a row of sql/query/event_log_read.sql in binary form, which is lent. 0, or -1: it is
 * malformed.
 */
int row_begin(struct row *row, const PGresult *result, int number);
int64_t row_id(const struct row *row);
/* 1: the next event; 0: there is none; -1: the row is malformed. */
int row_next(struct row *row, struct event *event);

#endif

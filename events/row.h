/*
 * The events of one row of event_log, one after the other. The texts of an event are valid until
 * the next one is read. One thread.
 */
#pragma once

#include "events/event.h"

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

struct row;

struct row *row_new(const char *source); /* lent */
void row_free(struct row *row);          /* NULL is allowed */

/*
 * Begins with a row of sql_query_event_log_read in binary form, which is lent. 0, or -1: it is
 * malformed.
 */
int row_begin(struct row *row, const PGresult *result, int number);
int64_t row_id(const struct row *row);
/* 1: the next event; 0: there is none; -1: the row is malformed. */
int row_next(struct row *row, struct event *event);

/* Values in PostgreSQL's binary form: numbers, and arrays of one dimension. */

/* A signed integer of 2, 4 or 8 bytes; 0 for any other length. */
int64_t binary_number(const char *bytes, size_t len);

/* The elements of an array, one after the other. */
struct binary_array {
	const char *at; /* lent */
	size_t len;     /* what is left of it */
};

/* An array without elements may be `len` 0, too. */
struct binary_array binary_array_begin(const char *bytes, size_t len);
/* The next element, which is lent, and its length. NULL: there is none, or it is malformed. */
const char *binary_array_next(struct binary_array *array, size_t *len);
/* Reads the next element as a number. 0, or -1. */
int binary_array_number(struct binary_array *array, int64_t *number);

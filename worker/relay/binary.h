/* Reads values of a result in PostgreSQL's binary form: numbers, and arrays of one dimension. */
#ifndef WORKER_RELAY_BINARY_H
#define WORKER_RELAY_BINARY_H

#include <stddef.h>
#include <stdint.h>

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
/* The same of a number. 0, or -1. */
int binary_array_number(struct binary_array *array, int64_t *number);

#endif

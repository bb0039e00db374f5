/* Lists that grow, and lists of numbers. */
#pragma once

#include "common/check.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * The list with room for one more element than the `n` that it has: it may have moved. `*size` is
 * how many fit; both are 0 and NULL at first. No memory ends the process.
 */
static inline void *array_room(void *list, size_t n, size_t *size, size_t element_bytes)
{
	if (n < *size)
		return list;
	*size = *size ? 2 * *size : 64;
	return checked(reallocarray(list, *size, element_bytes));
}

/* Compares int64_t, for qsort(); also structs that begin with one. */
static inline int number_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts a list, and leaves each element once. Returns how many are left. */
static inline size_t list_unique(void *list, size_t n, size_t element_bytes,
				 int (*compare)(const void *a, const void *b))
{
	char *kept = list, *at = list;
	size_t kept_n = 0;

	if (n > 1)
		qsort(list, n, element_bytes, compare);
	for (size_t i = 0; i < n; i++, at += element_bytes) {
		if (kept_n > 0 && compare(kept - element_bytes, at) == 0)
			continue;
		memmove(kept, at, element_bytes);
		kept += element_bytes;
		kept_n++;
	}
	return kept_n;
}

static inline size_t numbers_unique(int64_t *list, size_t n)
{
	return list_unique(list, n, sizeof(*list), number_compare);
}

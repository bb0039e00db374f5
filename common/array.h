/* Lists that grow. */
#ifndef COMMON_ARRAY_H
#define COMMON_ARRAY_H

#include "common/check.h"

#include <stddef.h>
#include <stdlib.h>

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

#endif

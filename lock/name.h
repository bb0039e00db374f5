/*
 * Names of locks from a template: "lock:coupon:{coupon}:user:{user}", so that only those wait for
 * each other who contend for the same thing.
 */
#pragma once

#include "lock/lock.h"

#include <stddef.h>

#define LOCK_NAME_SIZE (LOCK_NAME_MAX + 1)
#define LOCK_NAME_WHY_SIZE 128

struct lock_argument {
	const char *name, *value;
};

/*
 * Replaces each {NAME} of the template by the value of that argument. In a value, every byte that
 * is no letter, digit, '-', '.', '_', '~', '|' or '@' becomes %XX, so that two lists of values
 * never make the same name. 0, or -1 with a sentence in `why`: the template is malformed, an
 * argument is missing or not used, or the name is longer than LOCK_NAME_MAX.
 */
int lock_name_format(char out[LOCK_NAME_SIZE], const char *template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE]);

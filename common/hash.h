/*
 * Hash tables: uthash with SipHash by a random key of the process. Its own hash has no key: a
 * client that chooses its ids so that they have the same hash would make a table a list. Included
 * instead of <uthash.h>.
 */
#pragma once

#include "common/check.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Processes that are forked from one have the same key. */
uint64_t hash_keyed(const void *bytes, size_t len);

#define HASH_FUNCTION(bytes, len, hash) ((hash) = (unsigned)hash_keyed((bytes), (len)))
/* Its own ends the process without a word. */
#define uthash_malloc(bytes) checked(malloc(bytes))
#include <uthash.h>

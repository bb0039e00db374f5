/*
 * The two clocks: a monotonic one for waiting, and the wall clock for ids and logs; and times as
 * RFC 3339 writes them.
 */
#pragma once

#include <stdint.h>

int64_t clock_monotonic_ms(void); /* milliseconds since a fixed moment of this boot */
int64_t clock_monotonic_us(void); /* the same in microseconds */
int64_t clock_wall_ms(void);      /* milliseconds since 1970-01-01T00:00:00Z */

#define CLOCK_RFC3339_SIZE 32 /* enough for clock_rfc3339() with its NUL */

/*
 * Writes `wall_ms` as RFC 3339 in UTC with milliseconds: 2026-11-21T12:00:00.000Z. Returns `out`.
 */
char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE]);
#define RFC3339_LAST_MS 253402300799999 /* 9999-12-31T23:59:59.999Z: a year has four digits */
/*
 * Reads one, also as 2026-11-21 13:00:00.250+01:00. Digits beyond milliseconds are cut off, a leap
 * second is read as the following second. The offset is required: a time without one is ambiguous.
 * 0, or -1 when the whole text is not such a time, or one after the year 9999 in UTC.
 */
int rfc3339_parse(const char *text, int64_t *wall_ms);

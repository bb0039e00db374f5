/*
 * Reads a time as RFC 3339 writes it: 2026-11-21T12:00:00Z, 2026-11-21 13:00:00.250+01:00.
 * clock_rfc3339() writes one.
 */
#ifndef COMMON_MESSAGE_RFC3339_H
#define COMMON_MESSAGE_RFC3339_H

#include <stdint.h>

/*
 * Milliseconds since 1970-01-01T00:00:00Z; digits beyond milliseconds are cut off, a leap second is
 * read as the following second. The offset is required: a time without one is ambiguous. 0, or -1
 * when the whole text is not such a time.
 */
int rfc3339_parse(const char *text, int64_t *wall_ms);

#endif

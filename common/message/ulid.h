/*
 * A batch's id: a ULID (https://github.com/ulid/spec), 48 bits of wall clock in milliseconds and 80
 * random bits. Unique; no code depends on its order. The text is 26 characters of Crockford's base
 * 32 in upper case.
 */
#ifndef COMMON_MESSAGE_ULID_H
#define COMMON_MESSAGE_ULID_H

#include <stddef.h>
#include <stdint.h>

#define ULID_LEN 26
#define ULID_SIZE (ULID_LEN + 1)
#define ULID_UUID_SIZE 37

struct ulid {
	uint8_t bytes[16];
};

/* A new one, its random bits from the kernel. Any thread. */
void ulid_new(struct ulid *ulid, int64_t wall_ms);

/* Writes 26 characters and NUL; returns `out`. */
char *ulid_format(const struct ulid *ulid, char out[ULID_SIZE]);

/* Parses exactly `len` bytes in the one canonical spelling; 0, or -1. */
int ulid_parse(struct ulid *ulid, const char *text, size_t len);

/* When it was made: its first 48 bits, in milliseconds of wall clock. */
int64_t ulid_time_ms(const struct ulid *ulid);

/*
 * The same 128 bits as PostgreSQL's uuid text, and back from it (lower case with hyphens; 0, or
 * -1).
 */
char *ulid_to_uuid(const struct ulid *ulid, char out[ULID_UUID_SIZE]);
int ulid_from_uuid(struct ulid *ulid, const char *text);

#endif

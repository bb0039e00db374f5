/*
 * Strict JSON over cJSON. cJSON alone accepts NUL bytes, duplicate members, bytes after the value,
 * leading zeros, control characters in strings and broken UTF-8, and turns every number into a
 * double; here all of that is refused. Numbers are integers: a fraction or an exponent is refused,
 * and so is a number beyond 2^53 - 1, which a double would silently change.
 *
 * The tree lives in an arena that is reset by the next parse: never call cJSON_Delete on it, keep
 * no pointer into it. One arena serves one thread.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_INTEGER_MAX 9007199254740991 /* 2^53 - 1 */
#define JSON_DEPTH_MAX 16                 /* arrays and objects inside each other */

struct json_arena;

struct json_arena *json_arena_new(void);
void json_arena_free(struct json_arena *arena);

/*
 * From now on numbers may have a fraction or an exponent, because other authors write the text.
 * `valuedouble` has these numbers, rounded. json_integer() and json_id() still refuse them.
 */
void json_decimals_allow(struct json_arena *arena);

/* Zeroes what is left of the last text, if that had secrets. */
void json_arena_wipe(struct json_arena *arena);

/* Passes over a byte order mark, which some programs put before what they send. */
void json_mark_skip(const char **text, size_t *len);

/* Parses exactly `len` bytes. The root, or NULL with a sentence in `*error` (a constant). */
const cJSON *json_parse(struct json_arena *arena, const char *text, size_t len, const char **error);

/* The string that json_parse() has refused, if it is the value of a member. */
struct json_fault {
	const char *member; /* in the text, without an end of its own; NULL: none */
	size_t member_len;
	size_t byte; /* the wrong byte of the value, as it was sent: 1… */
};

/* After a json_parse() that returned NULL. */
const struct json_fault *json_fault(const struct json_arena *arena);

/*
 * An id from 1 to 2^63 - 1, as a string in canonical decimal or as a number up to 2^53 - 1. 0, or
 * -1 with the reason in `*error` (a constant that follows the member's name in a sentence).
 */
int json_id(const cJSON *item, int64_t *id, const char **error);

/* Whether it is UTF-8. */
int json_text_is_valid(const char *text);
/* Replaces bytes that are not UTF-8 by '?', for instance where a text was cut. */
void json_text_mend(char *text);

/* Appends a sentence of at most 1023 bytes to an array. */
void json_sentence_add(cJSON *array, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * As cJSON_PrintUnformatted(), which rounds integers to 15 digits; here they keep all. To be
 * freed by cJSON_free().
 */
char *json_write(const cJSON *value);

/* An integer from `least` to `most`; 0, or -1. */
int json_integer(const cJSON *item, int64_t least, int64_t most, int64_t *value);

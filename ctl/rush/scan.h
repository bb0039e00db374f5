/*
 * Reads reply lines. rush_scan() knows the spelling that the gateway writes and nothing else, and
 * takes a few nanoseconds; what it does not know rush_scan_strict() reads as JSON.
 */
#ifndef CTL_RUSH_SCAN_H
#define CTL_RUSH_SCAN_H

#include "common/json.h"

#include <stddef.h>
#include <stdint.h>

struct rush_reply {
	int64_t request; /* the id; -1: it has none */
	int code;
	const char *receive; /* into the line or the arena, not ended by NUL; NULL: none */
	size_t receive_len;
};

/* A line without its end. 0, or -1 when it is not such a line. */
int rush_scan(const char *line, size_t len, struct rush_reply *reply);
int rush_scan_strict(struct json_arena *arena, const char *line, size_t len,
		     struct rush_reply *reply);

#endif

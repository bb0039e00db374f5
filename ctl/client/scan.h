/*
 * Reads reply lines. client_scan() accepts only the format that the gateway writes, and takes a few
 * nanoseconds; other lines are for client_scan_strict(), which reads any JSON.
 */
#ifndef CTL_CLIENT_SCAN_H
#define CTL_CLIENT_SCAN_H

#include "common/message/json.h"

#include <stddef.h>
#include <stdint.h>

struct client_reply {
	int64_t request; /* the id; -1: it has none */
	int code;
	const char *receive; /* into the line or the arena, not ended by NUL; NULL: none */
	size_t receive_len;
	const char *reason; /* into the arena; NULL: none, or not read */
};

/* `line` has no line end. 0, or -1 when it is not such a line. */
int client_scan(const char *line, size_t len, struct client_reply *reply);
int client_scan_strict(struct json_arena *arena, const char *line, size_t len,
		       struct client_reply *reply);

#endif

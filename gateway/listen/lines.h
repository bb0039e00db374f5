/*
 * The socket API's connections: lines in, reply lines out, in the order of completion. Belongs to
 * one event loop.
 *
 * A connection may be closed before its requests are answered; it is freed with the last of them.
 * Connections with input take turns (intake.h); one with much input that waits for its turn is not
 * read from. At inflight_per_connection_max requests in flight, or at its share where all have much
 * in flight, it is not served until half of them are answered. A client that does not read its
 * replies is cut off at output_limit_bytes, one that sends HTTP is answered no more, and an idle
 * one is closed; other connections are not affected.
 *
 * All input and output together has a bound, buffer_bytes. From half of it on, a connection
 * whose output is more than its share is not served, and one whose input is more is not read from,
 * for ten seconds at most; beyond it those that hold most are closed.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct lines;

/* `line_limit_bytes`: a longer line is answered too_large. */
struct lines *lines_new(struct event_base *base, const struct config *config, struct intake *intake,
			size_t line_limit_bytes);
void lines_accept(void *lines, const struct arrival *arrival); /* arrival_fn */
/*
 * After intake_stop(): reads no more, and serves no more of what was read. Each connection ends
 * with the last of its replies.
 */
void lines_stop(struct lines *lines);

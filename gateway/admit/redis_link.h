/*
 * A connection to Redis on the event loop, for the gateway: hiredis, reconnected with backoff
 * whenever it is lost. Every command has a deadline: when the oldest one is overdue, the connection
 * is closed. Event-loop thread only.
 *
 * A failed command is of one of two kinds. With a reply of type error only this command failed; the
 * connection stays open, and redis_error_means_not_run() returns whether the command had no effect.
 * Without a reply the connection is lost, and whether the command ran is unknown.
 */
#pragma once

#include "common/redis/redis.h"

#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

struct redis_link;

struct redis_link_options {
	struct event_base *base;
	const char *url; /* a malformed one ends the process */
	int64_t timeout_ms;
	const char *script; /* loaded at each connecting; must outlive the link */
};

/* The reply, lent; NULL: none was received. */
typedef void redis_done_fn(void *context, const redisReply *reply);

/* It lives as long as the process. */
struct redis_link *redis_link_new(const struct redis_link_options *options);

/*
 * Queues a command; `lengths` is NULL for arguments without NUL bytes. 0, and `done` is called
 * later; or -1: there is no connection, nothing was sent.
 */
int redis_link_command(struct redis_link *link, int argc, const char **argv, const size_t *lengths,
		       redis_done_fn *done, void *context);

/*
 * Writes the gathered commands; returns whether there were any. To be called once at the end of
 * every loop turn.
 */
int redis_link_flush(struct redis_link *link);

size_t redis_link_in_flight(const struct redis_link *link); /* commands without a reply */
/* Lent: the process of Redis, `run_id`; the same as scripts take it; and the script's hash. */
const struct redis_handshake *redis_link_handshake(const struct redis_link *link);
/*
 * Reads the process and its lease again, after a script has replied that a coupon is not verified
 * on this process. A new run id counts as another connecting.
 */
void redis_link_process_read(struct redis_link *link);
/* Loads the script again, after Redis replied NOSCRIPT. */
void redis_link_script_load(struct redis_link *link);

uint64_t redis_link_connects(const struct redis_link *link); /* how many times it became ready */

/* NULL when connected and ready, else the reason (a text that is valid until the next turn). */
const char *redis_link_trouble(const struct redis_link *link);
/*
 * As redis_link_trouble(), or the reason why scripts issue nothing: under Redis Sentinel its lease
 * must hold.
 */
const char *redis_link_issue_trouble(const struct redis_link *link);

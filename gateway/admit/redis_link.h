/*
 * One connection to Redis: hiredis on the event loop, connected again with backoff whenever it is
 * lost. Every command has a deadline: when the oldest one is overdue the connection is cut, and all
 * that was in flight ends as lost, never as failed. Event-loop thread only.
 */
#ifndef GATEWAY_ADMIT_REDIS_LINK_H
#define GATEWAY_ADMIT_REDIS_LINK_H

#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

struct redis_link;

/* The reply to a command, only lent; NULL: none came, and nobody knows whether the command ran. */
typedef void redis_done_fn(void *context, const redisReply *reply);

struct redis_link *redis_link_new(struct event_base *base, const char *url, int64_t timeout_ms);
void redis_link_free(struct redis_link *link); /* ends what is in flight with NULL */

/*
 * Queues a command; 0, and `done` follows later, or -1: there is no connection, nothing was sent.
 */
int redis_link_command(struct redis_link *link, int argc, const char **argv, const size_t *lengths,
		       redis_done_fn *done, void *context);
/* The same for at most 16 arguments without NUL bytes. */
int redis_link_words(struct redis_link *link, int argc, const char **argv, redis_done_fn *done,
		     void *context);

int redis_link_has_unsent(const struct redis_link *link);
void redis_link_flush(
	struct redis_link *link); /* writes what has gathered: once at the end of every loop turn */

size_t redis_link_in_flight(const struct redis_link *link); /* commands without a reply */
const char *redis_link_run_id(
	const struct redis_link *link); /* of the Redis process, as it said at connecting */
const char *redis_link_script(const struct redis_link *link); /* the hash of issue.lua */
void redis_link_script_load(struct redis_link *link);         /* again: Redis has forgotten it */

uint64_t redis_link_connects(const struct redis_link *link); /* how often it became ready */

/* NULL when connected and ready, else why not (a text that lives until the next turn). */
const char *redis_link_trouble(const struct redis_link *link);

#endif

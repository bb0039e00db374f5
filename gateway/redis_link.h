/*
 * The gateway's connection to Redis: hiredis on the event loop, connected again with backoff whenever it is lost. Every command has a
 * deadline: when the oldest one is overdue the connection is cut, and all that was in flight ends as lost, never as failed.
 * Event-loop thread only.
 */
#ifndef GATEWAY_REDIS_LINK_H
#define GATEWAY_REDIS_LINK_H

#include "gateway/admission.h"

#include <event2/event.h>
#include <hiredis/hiredis.h>

struct redis_link;

/* A reply to a reading command; NULL: none came. The reply is only lent. */
typedef void redis_reply_fn(void *context, const redisReply *reply);

/* `admission` gets the end of every call that redis_link_send took; it may be set later than the link is made. */
struct redis_link *redis_link_new(struct event_base *base, const char *url, int64_t timeout_ms);
void redis_link_free(struct redis_link *link);
void redis_link_bind(struct redis_link *link, struct admission *admission);

/* Sends a script call. 0, or -1: not connected, nothing was sent. */
int redis_link_send(struct redis_link *link, struct call *call);

/*
 * Removes a confirmed batch from its outbox, with the next write or within 50 ms. When Redis is away the entry stays; the
 * keeper sends it again, harmlessly.
 */
void redis_link_outbox_remove(struct redis_link *link, int64_t coupon, const struct ulid *batch);

/* HGET of a user's records; what lua/coupon_state.lua returns. */
void redis_link_user(struct redis_link *link, int64_t coupon, int64_t user, redis_reply_fn *done, void *context);
void redis_link_coupon(struct redis_link *link, int64_t coupon, redis_reply_fn *done, void *context);

/* Writes what has gathered: once at the end of every loop turn. */
void redis_link_flush(struct redis_link *link);

size_t redis_link_in_flight(const struct redis_link *link); /* commands without a reply */
int redis_link_is_idle(const struct redis_link *link);      /* nothing in flight, nothing to be sent */

/* NULL when connected and ready, else why not (a text that lives until the next turn). */
const char *redis_link_trouble(const struct redis_link *link);

#endif

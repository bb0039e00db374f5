/*
 * One AMQP connection that is read without blocking and comes back by itself. librabbitmq hands out frames; here they
 * become whole messages, confirms, and the one event "lost". One thread.
 */
#ifndef WORKER_LINK_H
#define WORKER_LINK_H

#include "common/amqp_link.h"
#include "worker/envelope.h"

#include <stdint.h>

struct link;

/* Any may be NULL. None may close the link. */
struct link_events {
	/* A new connection: declare, consume. 0, or -1 with `error`, and the connection is dropped again. */
	int (*opened)(void *context, amqp_connection_state_t connection, char error[AMQP_LINK_ERROR_SIZE]);
	void (*delivered)(void *context, uint64_t tag, struct envelope *envelope); /* the envelope is taken over */
	void (*returned)(void *context, const struct envelope *envelope);
	void (*confirmed)(void *context, uint64_t tag, int multiple, int acked);
	void (*lost)(void *context); /* only after opened() said 0 */
};

struct link *link_new(const char *name, const char *url, const struct link_events *events, void *context);
/* Says good-bye to the broker; lost() is not called. */
void link_free(struct link *link);

/* Connects when it is down and its time has come (blocks, at most some AMQP_LINK_TIMEOUT_S). */
void link_step(struct link *link, int64_t now_ms);
/* Reads what is there, and lets the library send its heartbeat. */
void link_read(struct link *link);

int link_up(const struct link *link);
int link_blocked(const struct link *link); /* the broker takes no publishes at present */
int link_fd(const struct link *link);      /* for poll(); -1 when down */
/* When link_step() or link_read() wants to be called at the latest; `now_ms` when something is already in memory. */
int64_t link_deadline_ms(const struct link *link, int64_t now_ms);

/* Each 0, or -1 and the link is lost. */
int link_publish(struct link *link, const char *exchange, amqp_bytes_t routing_key, int mandatory,
		 const amqp_basic_properties_t *properties, amqp_bytes_t body);
int link_ack(struct link *link, uint64_t tag, int multiple);
/* Asks the broker for no more deliveries. */
int link_cancel(struct link *link, const char *consumer_tag);

#endif

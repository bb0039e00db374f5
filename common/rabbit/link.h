/*
 * One AMQP connection that is read without blocking and comes back by itself. librabbitmq hands out
 * frames; here they become whole messages, confirms, and the one event "lost". One thread.
 */
#ifndef COMMON_RABBIT_LINK_H
#define COMMON_RABBIT_LINK_H

#include "common/rabbit/connection.h"
#include "common/rabbit/envelope.h"
#include "common/rabbit/link_opening.h"

#include <stdint.h>

struct link;

/* Any may be NULL. None may close the link. */
struct link_events {
	void (*opened)(
		void *context); /* a new connection: everything is declared, and it consumes */
	/* `source` is the index of the queue; `tag` counts over all. The envelope is taken over. */
	void (*delivered)(void *context, size_t source, uint64_t tag, struct envelope *envelope);
	void (*returned)(void *context, const struct envelope *envelope);
	/*
	 * 0, or -1: the broker refuses whatever comes over this connection, and another is to be
	 * opened.
	 */
	int (*confirmed)(void *context, uint64_t tag, int multiple, int acked);
	void (*lost)(void *context); /* only after opened() */
};

/* The link consumes `sources`, which are copied; there may be none. */
struct link *link_new(const char *name, const char *url, const struct link_source *sources,
		      size_t sources_n, const struct link_events *events, void *context);
/* Says good-bye to the broker; lost() is not called. */
void link_free(struct link *link);

/*
 * Begins to connect when it is down and its time has come. Never waits: a thread does
 * (link_opening.h).
 */
void link_step(struct link *link, int64_t now_ms);
/* Reads what is there, a new connection too, and lets the library send its heartbeat. */
void link_read(struct link *link);

int link_up(const struct link *link);
int link_opens(const struct link *link);    /* is being opened */
int link_writable(const struct link *link); /* a small publish would not wait for the peer */
int link_blocked(const struct link *link);  /* the broker takes no publishes at present */
int link_fd(const struct link *link);       /* for poll(); -1 when down */
/*
 * When link_step() or link_read() wants to be called at the latest; `now_ms` when something is
 * already in memory.
 */
int64_t link_deadline_ms(const struct link *link, int64_t now_ms);

/* Each 0, or -1 and the link is lost. */
int link_publish(struct link *link, const char *exchange, amqp_bytes_t routing_key, int mandatory,
		 const amqp_basic_properties_t *properties, amqp_bytes_t body);
int link_ack(struct link *link, uint64_t tag, int multiple);
/* Ends every consumer: the broker sends no more deliveries. */
int link_cancel(struct link *link);

#endif

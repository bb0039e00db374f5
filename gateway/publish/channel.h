/*
 * The publisher's end of RabbitMQ: publishes batches until they are confirmed, over as many
 * connections as it takes, and receives the outcomes that workers send back (RabbitMQ's direct
 * reply-to). It belongs to the publisher's thread.
 *
 *	pending ──burst──▶ confirm window ──ack──▶ finished
 *	   ▲                     │
 *	   └──── again ◀─────────┘ nack, return, connection lost
 */
#ifndef GATEWAY_PUBLISH_CHANNEL_H
#define GATEWAY_PUBLISH_CHANNEL_H

#include "common/rabbit/connection.h"
#include "common/backoff.h"
#include "common/rabbit/confirm.h"
#include "gateway/publish/batch.h"
#include "gateway/publish/outcome_message.h"

/* Why it is not ready, empty when it is; and the connection's socket, -1: none. */
typedef void publish_trouble_fn(void *context, const char *text, int fd);

/* The publisher embeds it, and moves batches into `pending` and out of `finished` and `arrived`. */
struct publish_channel {
	struct batch_list pending;
	struct batch_list finished; /* confirmed */
	struct outcome_message_list arrived;

	/* Its own. */
	const char *url;
	publish_trouble_fn *trouble;
	void *context;
	amqp_connection_state_t link; /* NULL: none */
	struct confirm_window *window;
	struct batch_list again; /* failed, in order; goes before pending */
	struct backoff backoff;
	int64_t hold_until_ms; /* nothing is published before, nor connected */
	int64_t burst_ms;      /* when the last burst began */
	/* of the messages since then none was confirmed; 0: the last one was */
	int64_t refused_since_ms;
	int declare_again;
	int blocked;
};

/* `url` and `context` must outlive it. */
void publish_channel_init(struct publish_channel *channel, const char *url,
			  publish_trouble_fn *trouble, void *context);
void publish_channel_fini(struct publish_channel *channel); /* frees the batches it still has */

/*
 * Connects when it is time, takes what the broker sent, publishes what may go. May block inside the
 * library.
 */
void publish_channel_turn(struct publish_channel *channel);
void publish_channel_close(struct publish_channel *channel); /* says goodbye to the broker */

int publish_channel_fd(const struct publish_channel *channel); /* to poll for reading; -1: none */
int publish_channel_sleep_ms(const struct publish_channel *channel); /* how long a poll may last */

#endif

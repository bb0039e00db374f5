/*
 * The gateway's channel to RabbitMQ: publishes each batch until it is confirmed, over new
 * connections where needed, and receives the outcomes that workers send back (RabbitMQ's direct
 * reply-to). It belongs to the publisher's thread.
 *
 *	pending ──burst of packets──▶ confirm window ──ack──▶ finished
 *	   ▲                                │
 *	   └──────────── again ◀────────────┘ nack, return, connection lost
 *
 * A packet is one message. Batches that a client waits for go in other packets than the others,
 * because the worker sends outcomes for all batches of a message or for none.
 */
#ifndef GATEWAY_PUBLISH_CHANNEL_H
#define GATEWAY_PUBLISH_CHANNEL_H

#include "common/changes.h"
#include "common/rabbit/publisher.h"
#include "gateway/publish/outcome_message.h"
#include "gateway/publish/packet.h"

/* The publisher embeds it, and moves batches out of `finished` and messages out of `arrived`. */
struct publish_channel {
	struct batch_list finished; /* confirmed */
	struct outcome_message_list arrived;
	char installation[INSTALLATION_SIZE]; /* of what is published; empty: not known */

	/* Its own. */
	struct rabbit_publisher *publisher;
	struct rabbit_link *link;     /* of the publisher */
	struct batch_list pending[2]; /* by batch->awaited */
	struct batch_list again;      /* failed, in order; published before pending */
	int turn;                     /* the list of the last packet */
	char *buffer;                 /* of PACKED_BYTES_MAX */
	int64_t hold_until_ms;        /* no publish before this time */
	int64_t burst_ms;             /* when the last burst began */
	size_t burst_receives;        /* how many went in it */
	uint64_t cuts;                /* the state of the link in the metrics */
};

void publish_channel_init(struct publish_channel *channel, const char *url); /* `url` outlives it */
void publish_channel_fini(struct publish_channel *channel); /* frees the batches it still has */

/* Takes the batches; the list is empty afterwards. */
void publish_channel_submit(struct publish_channel *channel, struct batch_list *list);
/* Connects when that is due, reads what the broker sent, and publishes what is allowed. */
void publish_channel_turn(struct publish_channel *channel);
/* Ends the connection; it waits for the broker's answer unless messages are unconfirmed. */
void publish_channel_close(struct publish_channel *channel);

/* The reason why it is not ready; empty when it is. */
const char *publish_channel_trouble(const struct publish_channel *channel);
int publish_channel_fd(const struct publish_channel *channel); /* to poll for reading; -1: none */
int publish_channel_sleep_ms(const struct publish_channel *channel); /* how long a poll may last */

#endif

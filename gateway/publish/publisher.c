#include "gateway/publish/publisher.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "common/rabbit/connection.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/rabbit/topology.h"
#include "common/thread.h"
#include "gateway/metrics.h"
#include "gateway/publish/waiters.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_LEN (sizeof(PACKED_HEAD) - 1 + sizeof(PACKED_TAIL) - 1)
#define NEXT_LEN (sizeof(PACKED_NEXT) - 1)

void batch_list_free(struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(batch);
	}
}

/* The size of the body with one batch more. */
static size_t bytes_with(const struct packet *packet, const struct batch *batch)
{
	size_t before = packet->batches_n > 1 ? packet->bytes : packet->bytes + FRAME_LEN;

	return before + NEXT_LEN + batch->body_len;
}

struct packet *packet_take(struct batch_list *pending)
{
	struct packet *packet = checked(calloc(1, sizeof(*packet)));
	struct batch *batch = STAILQ_FIRST(pending);

	check(batch != NULL);
	STAILQ_INIT(&packet->batches);
	do {
		packet->bytes = packet->batches_n > 0 ? bytes_with(packet, batch) : batch->body_len;
		packet->receives += batch->receives;
		packet->wants_outcome |= batch->wants_outcome;
		packet->batches_n++;
		STAILQ_REMOVE_HEAD(pending, next);
		STAILQ_INSERT_TAIL(&packet->batches, batch, next);
	} while ((batch = STAILQ_FIRST(pending)) && packet->batches_n < PACKED_BATCHES_MAX &&
		 packet->receives + batch->receives <= MESSAGE_RECEIVES_MAX &&
		 bytes_with(packet, batch) <= PACKED_BYTES_MAX);
	return packet;
}

void packet_open(struct packet *packet, struct batch_list *batches)
{
	STAILQ_CONCAT(batches, &packet->batches);
	free(packet);
}

char *packet_body(struct packet *packet, char buffer[PACKED_BYTES_MAX])
{
	struct batch *batch = STAILQ_FIRST(&packet->batches);
	char *end = buffer;

	if (packet->batches_n == 1)
		return batch->body;
	end = mempcpy(end, PACKED_HEAD, sizeof(PACKED_HEAD) - 1);
	for (; batch; batch = STAILQ_NEXT(batch, next)) {
		end = mempcpy(end, batch->body, batch->body_len);
		if (STAILQ_NEXT(batch, next))
			end = mempcpy(end, PACKED_NEXT, NEXT_LEN);
	}
	end = mempcpy(end, PACKED_TAIL, sizeof(PACKED_TAIL) - 1);
	check((size_t)(end - buffer) == packet->bytes);
	return buffer;
}

int batch_rate_is_full(struct batch_rate *rate, int64_t now_ms)
{
	int64_t past_ms = now_ms - rate->since_ms;

	if (past_ms >= BATCH_RATE_MS) {
		rate->was_full = rate->receives >= BATCH_RATE_FULL && past_ms < 2 * BATCH_RATE_MS;
		rate->since_ms = now_ms;
		rate->receives = 0;
	}
	return rate->was_full;
}

/* The batches of one way. */
struct publish_lane {
	struct batch_list pending;
	int64_t hold_until_ms; /* no publish before this time */
	int64_t burst_ms;      /* when its last burst began */
	size_t burst_receives; /* how many went in it */
	struct batch_rate rate;
	int bursts; /* it is part of the present burst */
};

/*
 * What the thread does with the batches:
 *
 *	lanes ──burst of packets──▶ confirm window ──ack──▶ finished
 *	   ▲                                │
 *	   └──────────── again ◀────────────┘ nack, return, connection lost
 *
 * A packet is one message. Batches that a client waits for go in other packets than the others,
 * because the worker sends outcomes for all batches of a message or for none.
 */
struct publisher {
	struct thread thread;
	int wake_loop; /* a wake-up */

	pthread_mutex_t mutex; /* guards from here … */
	struct batch_list inbox;
	struct batch_list confirmed;
	struct reply_message_list replies;
	char trouble[RABBIT_ERROR_SIZE]; /* empty: connected */
	char installation_next[INSTALLATION_SIZE];
	/* … to here; the rest is the thread's own */

	struct rabbit_publisher *amqp;
	struct rabbit_link *link; /* that `amqp` uses */
	struct publish_lane lanes[BATCH_WAYS];
	struct batch_list again;    /* failed, in order; published before what is pending */
	struct batch_list finished; /* confirmed */
	struct reply_message_list arrived;
	char installation
		[INSTALLATION_SIZE]; /* what is published belongs to it; empty: not known */
	size_t turn;                 /* the lane of the last packet */
	char *buffer;                /* PACKED_BYTES_MAX large */
	uint64_t cuts;               /* the state of the link in the metrics */
};

#define WINDOW_MAX 2000      /* messages published and not confirmed */
#define REFUSED_PAUSE_MS 200 /* after a nack or a return, before the next publish */
#define BURST_MESSAGES 64    /* then the lists are exchanged */
#define BURST_MS 5           /* after this time the next burst no longer waits for confirms */
#define LINGER_MS 32         /* between bursts, at most */
#define REPLY_TO "amq.rabbitmq.reply-to"

static enum batch_way way_of(const struct packet *packet)
{
	return STAILQ_FIRST(&packet->batches)->way;
}

static const struct rabbit_queue_place *place_of(const struct packet *packet)
{
	return &rabbit_queue_places[way_of(packet) == BATCH_USES ? RABBIT_QUEUE_USES
								 : RABBIT_QUEUE_RECEIVES];
}

/* One message's end, from the confirm window. */
static void packet_settled(void *context, void *item, enum confirm_result result)
{
	struct publisher *publisher = context;
	struct packet *packet = item;
	const char *why = NULL;

	switch (result) {
	case CONFIRM_DONE:
		metrics_add(METRIC_CONFIRMED, 1);
		packet_open(packet, &publisher->finished);
		return;
	case CONFIRM_RETURNED:
		log_warn("message_returned", LOG_S("queue", place_of(packet)->name));
		why = "no queue received the message";
		break;
	case CONFIRM_NACKED:
		why = "nack";
		break;
	case CONFIRM_LOST:
		break;
	}
	if (why) {
		log_warn("message_refused", LOG_S("queue", place_of(packet)->name),
			 LOG_S("why", why));
		publisher->lanes[way_of(packet)].hold_until_ms = clock_monotonic_ms() +
								 REFUSED_PAUSE_MS;
	}
	metrics_add(METRIC_PUBLISH_FAILED, 1);
	packet_open(packet, &publisher->again);
}

static int packet_same(const void *item, const void *wanted)
{
	char text[ULID_SIZE];
	const amqp_bytes_t *correlation = wanted;

	ulid_format(&STAILQ_FIRST(&((const struct packet *)item)->batches)->ulid, text);
	return correlation->len == ULID_LEN && memcmp(correlation->bytes, text, ULID_LEN) == 0;
}

/* As the publisher of RabbitMQ knows them: a queue. */
static size_t packet_way(const void *item)
{
	return way_of(item) == BATCH_USES;
}

static void opened(void *context)
{
	struct publisher *publisher = context;

	for (size_t i = 0; i < BATCH_WAYS; i++)
		publisher->lanes[i].hold_until_ms = 0;
	metrics_set(METRIC_AMQP_UP, 1);
	log_info("amqp_ready", LOG_S("queue", AMQP_QUEUE));
}

static void lost(void *context)
{
	(void)context;
	metrics_set(METRIC_AMQP_UP, 0);
	metrics_set(METRIC_AMQP_BLOCKED, 0);
}

/* A reply of a worker. */
static void delivered(void *context, size_t source, uint64_t tag, struct envelope *envelope)
{
	struct publisher *publisher = context;
	struct reply_message *reply = checked(malloc(sizeof(*reply) + envelope->body_len));

	(void)source;
	(void)tag;
	reply->len = envelope->body_len;
	memcpy(reply->body, envelope->body, envelope->body_len);
	STAILQ_INSERT_TAIL(&publisher->arrived, reply, next);
	envelope_free(envelope);
}

/*
 * When the next packet of the lane may go; INT64_MAX: there is none.
 *
 * Messages go out in bursts, each lane by itself: the next one begins when the last is confirmed,
 * so that a busy broker writes, syncs and confirms many at once (measured: a quarter less CPU a
 * message), and an idle one gets a message without delay. What waits for the next burst is packed
 * into few messages, and each is a transaction of a worker. So where no client waits, a burst of n
 * receives is followed by the next one after n ms, at most LINGER_MS: one that goes alone delays
 * nothing, and the bursts grow only while more than one receive arrives in a millisecond. Where a
 * client waits, that is so only beside a full lane, and after 4 n ms: then all is busy, and what
 * small messages cost is missing elsewhere.
 */
static int64_t lane_due_ms(const struct publisher *publisher, enum batch_way way)
{
	const struct publish_lane *lane = &publisher->lanes[way];
	int64_t linger_ms = (int64_t)lane->burst_receives, wait_ms, due_ms;
	int other_is_full = 0;

	if (STAILQ_EMPTY(&lane->pending))
		return INT64_MAX;
	for (enum batch_way other = 0; other < BATCH_WAYS; other++)
		other_is_full |= other != way && publisher->lanes[other].rate.was_full;
	if (way != BATCH_RECEIVES)
		linger_ms *= other_is_full ? 4 : 0;
	if (linger_ms > LINGER_MS)
		linger_ms = LINGER_MS;

	wait_ms = rabbit_publisher_open(publisher->amqp) > 0 ? BURST_MS : 0;
	if (wait_ms < linger_ms)
		wait_ms = linger_ms;
	due_ms = lane->burst_ms + wait_ms;
	return due_ms > lane->hold_until_ms ? due_ms : lane->hold_until_ms;
}

/* The lanes of a burst take turns. NULL: nothing is left of them. */
static struct publish_lane *lane_next(struct publisher *publisher, int64_t now_ms)
{
	for (size_t i = 0; i < BATCH_WAYS; i++) {
		struct publish_lane *lane;

		publisher->turn = (publisher->turn + 1) % BATCH_WAYS;
		lane = &publisher->lanes[publisher->turn];
		if (lane->bursts && lane->hold_until_ms <= now_ms && !STAILQ_EMPTY(&lane->pending))
			return lane;
	}
	return NULL;
}

/* Publishes as much as is allowed, and reads what has arrived before each message. */
static void pending_publish(struct publisher *publisher)
{
	int64_t now_ms = clock_monotonic_ms();
	struct publish_lane *lane;

	for (enum batch_way way = 0; way < BATCH_WAYS; way++)
		batch_rate_is_full(&publisher->lanes[way].rate, now_ms); /* for lane_due_ms() */
	for (enum batch_way way = 0; way < BATCH_WAYS; way++) {
		lane = &publisher->lanes[way];
		lane->bursts = lane_due_ms(publisher, way) <= now_ms;
		if (lane->bursts) {
			lane->burst_ms = now_ms;
			lane->burst_receives = 0;
		}
	}

	for (int n = 0;
	     n < BURST_MESSAGES && rabbit_publisher_open(publisher->amqp) < WINDOW_MAX &&
	     rabbit_publisher_ready(publisher->amqp) && (lane = lane_next(publisher, now_ms));
	     n++) {
		struct packet *packet = packet_take(&lane->pending);
		const struct batch *first = STAILQ_FIRST(&packet->batches);
		const struct rabbit_queue_place *place = place_of(packet);
		amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG |
								 AMQP_BASIC_CORRELATION_ID_FLAG };
		amqp_bytes_t body = { .len = packet->bytes,
				      .bytes = packet_body(packet, publisher->buffer) };
		char ulid[ULID_SIZE];

		properties.content_type = amqp_cstring_bytes("application/json");
		properties.correlation_id = amqp_cstring_bytes(ulid_format(&first->ulid, ulid));
		if (*publisher->installation) {
			properties._flags |= AMQP_BASIC_APP_ID_FLAG;
			properties.app_id = amqp_cstring_bytes(publisher->installation);
		}
		if (packet->wants_outcome) {
			properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
			properties.reply_to = amqp_cstring_bytes(REPLY_TO);
		}
		if (first->way == BATCH_USES) {
			properties._flags |= AMQP_BASIC_TYPE_FLAG;
			properties.type = amqp_cstring_bytes(AMQP_USE_TYPE);
		}

		lane->burst_receives += packet->receives;
		lane->rate.receives += packet->receives;
		metrics_add(METRIC_PUBLISHED, 1);
		rabbit_publisher_send(publisher->amqp, place->exchange, place->routing_key,
				      &properties, body, packet);
		fault_point(FAULT_GATEWAY_AFTER_PUBLISH);
		rabbit_link_read(publisher->link);
	}
}

/* Takes the batches; the list is empty afterwards. */
static void pending_add(struct publisher *publisher, struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		STAILQ_INSERT_TAIL(&publisher->lanes[batch->way].pending, batch, next);
	}
}

/* Exchanges the lists with the event loop. Returns whether something was exchanged. */
static int lists_exchange(struct publisher *publisher)
{
	struct batch_list submitted = STAILQ_HEAD_INITIALIZER(submitted);
	const char *trouble = rabbit_link_trouble(publisher->link);
	int has_arrived = !STAILQ_EMPTY(&publisher->finished) || !STAILQ_EMPTY(&publisher->arrived),
	    is_submitted;

	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(&submitted, &publisher->inbox);
	STAILQ_CONCAT(&publisher->confirmed, &publisher->finished);
	STAILQ_CONCAT(&publisher->replies, &publisher->arrived);
	if (strcmp(publisher->trouble, trouble) != 0)
		snprintf(publisher->trouble, sizeof(publisher->trouble), "%s", trouble);
	memcpy(publisher->installation, publisher->installation_next, INSTALLATION_SIZE);
	pthread_mutex_unlock(&publisher->mutex);
	is_submitted = !STAILQ_EMPTY(&submitted);
	pending_add(publisher, &submitted);
	if (has_arrived)
		wake_send(publisher->wake_loop);
	return has_arrived || is_submitted;
}

static void *thread_main(void *data)
{
	struct publisher *publisher = data;
	struct pollfd link = { .events = POLLIN };
	int64_t now_ms, due_ms, until_ms;
	uint64_t cuts;

	do {
		/* Connects when that is due, and reads what the broker sent. */
		rabbit_link_step(publisher->link, clock_monotonic_ms());
		rabbit_link_read(publisher->link);

		/* Batches to be published again go first the next time. */
		pending_publish(publisher);
		if (!STAILQ_EMPTY(&publisher->again)) {
			for (size_t i = 0; i < BATCH_WAYS; i++)
				STAILQ_CONCAT(&publisher->again, &publisher->lanes[i].pending);
			pending_add(publisher, &publisher->again);
		}

		cuts = rabbit_link_cuts(publisher->link);
		metrics_add(METRIC_PUBLISHER_CUTS, (int64_t)(cuts - publisher->cuts));
		metrics_set(METRIC_AMQP_BLOCKED, rabbit_link_blocked(publisher->link));
		publisher->cuts = cuts;

		if (lists_exchange(publisher) || publisher->thread.stops)
			continue;

		/* Sleeps until the connection has something to do, or the next packet may go. */
		now_ms = clock_monotonic_ms();
		due_ms = INT64_MAX;
		for (enum batch_way way = 0; way < BATCH_WAYS; way++) {
			int64_t lane_ms = lane_due_ms(publisher, way);

			due_ms = lane_ms < due_ms ? lane_ms : due_ms;
		}
		if (due_ms <= now_ms) /* the broker takes no more now */
			due_ms = now_ms + BURST_MS;
		until_ms = rabbit_link_deadline_ms(publisher->link, now_ms);
		if (rabbit_link_up(publisher->link) && !rabbit_link_blocked(publisher->link) &&
		    due_ms < until_ms)
			until_ms = due_ms;
		link.fd = rabbit_link_fd(publisher->link);
		thread_pause(&publisher->thread, until_ms, &link, 1);
		lists_exchange(publisher);
	} while (!publisher->thread.stops);
	rabbit_publisher_close(publisher->amqp);
	return NULL;
}

static void reply_message_list_free(struct reply_message_list *list)
{
	struct reply_message *message;

	while ((message = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(message);
	}
}

struct publisher *publisher_new(const char *amqp_url, int *wake_fd)
{
	static const struct rabbit_source replies = { .queue = REPLY_TO };
	static const struct rabbit_publisher_port port = { .done = packet_settled,
							   .same = packet_same,
							   .way = packet_way,
							   .opened = opened,
							   .lost = lost,
							   .source = &replies,
							   .delivered = delivered };
	struct publisher *publisher = checked(calloc(1, sizeof(*publisher)));

	publisher->wake_loop = wake_new();
	STAILQ_INIT(&publisher->inbox);
	STAILQ_INIT(&publisher->confirmed);
	STAILQ_INIT(&publisher->replies);
	for (size_t i = 0; i < BATCH_WAYS; i++)
		STAILQ_INIT(&publisher->lanes[i].pending);
	STAILQ_INIT(&publisher->again);
	STAILQ_INIT(&publisher->finished);
	STAILQ_INIT(&publisher->arrived);
	publisher->buffer = checked(malloc(PACKED_BYTES_MAX));
	publisher->amqp = rabbit_publisher_new("publisher", amqp_url, &port, publisher);
	publisher->link = rabbit_publisher_link(publisher->amqp);
	snprintf(publisher->trouble, sizeof(publisher->trouble), "%s",
		 rabbit_link_trouble(publisher->link));
	check(pthread_mutex_init(&publisher->mutex, NULL) == 0);
	thread_start(&publisher->thread, thread_main, publisher);
	*wake_fd = publisher->wake_loop;
	return publisher;
}

void publisher_free(struct publisher *publisher, int abandon)
{
	publisher->thread.stops = 1;
	if (abandon)
		watch_cut_all(); /* the thread may be blocked in the library */
	thread_stop(&publisher->thread);
	rabbit_publisher_free(publisher->amqp); /* what is unconfirmed moves to `again` */
	batch_list_free(&publisher->inbox);
	for (size_t i = 0; i < BATCH_WAYS; i++)
		batch_list_free(&publisher->lanes[i].pending);
	batch_list_free(&publisher->again);
	batch_list_free(&publisher->finished);
	batch_list_free(&publisher->confirmed);
	reply_message_list_free(&publisher->arrived);
	reply_message_list_free(&publisher->replies);
	free(publisher->buffer);
	close(publisher->wake_loop);
	pthread_mutex_destroy(&publisher->mutex);
	free(publisher);
}

void publisher_installation(struct publisher *publisher, const char *installation)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(publisher->installation_next, INSTALLATION_SIZE, "%s", installation);
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_submit(struct publisher *publisher, struct batch *batch)
{
	int was_empty;

	if (batch->way != BATCH_USES)
		metrics_add(METRIC_ACCEPTED, (int64_t)batch->receives);
	pthread_mutex_lock(&publisher->mutex);
	was_empty = STAILQ_EMPTY(&publisher->inbox);
	STAILQ_INSERT_TAIL(&publisher->inbox, batch, next);
	pthread_mutex_unlock(&publisher->mutex);
	if (was_empty)
		thread_wake(&publisher->thread);
}

void publisher_collect(struct publisher *publisher, struct batch_list *confirmed,
		       struct reply_message_list *replies)
{
	wake_take(publisher->wake_loop);
	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(confirmed, &publisher->confirmed);
	STAILQ_CONCAT(replies, &publisher->replies);
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_trouble(struct publisher *publisher, char *text, size_t size)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(text, size, "%s", publisher->trouble);
	pthread_mutex_unlock(&publisher->mutex);
}

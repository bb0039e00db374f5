/*
 * A message as it came off the wire: the body, and of its properties what couponmq uses or passes
 * on.
 */
#ifndef COMMON_RABBIT_ENVELOPE_H
#define COMMON_RABBIT_ENVELOPE_H

#include <amqp.h>
#include <amqp_framing.h>
#include <stdint.h>

/* A longer body is kept this far: what the script builds is at most a twentieth of it. */
#define ENVELOPE_BODY_MAX 1048576

/*
 * Header of a publish that is tracked: its delivery tag, so that a return can be told from others.
 */
#define ENVELOPE_TAG_HEADER "x-couponmq-tag"

struct envelope {
	int64_t delivery_count; /* how often a quorum queue delivered it before */
	int64_t publish_tag;    /* of a return: the tag it was published with; 0: none */
	amqp_bytes_t reply_to;
	amqp_bytes_t correlation_id;
	amqp_bytes_t content_type;
	amqp_bytes_t content_encoding;
	amqp_bytes_t message_id;
	amqp_bytes_t type;
	uint64_t body_size; /* what was sent */
	size_t body_len;    /* what is here: less when it was longer than ENVELOPE_BODY_MAX */
	size_t body_room;
	char *body;
};

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size);
void envelope_free(void *envelope); /* NULL is allowed */

/* One more piece of the body; `*left` is how much of it is still to come. */
void envelope_append(struct envelope *envelope, amqp_bytes_t piece, uint64_t *left);

#endif

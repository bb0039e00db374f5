/*
 * A message as received: the body, and those of its properties that couponmq uses or passes on.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <stdint.h>

/* A longer body is truncated to this size; the script builds at most a twentieth of it. */
#define ENVELOPE_BODY_MAX 1048576

/*
 * Header of a tracked publish: its delivery tag, so that a returned message is identified.
 */
#define ENVELOPE_TAG_HEADER "x-couponmq-tag"

struct envelope {
	int64_t delivery_count; /* how many times a quorum queue delivered it before */
	int64_t publish_tag;    /* of a returned message: the tag of its publish; 0: none */
	/* The properties that are kept; one without its flag is empty. */
	amqp_basic_properties_t properties;
	uint64_t body_size; /* the length that was sent */
	size_t body_len;    /* the length that is kept, at most ENVELOPE_BODY_MAX */
	size_t body_room;
	char *body;
};

/* The value of a header that is an integer of any width. 0, or -1: it is none. */
int envelope_integer(const amqp_field_value_t *value, int64_t *number);
/* The delivery count of a message; 0 when it has none. */
int64_t envelope_delivery_count(const amqp_basic_properties_t *properties);

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size);
/* Another one with the same properties but these two, which are copied. */
struct envelope *envelope_new_part(const struct envelope *whole, amqp_bytes_t correlation_id,
				   const char *body, size_t len);
void envelope_free(void *envelope); /* NULL is allowed */

/* Adds a piece of the body; `*left` is how much of it is still missing. */
void envelope_append(struct envelope *envelope, amqp_bytes_t piece, uint64_t *left);

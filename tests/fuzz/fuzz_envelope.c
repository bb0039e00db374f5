/*
 * A delivery as the worker keeps it: any properties, a body that arrives in pieces, longer or
 * shorter than its header declares. The envelope holds exactly the beginning of it and copies of
 * the properties.
 */
#include "tests/fuzz/properties.h"

#include "common/rabbit/link.h"

#include <stdlib.h>

static void property_check(amqp_bytes_t copy, int present, amqp_bytes_t value)
{
	check(copy.len == (present ? value.len : 0));
	check(copy.len == 0 || memcmp(copy.bytes, value.bytes, copy.len) == 0);
}

static void envelope_check(const struct envelope *envelope,
			   const amqp_basic_properties_t *properties)
{
	property_check(envelope->properties.reply_to,
		       (properties->_flags & AMQP_BASIC_REPLY_TO_FLAG) != 0, properties->reply_to);
	property_check(envelope->properties.correlation_id,
		       (properties->_flags & AMQP_BASIC_CORRELATION_ID_FLAG) != 0,
		       properties->correlation_id);
	property_check(envelope->properties.content_type,
		       (properties->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG) != 0,
		       properties->content_type);
	property_check(envelope->properties.message_id,
		       (properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0,
		       properties->message_id);
	property_check(envelope->properties.type, (properties->_flags & AMQP_BASIC_TYPE_FLAG) != 0,
		       properties->type);
	property_check(envelope->properties.app_id,
		       (properties->_flags & AMQP_BASIC_APP_ID_FLAG) != 0, properties->app_id);
}

/* One byte of seed, two bytes for the body's size in the header, the properties, the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	uint32_t seed = bytes_u8(&bytes);
	uint64_t body_size = (uint64_t)bytes_u8(&bytes) << 8 | bytes_u8(&bytes), left = body_size;
	amqp_basic_properties_t properties;
	struct envelope *envelope;
	amqp_pool_t pool;
	const uint8_t *body;

	init_amqp_pool(&pool, 4096);
	if (properties_take(&bytes, &pool, &properties)) {
		empty_amqp_pool(&pool);
		return 0;
	}
	body = bytes.at;
	envelope = envelope_new(&properties, body_size);
	while (bytes.left > 0) {
		amqp_bytes_t piece;

		piece.bytes = (void *)(uintptr_t)bytes_take(&bytes, cut_next(&seed, bytes.left),
							    &piece.len);
		envelope_append(envelope, piece, &left);
		check(left <= body_size && envelope->body_len <= body_size);
		check(left + envelope->body_len ==
		      body_size); /* unless it is too long to be kept */
	}
	check(envelope->body_len == 0 || memcmp(envelope->body, body, envelope->body_len) == 0);
	envelope_check(envelope, &properties);
	envelope_free(envelope);
	empty_amqp_pool(&pool);
	return 0;
}

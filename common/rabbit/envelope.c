#include "common/rabbit/envelope.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

static amqp_bytes_t property_copy(const amqp_basic_properties_t *properties, amqp_flags_t flag,
				  amqp_bytes_t value)
{
	amqp_bytes_t copy;

	if (!(properties->_flags & flag) || value.len == 0)
		return amqp_empty_bytes;
	copy = amqp_bytes_malloc_dup(value);
	check(copy.bytes != NULL);
	return copy;
}

/* A header that is an integer of any width; else 0. */
static int64_t header_integer(const amqp_basic_properties_t *properties, const char *name)
{
	if (!(properties->_flags & AMQP_BASIC_HEADERS_FLAG))
		return 0;
	for (int i = 0; i < properties->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];

		if (entry->key.len != strlen(name) ||
		    memcmp(entry->key.bytes, name, entry->key.len) != 0)
			continue;
		switch (entry->value.kind) {
		case AMQP_FIELD_KIND_I8:
			return entry->value.value.i8;
		case AMQP_FIELD_KIND_U8:
			return entry->value.value.u8;
		case AMQP_FIELD_KIND_I16:
			return entry->value.value.i16;
		case AMQP_FIELD_KIND_U16:
			return entry->value.value.u16;
		case AMQP_FIELD_KIND_I32:
			return entry->value.value.i32;
		case AMQP_FIELD_KIND_U32:
			return entry->value.value.u32;
		case AMQP_FIELD_KIND_I64:
			return entry->value.value.i64;
		default: /* the kinds are not an enum */
			return 0;
		}
	}
	return 0;
}

int64_t envelope_delivery_count(const amqp_basic_properties_t *properties)
{
	return header_integer(properties, "x-delivery-count");
}

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size)
{
	struct envelope *envelope = calloc(1, sizeof(*envelope));

	check(envelope != NULL);
	envelope->delivery_count = envelope_delivery_count(properties);
	envelope->publish_tag = header_integer(properties, ENVELOPE_TAG_HEADER);
	envelope->reply_to = property_copy(properties, AMQP_BASIC_REPLY_TO_FLAG,
					   properties->reply_to);
	envelope->correlation_id = property_copy(properties, AMQP_BASIC_CORRELATION_ID_FLAG,
						 properties->correlation_id);
	envelope->content_type = property_copy(properties, AMQP_BASIC_CONTENT_TYPE_FLAG,
					       properties->content_type);
	envelope->content_encoding = property_copy(properties, AMQP_BASIC_CONTENT_ENCODING_FLAG,
						   properties->content_encoding);
	envelope->message_id = property_copy(properties, AMQP_BASIC_MESSAGE_ID_FLAG,
					     properties->message_id);
	envelope->type = property_copy(properties, AMQP_BASIC_TYPE_FLAG, properties->type);
	envelope->app_id = property_copy(properties, AMQP_BASIC_APP_ID_FLAG, properties->app_id);
	envelope->body_size = body_size;
	envelope->body_room = body_size < ENVELOPE_BODY_MAX ? (size_t)body_size : ENVELOPE_BODY_MAX;
	envelope->body = malloc(envelope->body_room + 1);
	check(envelope->body != NULL);
	return envelope;
}

static amqp_bytes_t bytes_copy(amqp_bytes_t bytes)
{
	amqp_bytes_t copy = bytes.len ? amqp_bytes_malloc_dup(bytes) : amqp_empty_bytes;

	check(copy.len == bytes.len);
	return copy;
}

struct envelope *envelope_new_part(const struct envelope *whole, amqp_bytes_t correlation_id,
				   const char *body, size_t len)
{
	struct envelope *envelope = malloc(sizeof(*envelope));

	check(envelope != NULL);
	*envelope = (struct envelope){ .delivery_count = whole->delivery_count,
				       .reply_to = bytes_copy(whole->reply_to),
				       .correlation_id = bytes_copy(correlation_id),
				       .content_type = bytes_copy(whole->content_type),
				       .content_encoding = bytes_copy(whole->content_encoding),
				       .message_id = bytes_copy(whole->message_id),
				       .type = bytes_copy(whole->type),
				       .app_id = bytes_copy(whole->app_id),
				       .body_size = len,
				       .body_len = len,
				       .body_room = len,
				       .body = malloc(len + 1) };
	check(envelope->body != NULL);
	memcpy(envelope->body, body, len);
	return envelope;
}

void envelope_free(void *memory)
{
	struct envelope *envelope = memory;

	if (!envelope)
		return;
	amqp_bytes_free(envelope->reply_to);
	amqp_bytes_free(envelope->correlation_id);
	amqp_bytes_free(envelope->content_type);
	amqp_bytes_free(envelope->content_encoding);
	amqp_bytes_free(envelope->message_id);
	amqp_bytes_free(envelope->type);
	amqp_bytes_free(envelope->app_id);
	free(envelope->body);
	free(envelope);
}

void envelope_append(struct envelope *envelope, amqp_bytes_t piece, uint64_t *left)
{
	size_t len = piece.len;

	*left -= piece.len < *left ? piece.len : *left;
	if (len > envelope->body_room - envelope->body_len)
		len = envelope->body_room - envelope->body_len;
	memcpy(envelope->body + envelope->body_len, piece.bytes, len);
	envelope->body_len += len;
}

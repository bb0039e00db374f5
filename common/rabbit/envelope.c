#include "common/rabbit/envelope.h"

#include "common/check.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The properties that are kept, if they are not empty. app_id is the installation's. */
static const struct {
	amqp_flags_t flag;
	size_t offset;
} kept[] = {
	{ AMQP_BASIC_CONTENT_TYPE_FLAG, offsetof(amqp_basic_properties_t, content_type) },
	{ AMQP_BASIC_CONTENT_ENCODING_FLAG, offsetof(amqp_basic_properties_t, content_encoding) },
	{ AMQP_BASIC_CORRELATION_ID_FLAG, offsetof(amqp_basic_properties_t, correlation_id) },
	{ AMQP_BASIC_REPLY_TO_FLAG, offsetof(amqp_basic_properties_t, reply_to) },
	{ AMQP_BASIC_MESSAGE_ID_FLAG, offsetof(amqp_basic_properties_t, message_id) },
	{ AMQP_BASIC_TYPE_FLAG, offsetof(amqp_basic_properties_t, type) },
	{ AMQP_BASIC_APP_ID_FLAG, offsetof(amqp_basic_properties_t, app_id) },
};

#define KEPT_N (sizeof(kept) / sizeof(kept[0]))

static amqp_basic_properties_t properties_copy(const amqp_basic_properties_t *properties)
{
	amqp_basic_properties_t copy = { 0 };
	amqp_bytes_t bytes;

	for (size_t i = 0; i < KEPT_N; i++) {
		if (!(properties->_flags & kept[i].flag))
			continue;
		memcpy(&bytes, (const char *)properties + kept[i].offset, sizeof(bytes));
		if (bytes.len == 0)
			continue;
		bytes = amqp_bytes_malloc_dup(bytes);
		check(bytes.bytes != NULL);
		memcpy((char *)&copy + kept[i].offset, &bytes, sizeof(bytes));
		copy._flags |= kept[i].flag;
	}
	return copy;
}

int envelope_integer(const amqp_field_value_t *value, int64_t *number)
{
	switch (value->kind) {
	case AMQP_FIELD_KIND_I8:
		*number = value->value.i8;
		break;
	case AMQP_FIELD_KIND_U8:
		*number = value->value.u8;
		break;
	case AMQP_FIELD_KIND_I16:
		*number = value->value.i16;
		break;
	case AMQP_FIELD_KIND_U16:
		*number = value->value.u16;
		break;
	case AMQP_FIELD_KIND_I32:
		*number = value->value.i32;
		break;
	case AMQP_FIELD_KIND_U32:
		*number = value->value.u32;
		break;
	case AMQP_FIELD_KIND_I64:
		*number = value->value.i64;
		break;
	default: /* the kinds are not an enum */
		return -1;
	}
	return 0;
}

/* A header that is an integer of any width; else 0. */
static int64_t header_integer(const amqp_basic_properties_t *properties, const char *name)
{
	const amqp_field_value_t *value = properties->_flags & AMQP_BASIC_HEADERS_FLAG
						  ? rabbit_table_find(&properties->headers, name)
						  : NULL;
	int64_t number;

	return value && envelope_integer(value, &number) == 0 ? number : 0;
}

int64_t envelope_delivery_count(const amqp_basic_properties_t *properties)
{
	return header_integer(properties, "x-delivery-count");
}

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size)
{
	struct envelope *envelope = checked(calloc(1, sizeof(*envelope)));

	envelope->delivery_count = envelope_delivery_count(properties);
	envelope->publish_tag = header_integer(properties, ENVELOPE_TAG_HEADER);
	envelope->properties = properties_copy(properties);
	envelope->body_size = body_size;
	envelope->body_room = body_size < ENVELOPE_BODY_MAX ? (size_t)body_size : ENVELOPE_BODY_MAX;
	envelope->body = checked(malloc(envelope->body_room + 1));
	return envelope;
}

struct envelope *envelope_new_part(const struct envelope *whole, amqp_bytes_t correlation_id,
				   const char *body, size_t len)
{
	amqp_basic_properties_t properties = whole->properties;
	struct envelope *part;

	properties.correlation_id = correlation_id;
	properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
	part = envelope_new(&properties, len);
	part->delivery_count = whole->delivery_count;
	part->body_len = len;
	memcpy(part->body, body, len);
	return part;
}

void envelope_free(void *memory)
{
	struct envelope *envelope = memory;
	amqp_bytes_t bytes;

	if (!envelope)
		return;
	for (size_t i = 0; i < KEPT_N; i++) {
		memcpy(&bytes, (const char *)&envelope->properties + kept[i].offset, sizeof(bytes));
		amqp_bytes_free(bytes);
	}
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

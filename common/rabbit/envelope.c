#include "common/rabbit/envelope.h"

#include "common/check.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static amqp_bytes_t bytes_copy(amqp_bytes_t bytes)
{
	amqp_bytes_t copy = bytes.len ? amqp_bytes_malloc_dup(bytes) : amqp_empty_bytes;

	check(copy.bytes || bytes.len == 0);
	return copy;
}

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
		bytes = bytes_copy(bytes);
		memcpy((char *)&copy + kept[i].offset, &bytes, sizeof(bytes));
		copy._flags |= bytes.len ? kept[i].flag : 0;
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
	struct envelope *envelope = checked(malloc(sizeof(*envelope)));
	amqp_basic_properties_t properties = whole->properties;

	properties.correlation_id = correlation_id;
	properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
	*envelope = (struct envelope){ .delivery_count = whole->delivery_count,
				       .properties = properties_copy(&properties),
				       .body_size = len,
				       .body_len = len,
				       .body_room = len,
				       .body = checked(malloc(len + 1)) };
	memcpy(envelope->body, body, len);
	return envelope;
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

static struct arrival end(const char *why)
{
	return (struct arrival){ .kind = ARRIVAL_END, .why = why };
}

static struct arrival confirm(enum arrival_kind kind, uint64_t tag, int multiple)
{
	return (struct arrival){ .kind = kind, .tag = tag, .multiple = multiple };
}

static void name_set(struct arrival *arrival, amqp_bytes_t name)
{
	size_t len = name.len;

	if (len >= sizeof(arrival->name))
		len = sizeof(arrival->name) - 1;
	memcpy(arrival->name, name.bytes, len);
}

static void delivery_begin(struct arrival *message, const amqp_basic_deliver_t *deliver)
{
	*message = (struct arrival){ .kind = ARRIVAL_DELIVERY, .tag = deliver->delivery_tag };
	name_set(message, deliver->consumer_tag);
}

static struct arrival queue_read(const amqp_queue_declare_ok_t *queue)
{
	struct arrival arrival = { .kind = ARRIVAL_QUEUE, .ready = queue->message_count };

	name_set(&arrival, queue->queue);
	return arrival;
}

static struct arrival method_add(struct arriving *arriving, const amqp_method_t *method)
{
	const amqp_basic_ack_t *ack;
	const amqp_basic_nack_t *nack;

	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		delivery_begin(&arriving->message, method->decoded);
		return (struct arrival){ 0 };
	case AMQP_BASIC_RETURN_METHOD:
		arriving->message = (struct arrival){ .kind = ARRIVAL_RETURN };
		return (struct arrival){ 0 };
	case AMQP_BASIC_ACK_METHOD:
		ack = method->decoded;
		return confirm(ARRIVAL_ACK, ack->delivery_tag, ack->multiple);
	case AMQP_BASIC_NACK_METHOD:
		nack = method->decoded;
		return confirm(ARRIVAL_NACK, nack->delivery_tag, nack->multiple);
	case AMQP_QUEUE_DECLARE_OK_METHOD:
		return queue_read(method->decoded);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		return (struct arrival){ .kind = ARRIVAL_BLOCKED };
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		return (struct arrival){ .kind = ARRIVAL_UNBLOCKED };
	case AMQP_BASIC_CANCEL_OK_METHOD:
		return (struct arrival){ 0 };
	case AMQP_BASIC_CANCEL_METHOD:
		return end("the broker ended the consumer");
	case AMQP_CHANNEL_CLOSE_METHOD:
		return end("the broker closed the channel");
	case AMQP_CONNECTION_CLOSE_METHOD:
		return end("the broker closed the connection");
	default:
		return end("the broker sent an unexpected method");
	}
}

static struct arrival message_complete(struct arriving *arriving)
{
	struct arrival message = arriving->message;

	message.envelope = arriving->envelope;
	*arriving = (struct arriving){ 0 };
	return message;
}

struct arrival arriving_add(struct arriving *arriving, const amqp_frame_t *frame)
{
	static const char out_of_order[] = "the broker sent frames out of order";
	int is_message = arriving->message.kind != ARRIVAL_NONE;

	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		return is_message ? end(out_of_order)
				  : method_add(arriving, &frame->payload.method);
	case AMQP_FRAME_HEADER:
		if (!is_message || arriving->envelope)
			return end(out_of_order);
		arriving->body_left = frame->payload.properties.body_size;
		arriving->envelope = envelope_new(frame->payload.properties.decoded,
						  arriving->body_left);
		break;
	case AMQP_FRAME_BODY:
		if (!arriving->envelope)
			return end(out_of_order);
		envelope_append(arriving->envelope, frame->payload.body_fragment,
				&arriving->body_left);
		break;
	default: /* the library handles heartbeats internally */
		return (struct arrival){ 0 };
	}
	return arriving->body_left == 0 ? message_complete(arriving) : (struct arrival){ 0 };
}

void arriving_reset(struct arriving *arriving)
{
	envelope_free(arriving->envelope);
	*arriving = (struct arriving){ 0 };
}

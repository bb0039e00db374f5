#include "common/rabbit/arrival.h"

#include <string.h>

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

#include "worker/consume/dead_letters.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

#include <stdlib.h>

/* A dead letter on its way. */
struct letter {
	uint64_t epoch;
	uint64_t tag;
};

static const char *result_text(enum confirm_result result)
{
	switch (result) {
	case CONFIRM_DONE:
		return "done";
	case CONFIRM_NACKED:
		return "nacked";
	case CONFIRM_RETURNED:
		return "returned";
	case CONFIRM_LOST:
		return "lost";
	}
	return "";
}

void dead_letters_done(void *context, void *item, enum confirm_result result)
{
	struct dead_letters *letters = context;
	struct letter *letter = item;

	if (result == CONFIRM_DONE) {
		letters->confirmed++;
		backoff_reset(&letters->backoff);
		settlement_dead_done(letters->settlement, letter->epoch, letter->tag);
	} else {
		/*
		 * Of several that fail together, one step: the wait must not grow with their
		 * number.
		 */
		if (clock_monotonic_ms() >= letters->due_ms)
			letters->due_ms = clock_monotonic_ms() + backoff_ms(&letters->backoff);
		log_warn("dead_letter_failed", LOG_S("why", result_text(result)));
		settlement_dead_failed(letters->settlement, letter->epoch, letter->tag);
	}
	free(letter);
}

static amqp_flags_t flag_if(amqp_bytes_t value, amqp_flags_t flag)
{
	return value.len ? flag : 0;
}

static void letter_send(struct dead_letters *letters, const struct delivery *delivery)
{
	const struct envelope *envelope = delivery_envelope(delivery);
	struct letter *letter = malloc(sizeof(*letter));
	amqp_table_entry_t header = { .key = amqp_cstring_bytes(AMQP_DEAD_REASON),
				      .value = { .kind = AMQP_FIELD_KIND_UTF8,
						 .value.bytes = amqp_cstring_bytes(
							 delivery_reason(delivery)) } };
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_HEADERS_FLAG |
			  flag_if(envelope->content_type, AMQP_BASIC_CONTENT_TYPE_FLAG) |
			  flag_if(envelope->content_encoding, AMQP_BASIC_CONTENT_ENCODING_FLAG) |
			  flag_if(envelope->correlation_id, AMQP_BASIC_CORRELATION_ID_FLAG) |
			  flag_if(envelope->message_id, AMQP_BASIC_MESSAGE_ID_FLAG) |
			  flag_if(envelope->type, AMQP_BASIC_TYPE_FLAG),
		.headers = { .num_entries = 1, .entries = &header },
		.content_type = envelope->content_type,
		.content_encoding = envelope->content_encoding,
		.correlation_id = envelope->correlation_id,
		.message_id = envelope->message_id,
		.type = envelope->type,
	};

	check(letter != NULL);
	*letter = (struct letter){ settlement_epoch(letters->settlement), delivery_tag(delivery) };
	log_warn("dead_letter", LOG_S("reason", delivery_reason(delivery)),
		 LOG_I("bytes", envelope->body_size));
	rabbit_publisher_send(letters->publisher, AMQP_DEAD_EXCHANGE, AMQP_ROUTING_KEY, &properties,
			      (amqp_bytes_t){ envelope->body_len, envelope->body }, letter);
}

void dead_letters_send(struct dead_letters *letters, int64_t now_ms)
{
	const struct delivery *delivery;

	if (now_ms < letters->due_ms)
		return;
	while (rabbit_publisher_ready(letters->publisher) &&
	       (delivery = settlement_dead_take(letters->settlement)))
		letter_send(letters, delivery);
}

int64_t dead_letters_deadline_ms(const struct dead_letters *letters)
{
	if (settlement_dead_waiting(letters->settlement) == 0 ||
	    !rabbit_publisher_ready(letters->publisher))
		return INT64_MAX;
	return letters->due_ms;
}

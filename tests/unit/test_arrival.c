/* Frames in any order: whole messages, single methods, and frames that do not belong together. */
#include "common/rabbit/connection.h"
#include "common/rabbit/envelope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static amqp_frame_t method_frame(amqp_method_number_t id, void *decoded)
{
	return (amqp_frame_t){ .frame_type = AMQP_FRAME_METHOD,
			       .channel = 1,
			       .payload.method = { .id = id, .decoded = decoded } };
}

static amqp_frame_t header_frame(uint64_t body_size)
{
	static amqp_basic_properties_t properties;

	return (amqp_frame_t){ .frame_type = AMQP_FRAME_HEADER,
			       .channel = 1,
			       .payload.properties = { .body_size = body_size,
						       .decoded = &properties } };
}

static amqp_frame_t body_frame(const char *text)
{
	return (amqp_frame_t){ .frame_type = AMQP_FRAME_BODY,
			       .channel = 1,
			       .payload.body_fragment = amqp_cstring_bytes(text) };
}

static struct arrival add(struct arriving *arriving, amqp_frame_t frame)
{
	return arriving_add(arriving, &frame);
}

static void test_a_delivery_in_pieces(void **state)
{
	struct arriving arriving = { 0 };
	amqp_basic_deliver_t deliver = { .consumer_tag = amqp_cstring_bytes("queue"),
					 .delivery_tag = 7 };
	struct arrival arrival;

	(void)state;
	assert_int_equal(add(&arriving, method_frame(AMQP_BASIC_DELIVER_METHOD, &deliver)).kind,
			 ARRIVAL_NONE);
	assert_int_equal(add(&arriving, header_frame(6)).kind, ARRIVAL_NONE);
	assert_int_equal(add(&arriving, body_frame("abc")).kind, ARRIVAL_NONE);
	arrival = add(&arriving, body_frame("def"));
	assert_int_equal(arrival.kind, ARRIVAL_DELIVERY);
	assert_int_equal(arrival.tag, 7);
	assert_string_equal(arrival.name, "queue");
	assert_memory_equal(arrival.envelope->body, "abcdef", 6);
	envelope_free(arrival.envelope);
}

static void test_a_return_without_a_body(void **state)
{
	struct arriving arriving = { 0 };
	amqp_basic_return_t returned = { 0 };
	struct arrival arrival;

	(void)state;
	add(&arriving, method_frame(AMQP_BASIC_RETURN_METHOD, &returned));
	arrival = add(&arriving, header_frame(0));
	assert_int_equal(arrival.kind, ARRIVAL_RETURN);
	envelope_free(arrival.envelope);
}

static void test_methods(void **state)
{
	struct arriving arriving = { 0 };
	amqp_basic_ack_t ack = { .delivery_tag = 3, .multiple = 1 };
	amqp_basic_nack_t nack = { .delivery_tag = 4 };
	struct arrival arrival;

	(void)state;
	arrival = add(&arriving, method_frame(AMQP_BASIC_ACK_METHOD, &ack));
	assert_int_equal(arrival.kind, ARRIVAL_ACK);
	assert_true(arrival.tag == 3 && arrival.multiple);
	arrival = add(&arriving, method_frame(AMQP_BASIC_NACK_METHOD, &nack));
	assert_int_equal(arrival.kind, ARRIVAL_NACK);
	assert_true(arrival.tag == 4 && !arrival.multiple);
	assert_int_equal(add(&arriving, method_frame(AMQP_BASIC_CANCEL_METHOD, NULL)).kind,
			 ARRIVAL_END);
	assert_int_equal(add(&arriving, method_frame(AMQP_QUEUE_PURGE_METHOD, NULL)).kind,
			 ARRIVAL_END);
}

static void test_frames_out_of_order(void **state)
{
	struct arriving arriving = { 0 };
	amqp_basic_deliver_t deliver = { .consumer_tag = amqp_cstring_bytes("queue") };

	(void)state;
	assert_int_equal(add(&arriving, body_frame("abc")).kind, ARRIVAL_END);
	assert_int_equal(add(&arriving, header_frame(3)).kind, ARRIVAL_END);
	add(&arriving, method_frame(AMQP_BASIC_DELIVER_METHOD, &deliver));
	assert_int_equal(add(&arriving, body_frame("abc")).kind, ARRIVAL_END);
	assert_int_equal(add(&arriving, method_frame(AMQP_BASIC_DELIVER_METHOD, &deliver)).kind,
			 ARRIVAL_END);
	assert_int_equal(add(&arriving, header_frame(3)).kind, ARRIVAL_NONE);
	assert_int_equal(add(&arriving, header_frame(3)).kind, ARRIVAL_END);
	arriving_reset(&arriving);
	assert_null(arriving.envelope);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_delivery_in_pieces),
		cmocka_unit_test(test_a_return_without_a_body),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_frames_out_of_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Events as CloudEvents in JSON, and packed into messages; rows of the log in binary form. */
#include "events/event.h"
#include "events/row.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIME "2026-11-21T12:00:00.123Z"

static struct event event_of(int64_t coupon, const char *user)
{
	struct event event = {
		.type = EVENT_ISSUED,
		.source = "/couponmq",
		.time = TIME,
		.receive = { .coupon = coupon, .index = 3 },
		.slot = 1,
	};

	assert_int_equal(user_id_parse(&event.receive.user, user, strlen(user)), 0);
	return event;
}

/* The event as another parser reads it. */
static cJSON *written(const struct event *event)
{
	char *text = malloc(event_size_max(event) + 1);
	size_t len = event_write(event, text);
	cJSON *parsed;

	assert_true(len <= event_size_max(event));
	text[len] = '\0';
	parsed = cJSON_ParseWithOpts(text, NULL, 1);
	assert_non_null(parsed);
	free(text);
	return parsed;
}

static const char *member(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
}

static void test_an_issued_coupon(void **state)
{
	struct event event = event_of(INT64_MAX, "a\"b\\c.d");
	cJSON *parsed, *data;

	(void)state;
	event.received_at = TIME;
	event.valid_from = TIME;
	event.key = "k \"1\\";
	parsed = written(&event);
	data = cJSON_GetObjectItem(parsed, "data");
	assert_string_equal(member(parsed, "specversion"), "1.0");
	assert_string_equal(member(parsed, "id"), "00000000000000000000000000.3/issued");
	assert_string_equal(member(parsed, "source"), "/couponmq");
	assert_string_equal(member(parsed, "type"), "coupon.issued");
	assert_string_equal(member(parsed, "subject"), "9223372036854775807");
	assert_string_equal(member(parsed, "time"), TIME);
	assert_string_equal(member(data, "coupon"), "9223372036854775807");
	assert_string_equal(member(data, "user"), "a\"b\\c.d");
	assert_string_equal(member(data, "receive"),
			    "9223372036854775807.a\"b\\c.d.00000000000000000000000000.3");
	assert_int_equal(cJSON_GetObjectItem(data, "slot")->valueint, 1);
	assert_string_equal(member(data, "key"), "k \"1\\");
	assert_string_equal(member(data, "valid_from"), TIME);
	assert_false(cJSON_HasObjectItem(data, "valid_to"));
	assert_false(cJSON_HasObjectItem(data, "reason"));
	cJSON_Delete(parsed);
}

static void test_a_changed_campaign(void **state)
{
	struct event event = { .type = EVENT_CHANGED,
			       .source = "/couponmq",
			       .time = TIME,
			       .receive = { .coupon = 7 },
			       .change = "12-1700000000123",
			       .detail = "{\"by\": \"ann\", \"version\": 3}" };
	cJSON *parsed = written(&event), *data = cJSON_GetObjectItem(parsed, "data");

	(void)state;
	assert_string_equal(member(parsed, "id"), "campaign/7/12-1700000000123");
	assert_string_equal(member(data, "coupon"), "7");
	assert_string_equal(member(data, "by"), "ann");
	assert_int_equal(cJSON_GetObjectItem(data, "version")->valueint, 3);
	assert_false(cJSON_HasObjectItem(data, "user"));
	cJSON_Delete(parsed);
}

/* As long as it can be: within the size that is promised. */
static void test_the_longest(void **state)
{
	char user[USER_ID_SIZE], key[RECEIVE_KEY_MAX + 1], source[201], *detail = malloc(20003);
	struct event event;

	(void)state;
	memset(user, '"', sizeof(user));
	user[sizeof(user) - 1] = '\0';
	memset(key, '\\', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	memset(source, 's', sizeof(source));
	source[sizeof(source) - 1] = '\0';
	memset(detail, ' ', 20002);
	detail[0] = '{';
	memcpy(detail + 19990, "\"a\":\"b\"}", 9);
	event = event_of(INT64_MAX, user);
	event.type = EVENT_REJECTED;
	event.source = source;
	event.receive.index = 32767;
	event.slot = 32767;
	event.received_at = event.valid_from = event.valid_to = TIME;
	event.key = key;
	event.reason = "unknown_coupon";
	event.detail = detail;
	cJSON_Delete(written(&event));
	free(detail);
}

/* The next message: its coupon, its type and how many events its JSON has. NULL: none. */
static struct packet *taken(struct packets *packets, int64_t coupon, enum event_type type, int n)
{
	struct packet *packet = packets_take(packets);
	cJSON *parsed;

	assert_non_null(packet);
	assert_int_equal(packet->coupon, coupon);
	assert_int_equal(packet->type, type);
	assert_int_equal(packet->events, n);
	assert_int_equal(strlen(packet->body), packet->len);
	parsed = cJSON_ParseWithOpts(packet->body, NULL, 1);
	assert_int_equal(cJSON_GetArraySize(parsed), n);
	cJSON_Delete(parsed);
	return packet;
}

static void test_a_message_has_one_coupon_and_type(void **state)
{
	struct packets *packets = packets_new();
	struct event one = event_of(1, "u"), two = event_of(2, "u");
	struct packet *first;

	(void)state;
	packets_add(packets, &one);
	packets_add(packets, &two);
	packets_add(packets, &one);
	one.type = EVENT_VOIDED;
	packets_add(packets, &one);
	packet_free(taken(packets, 1, EVENT_ISSUED, 2));
	assert_null(packets_take(packets));
	packets_close(packets);
	first = packets_take(packets); /* those of two coupons have no order */
	if (first->coupon == 1)
		packet_free(taken(packets, 2, EVENT_ISSUED, 1));
	else
		packet_free(taken(packets, 1, EVENT_VOIDED, 1));
	assert_null(packets_take(packets));
	packet_free(first);
	packets_free(packets);
}

static void test_a_message_is_bounded(void **state)
{
	struct packets *packets = packets_new();
	struct event event = event_of(1, "u");
	struct packet *packet;
	char *detail = calloc(1, 60001);

	(void)state;
	for (int i = 0; i < 2 * PACKET_EVENTS_MAX; i++)
		packets_add(packets, &event);
	packet_free(taken(packets, 1, EVENT_ISSUED, PACKET_EVENTS_MAX));
	packets_close(packets);
	packet_free(taken(packets, 1, EVENT_ISSUED, PACKET_EVENTS_MAX));
	memset(detail, ' ', 60000);
	detail[0] = '{';
	memcpy(detail + 59990, "\"a\":\"b\" }", 10);
	event.detail = detail;
	for (int i = 0; i < 3; i++)
		packets_add(packets, &event);
	packet = taken(packets, 1, EVENT_ISSUED, 2);
	assert_true(packet->len <= PACKET_BYTES_MAX);
	packet_free(packet);
	packets_free(packets);
	free(detail);
}

/* Every event leaves once, and those of a coupon in their order. */
static void test_many_coupons(void **state)
{
	enum { COUPONS = 1000, EACH = 5 };
	struct packets *packets = packets_new();
	struct packet *packet;
	int seen[COUPONS] = { 0 };

	(void)state;
	for (int i = 0; i < COUPONS * EACH; i++) {
		struct event event = event_of(INT64_MAX - i % COUPONS, "u");

		event.slot = i / COUPONS;
		event.type = event.slot % 2 ? EVENT_ISSUED : EVENT_REJECTED;
		packets_add(packets, &event);
	}
	packets_close(packets);
	while ((packet = packets_take(packets))) {
		cJSON *events = cJSON_Parse(packet->body);
		const cJSON *event;

		cJSON_ArrayForEach(event, events)
		{
			const cJSON *data = cJSON_GetObjectItem(event, "data");

			assert_int_equal(cJSON_GetObjectItem(data, "slot")->valueint,
					 seen[INT64_MAX - packet->coupon]++);
		}
		cJSON_Delete(events);
		packet_free(packet);
	}
	for (int i = 0; i < COUPONS; i++)
		assert_int_equal(seen[i], EACH);
	packets_free(packets);
}

static void test_binary_values(void **state)
{
	/* {-2,NULL} of int2 */
	static const char bytes[] = "\0\0\0\1\0\0\0\1\0\0\0\25\0\0\0\2\0\0\0\1"
				    "\0\0\0\2\377\376\377\377\377\377";
	struct binary_array array = binary_array_begin(bytes, sizeof(bytes) - 1);
	int64_t number;
	size_t len;

	(void)state;
	assert_int_equal(binary_number("\377\377\377\377\377\377\377\376", 8), -2);
	assert_int_equal(binary_number("\1\0\0\0", 4), 1 << 24);
	assert_int_equal(binary_number("123", 3), 0);
	assert_int_equal(binary_array_number(&array, &number), 0);
	assert_int_equal(number, -2);
	assert_null(binary_array_next(&array, &len));
	for (size_t cut = 0; cut < 26; cut++) {
		array = binary_array_begin(bytes, cut);
		assert_null(binary_array_next(&array, &len));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_issued_coupon),
		cmocka_unit_test(test_a_changed_campaign),
		cmocka_unit_test(test_the_longest),
		cmocka_unit_test(test_a_message_has_one_coupon_and_type),
		cmocka_unit_test(test_a_message_is_bounded),
		cmocka_unit_test(test_many_coupons),
		cmocka_unit_test(test_binary_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

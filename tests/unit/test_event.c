/* Rows of the event log as CloudEvents in JSON, packed into messages. */
#include "common/message/receive.h"
#include "common/message/trace_context.h"
#include "common/postgres/argument.h"
#include "events/event.h"

#include <cjson/cJSON.h>
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIME "2026-11-21T12:00:00.123Z"
#define TIME_MS INT64_C(1795262400123)
#define SOURCE "/couponmq"
#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

/* As in sql_query_event_log_read. */
enum column {
	ID,
	MADE,
	TYPE,
	NUM,
	COUPON,
	BATCH,
	INDEX,
	USER,
	SLOT,
	KEY,
	AT,
	REASON,
	TRACE,
	VALID_COUPON,
	VALID_AT,
	VALID_FROM,
	VALID_DAYS,
	VALID_TO,
	HISTORY,
	DETAIL,
	COLUMNS
};

#define ROW_ID 77

/* A row to be, with an element of each array for each event; what is NULL or 0 is SQL's NULL. */
struct made {
	enum event_type type;
	int64_t n; /* 0: one event */
	int64_t coupon, index;
	int64_t slot; /* -1: SQL's NULL */
	const char *user, *key, *reason, *trace, *detail;
	int64_t at_ms, valid_from_ms, valid_to_ms, valid_days, history;
};

static void value_set(PGresult *rows, enum column column, const void *value, size_t len)
{
	assert_true(PQsetvalue(rows, 0, (int)column, (char *)(uintptr_t)value, (int)len));
}

static void number_set(PGresult *rows, enum column column, int64_t number)
{
	const uint64_t bytes = htobe64((uint64_t)number);

	value_set(rows, column, &bytes, sizeof(bytes));
}

static void numbers_set(PGresult *rows, enum column column, enum postgres_type type, int64_t n,
			int64_t number)
{
	struct postgres_array array = { .type = type };

	for (int64_t i = 0; i < n; i++)
		postgres_array_add_number(&array, number);
	value_set(rows, column, array.data, array.len);
	postgres_array_fini(&array);
}

static void texts_set(PGresult *rows, enum column column, int64_t n, const char *text)
{
	struct postgres_array array = { .type = POSTGRES_TEXT };

	for (int64_t i = 0; text && i < n; i++)
		postgres_array_add_text(&array, text, strlen(text));
	if (text)
		value_set(rows, column, array.data, array.len);
	postgres_array_fini(&array);
}

static void batches_set(PGresult *rows, int64_t n)
{
	struct postgres_array array = { .type = POSTGRES_UUID };

	for (int64_t i = 0; i < n; i++)
		postgres_array_add_uuid(&array, &(struct ulid){ .bytes = { 0 } });
	value_set(rows, BATCH, array.data, array.len);
	postgres_array_fini(&array);
}

static void validity_set(PGresult *rows, const struct made *made)
{
	if (!made->valid_from_ms && !made->valid_to_ms && !made->valid_days)
		return;
	numbers_set(rows, VALID_COUPON, POSTGRES_INT8, 1, made->coupon);
	numbers_set(rows, VALID_AT, POSTGRES_INT8, 1, 0);
	numbers_set(rows, VALID_FROM, POSTGRES_INT8, 1, made->valid_from_ms);
	numbers_set(rows, VALID_DAYS, POSTGRES_INT4, 1, made->valid_days);
	numbers_set(rows, VALID_TO, POSTGRES_INT8, 1, made->valid_to_ms);
}

static PGresult *row_make(const struct made *made)
{
	PGresult *rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc attributes[COLUMNS] = { 0 };
	int64_t n = made->n ? made->n : 1;
	char name[] = "x";

	for (int i = 0; i < COLUMNS; i++)
		attributes[i] = (PGresAttDesc){ .name = name, .format = 1 };
	assert_true(PQsetResultAttrs(rows, COLUMNS, attributes));
	number_set(rows, ID, ROW_ID);
	number_set(rows, MADE, TIME_MS);
	value_set(rows, TYPE, event_type_text(made->type), strlen(event_type_text(made->type)));
	number_set(rows, NUM, n);
	numbers_set(rows, COUPON, POSTGRES_INT8, 1, made->coupon);
	if (made->history)
		numbers_set(rows, HISTORY, POSTGRES_INT8, n, made->history);
	texts_set(rows, DETAIL, n, made->detail);
	if (made->type == EVENT_CHANGED)
		return rows;
	batches_set(rows, n);
	numbers_set(rows, INDEX, POSTGRES_INT2, n, made->index);
	texts_set(rows, USER, n, made->user);
	if (made->slot >= 0)
		numbers_set(rows, SLOT, POSTGRES_INT2, n, made->slot);
	texts_set(rows, KEY, n, made->key);
	texts_set(rows, REASON, n, made->reason);
	texts_set(rows, TRACE, n, made->trace);
	if (made->at_ms)
		numbers_set(rows, AT, POSTGRES_INT8, n, made->at_ms);
	validity_set(rows, made);
	return rows;
}

#define SENT_MAX 8192

/* The messages that were sent and not looked at yet, of which each is a copy. */
static struct event_packet sent[SENT_MAX];
static size_t sent_from, sent_n;

static void on_packet(void *context, const struct event_packet *packet)
{
	assert_null(context);
	assert_true(sent_n < SENT_MAX);
	sent[sent_n] = *packet;
	sent[sent_n++].body = strdup(packet->body);
}

static struct packets *packets_make(const char *source)
{
	sent_from = sent_n = 0;
	return packets_new(source, on_packet, NULL);
}

/* NULL: none. Its body is to be freed. */
static struct event_packet *packet_next(void)
{
	return sent_from < sent_n ? &sent[sent_from++] : NULL;
}

static int row_add(struct packets *packets, PGresult *rows)
{
	int64_t id;
	int rc = packets_add(packets, rows, 0, &id);

	assert_int_equal(id, ROW_ID);
	PQclear(rows);
	return rc;
}

static void add(struct packets *packets, const struct made *made)
{
	assert_int_equal(row_add(packets, row_make(made)), 0);
}

static struct made made_of(int64_t coupon, const char *user)
{
	return (struct made){
		.type = EVENT_ISSUED, .coupon = coupon, .user = user, .index = 3, .slot = 1
	};
}

/* The last event of a row as another parser reads it. */
static cJSON *written(const struct made *made, const char *source)
{
	struct packets *packets = packets_make(source);
	struct event_packet *packet;
	cJSON *parsed, *event;

	add(packets, made);
	packets_close(packets);
	packet = packet_next();
	assert_non_null(packet);
	parsed = cJSON_ParseWithOpts(packet->body, NULL, 1);
	assert_non_null(parsed);
	event = cJSON_DetachItemFromArray(parsed, cJSON_GetArraySize(parsed) - 1);
	assert_non_null(event);
	cJSON_Delete(parsed);
	free(packet->body);
	packets_free(packets);
	return event;
}

static const char *member(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
}

static void test_an_issued_coupon(void **state)
{
	struct made made = made_of(INT64_MAX, "a\"b\\c.d");
	cJSON *parsed, *data;

	(void)state;
	made.at_ms = TIME_MS;
	made.valid_from_ms = TIME_MS;
	made.key = "k \"1\\";
	parsed = written(&made, SOURCE);
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
	assert_string_equal(member(data, "received_at"), TIME);
	assert_string_equal(member(data, "valid_from"), TIME);
	assert_false(cJSON_HasObjectItem(data, "valid_to"));
	assert_false(cJSON_HasObjectItem(data, "reason"));
	assert_false(cJSON_HasObjectItem(parsed, "traceparent"));
	cJSON_Delete(parsed);
}

static void test_traces(void **state)
{
	static const char *const none[] = { "", "x", "\"", PARENT "x", PARENT " \t" };
	struct made made = made_of(7, "u");
	cJSON *parsed;

	(void)state;
	made.trace = PARENT;
	parsed = written(&made, SOURCE);
	assert_string_equal(member(parsed, "traceparent"), PARENT);
	assert_false(cJSON_HasObjectItem(parsed, "requestid"));
	cJSON_Delete(parsed);
	made.trace = PARENT " o\"\\77";
	made.n = 2;
	parsed = written(&made, SOURCE);
	assert_string_equal(member(parsed, "traceparent"), PARENT);
	assert_string_equal(member(parsed, "requestid"), "o\"\\77");
	assert_true(cJSON_IsObject(cJSON_GetObjectItem(parsed, "data")));
	cJSON_Delete(parsed);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		made.trace = none[i];
		parsed = written(&made, SOURCE);
		assert_false(cJSON_HasObjectItem(parsed, "traceparent"));
		assert_false(cJSON_HasObjectItem(parsed, "requestid"));
		cJSON_Delete(parsed);
	}
}

static void test_validity(void **state)
{
	struct made made = made_of(7, "u");
	cJSON *parsed, *data;

	(void)state;
	made.at_ms = TIME_MS;
	made.n = 2;
	made.valid_days = 2;
	parsed = written(&made, SOURCE);
	data = cJSON_GetObjectItem(parsed, "data");
	assert_string_equal(member(data, "valid_from"), TIME);
	assert_string_equal(member(data, "valid_to"), "2026-11-23T12:00:00.123Z");
	cJSON_Delete(parsed);
	made.valid_days = 0;
	made.valid_to_ms = TIME_MS + 1;
	parsed = written(&made, SOURCE);
	data = cJSON_GetObjectItem(parsed, "data");
	assert_string_equal(member(data, "valid_to"), "2026-11-21T12:00:00.124Z");
	cJSON_Delete(parsed);
}

static void test_a_changed_campaign(void **state)
{
	const struct made made = { .type = EVENT_CHANGED,
				   .coupon = 7,
				   .history = 12,
				   .detail = "{\"by\": \"ann\", \"version\": 3}" };
	cJSON *parsed = written(&made, SOURCE), *data = cJSON_GetObjectItem(parsed, "data");

	(void)state;
	assert_string_equal(member(parsed, "id"), "campaign/7/12-1795262400123");
	assert_string_equal(member(data, "coupon"), "7");
	assert_string_equal(member(data, "by"), "ann");
	assert_int_equal(cJSON_GetObjectItem(data, "version")->valueint, 3);
	assert_false(cJSON_HasObjectItem(data, "user"));
	assert_false(cJSON_HasObjectItem(data, "received_at"));
	cJSON_Delete(parsed);
}

static void test_what_an_order_does(void **state)
{
	struct made made = made_of(7, "u");
	cJSON *parsed, *data;

	(void)state;
	made.type = EVENT_USED;
	made.n = 2;
	made.slot = -1;
	made.history = 12;
	made.detail = "{\"order\": \"o\\\"1\", \"amount_off\": 500}";
	parsed = written(&made, SOURCE);
	data = cJSON_GetObjectItem(parsed, "data");
	assert_string_equal(member(parsed, "id"), "00000000000000000000000000.3/used/12");
	assert_string_equal(member(parsed, "type"), "coupon.used");
	assert_string_equal(member(data, "receive"), "7.u.00000000000000000000000000.3");
	assert_string_equal(member(data, "order"), "o\"1");
	assert_int_equal(cJSON_GetObjectItem(data, "amount_off")->valueint, 500);
	assert_false(cJSON_HasObjectItem(data, "slot"));
	cJSON_Delete(parsed);
}

/* Numbers of 2, 4 and 8 bytes have a sign; any other length is read as 0. */
static void test_numbers_of_a_row(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		int64_t id;
	} cases[] = {
		{ "\377\377\377\377\377\377\377\376", 8, -2 },
		{ "\177\377\377\377\377\377\377\377", 8, INT64_MAX },
		{ "\1\0\0\0", 4, 16777216 },
		{ "\377\377\377\376", 4, -2 },
		{ "\377\376", 2, -2 },
		{ "123", 3, 0 },
	};
	const struct made made = { .type = EVENT_CHANGED, .coupon = 7 };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct packets *packets = packets_make(SOURCE);
		PGresult *rows = row_make(&made);
		int64_t id;

		value_set(rows, ID, cases[i].bytes, cases[i].len);
		assert_int_equal(packets_add(packets, rows, 0, &id), 0);
		assert_true(id == cases[i].id);
		PQclear(rows);
		packets_free(packets);
	}
}

/* As long as it can be: within the size that is promised. */
static void test_the_longest(void **state)
{
	char trace[TRACE_SIZE] = PARENT " ", user[USER_ID_SIZE], key[RECEIVE_KEY_MAX + 1],
	     source[201], *detail = malloc(20003);
	struct made made;

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
	made = made_of(INT64_MAX, user);
	made.type = EVENT_REJECTED;
	made.index = made.slot = 32767;
	made.at_ms = made.valid_from_ms = made.valid_to_ms = TIME_MS;
	made.key = key;
	made.reason = "unknown_coupon";
	memset(trace + TRACE_PARENT_LEN + 1, '"', REQUEST_NAME_MAX);
	made.trace = trace;
	made.detail = detail;
	cJSON_Delete(written(&made, source));
	free(detail);
}

/* The next message: its coupon, its type and how many events its JSON has. NULL: none. */
static struct event_packet *taken(int64_t coupon, enum event_type type, int n)
{
	struct event_packet *packet = packet_next();
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
	struct packets *packets = packets_make(SOURCE);
	struct made one = made_of(1, "u"), two = made_of(2, "u");
	struct event_packet *first;

	(void)state;
	add(packets, &one);
	add(packets, &two);
	add(packets, &one);
	one.type = EVENT_VOIDED;
	add(packets, &one);
	free(taken(1, EVENT_ISSUED, 2)->body);
	assert_null(packet_next());
	packets_close(packets);
	first = packet_next(); /* those of two coupons have no order */
	if (first->coupon == 1)
		free(taken(2, EVENT_ISSUED, 1)->body);
	else
		free(taken(1, EVENT_VOIDED, 1)->body);
	assert_null(packet_next());
	free(first->body);
	packets_free(packets);
}

static void test_a_message_is_bounded(void **state)
{
	struct packets *packets = packets_make(SOURCE);
	struct made made = made_of(1, "u");
	struct event_packet *packet;
	char *detail = calloc(1, 60001);

	(void)state;
	made.n = 2 * PACKET_EVENTS_MAX;
	add(packets, &made);
	free(taken(1, EVENT_ISSUED, PACKET_EVENTS_MAX)->body);
	packets_close(packets);
	free(taken(1, EVENT_ISSUED, PACKET_EVENTS_MAX)->body);
	memset(detail, ' ', 60000);
	detail[0] = '{';
	memcpy(detail + 59990, "\"a\":\"b\" }", 10);
	made.detail = detail;
	made.n = 3;
	add(packets, &made);
	packet = taken(1, EVENT_ISSUED, 2);
	assert_true(packet->len <= PACKET_BYTES_MAX);
	free(packet->body);
	packets_free(packets);
	free(detail);
}

/* Every event leaves once, and those of a coupon in their order. */
static void test_many_coupons(void **state)
{
	enum { COUPONS = 1000, EACH = 5 };
	struct packets *packets = packets_make(SOURCE);
	struct event_packet *packet;
	int seen[COUPONS] = { 0 };

	(void)state;
	for (int i = 0; i < COUPONS * EACH; i++) {
		struct made made = made_of(INT64_MAX - i % COUPONS, "u");

		made.slot = i / COUPONS;
		made.type = made.slot % 2 ? EVENT_ISSUED : EVENT_REJECTED;
		add(packets, &made);
	}
	packets_close(packets);
	while ((packet = packet_next())) {
		cJSON *events = cJSON_Parse(packet->body);
		const cJSON *event;

		cJSON_ArrayForEach(event, events)
		{
			const cJSON *data = cJSON_GetObjectItem(event, "data");

			assert_int_equal(cJSON_GetObjectItem(data, "slot")->valueint,
					 seen[INT64_MAX - packet->coupon]++);
		}
		cJSON_Delete(events);
		free(packet->body);
	}
	for (int i = 0; i < COUPONS; i++)
		assert_int_equal(seen[i], EACH);
	packets_free(packets);
}

/* The events before what is malformed are added, and nothing is read beyond the value. */
static void test_a_malformed_row(void **state)
{
	/* {-2,NULL} of int2 */
	static const char slots[] = "\0\0\0\1\0\0\0\1\0\0\0\25\0\0\0\2\0\0\0\1"
				    "\0\0\0\2\377\376\377\377\377\377";
	struct made made = made_of(1, "u");
	struct event_packet *packet;

	(void)state;
	made.n = 2;
	for (size_t cut = 0; cut < sizeof(slots); cut++) {
		struct packets *packets = packets_make(SOURCE);
		PGresult *rows = row_make(&made);

		value_set(rows, SLOT, slots, cut);
		assert_int_equal(row_add(packets, rows), -1);
		packets_close(packets);
		packet = packet_next();
		assert_int_equal(packet != NULL, cut >= 26);
		if (packet) {
			assert_non_null(strstr(packet->body, "\"slot\":-2}"));
			free(packet->body);
		}
		packets_free(packets);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_issued_coupon),
		cmocka_unit_test(test_traces),
		cmocka_unit_test(test_validity),
		cmocka_unit_test(test_a_changed_campaign),
		cmocka_unit_test(test_what_an_order_does),
		cmocka_unit_test(test_numbers_of_a_row),
		cmocka_unit_test(test_the_longest),
		cmocka_unit_test(test_a_message_has_one_coupon_and_type),
		cmocka_unit_test(test_a_message_is_bounded),
		cmocka_unit_test(test_many_coupons),
		cmocka_unit_test(test_a_malformed_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Rows of event_log in PostgreSQL's binary form: an event that was read has a coupon, and is
 * written within its bound, which packets_add() checks.
 */
#include "tests/fuzz/fuzz.h"

#include "events/event.h"

#include <stdlib.h>

#define COLUMNS 20
#define TYPE 2
#define NUM 3

/* Each value: two bytes of length, of which the highest bit means NULL; then the value. */
static PGresult *result_make(struct bytes *bytes)
{
	PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc attributes[COLUMNS] = { 0 };
	char name[] = "x", num[2] = { 0 };

	check(result != NULL);
	for (int i = 0; i < COLUMNS; i++)
		attributes[i] = (PGresAttDesc){ .name = name, .format = 1 };
	check(PQsetResultAttrs(result, COLUMNS, attributes));
	for (int i = 0; i < COLUMNS; i++) {
		int high = bytes_u8(bytes), low = bytes_u8(bytes);
		size_t len;
		char *value = (char *)(uintptr_t)bytes_take(bytes,
							    (size_t)((high & 0x7f) << 8 | low),
							    &len);

		if (i == TYPE && len == 1) {
			value = (char *)(uintptr_t)event_type_text(
				(enum event_type)(*value & 0x7f) % EVENT_TYPES);
			len = strlen(value);
		}
		if (i == NUM && len > 0) { /* also below 0, and more than a message takes */
			num[0] = (char)(value[0] & 0x81);
			num[1] = value[len - 1];
			value = num;
			len = sizeof(num);
		}
		check(PQsetvalue(result, 0, i, high & 0x80 ? NULL : value,
				 high & 0x80 ? -1 : (int)len));
	}
	return result;
}

static void packet_check(void *context, const struct event_packet *packet)
{
	check(context == NULL && packet->coupon > 0 && packet->events > 0);
	check(packet->body[0] == '[' && packet->body[packet->len - 1] == ']' &&
	      packet->body[packet->len] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	PGresult *result = result_make(&bytes);
	struct packets *packets = packets_new("https://coupons.example", packet_check, NULL);
	int64_t id;

	packets_add(packets, result, 0, &id);
	packets_close(packets);
	packets_free(packets);
	PQclear(result);
	return 0;
}

/*
 * Rows of event_log in PostgreSQL's binary form: an event that was read has a coupon, and is
 * written within its bound.
 */
#include "tests/fuzz/fuzz.h"

#include "events/row.h"

#include <stdlib.h>

#define COLUMNS 19
#define TYPE 2
#define EVENTS_MAX 1000

/* Each value: two bytes of length, of which the highest bit means NULL; then the value. */
static PGresult *result_make(struct bytes *bytes)
{
	PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc attributes[COLUMNS] = { 0 };
	char name[] = "x";

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
		check(PQsetvalue(result, 0, i, high & 0x80 ? NULL : value,
				 high & 0x80 ? -1 : (int)len));
	}
	return result;
}

static void event_check(const struct event *event)
{
	size_t size = event_size_max(event);
	char *out = malloc(size + 1);

	check(out != NULL && event->receive.coupon > 0);
	check(event_write(event, out) <= size);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	PGresult *result = result_make(&bytes);
	struct row *row = row_new("https://coupons.example");
	struct event event;

	if (row_begin(row, result, 0) == 0)
		for (int i = 0; i < EVENTS_MAX && row_next(row, &event) == 1; i++)
			event_check(&event);
	row_free(row);
	PQclear(result);
	return 0;
}

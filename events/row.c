#include "events/row.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REASON_SIZE 32
#define CHANGE_SIZE 48 /* HISTORY-MS */

/*
 * An array begins with its dimensions, flags and type; then come, of its one dimension, the number
 * of elements and the first index.
 */
#define HEAD_SIZE 20
#define LENGTH_SIZE 4

/* The columns of the query, in its order. */
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
	VALID_COUPON,
	VALID_AT,
	VALID_FROM,
	VALID_DAYS,
	VALID_TO,
	HISTORY,
	DETAIL,
	COLUMNS
};

#define DAY_MS INT64_C(86400000)

/* How long a receive of this coupon and time is valid; see event_log. */
struct validity {
	int64_t coupon, at_ms;
	int64_t from_ms, days, to_ms;
};

struct row {
	const char *source;
	const PGresult *result;
	int number;
	int64_t left; /* events that were not read yet */
	enum event_type type;
	int64_t coupon; /* of the last event */
	struct binary_array arrays[COLUMNS];
	struct validity *validities; /* sorted */
	size_t validities_n, validities_room;
	/* That of the last event, and what it means for its time. */
	const struct validity *validity;
	int64_t validity_at_ms;
	char valid_from[CLOCK_RFC3339_SIZE];
	char valid_to[CLOCK_RFC3339_SIZE]; /* "": no end */
	/* The texts of the event. */
	int64_t at_ms;
	char at[CLOCK_RFC3339_SIZE];
	char time[CLOCK_RFC3339_SIZE];
	char key[RECEIVE_KEY_MAX + 1];
	char reason[REASON_SIZE];
	char change[CHANGE_SIZE];
};

int64_t binary_number(const char *bytes, size_t len)
{
	uint64_t number = 0;

	if (len != 2 && len != 4 && len != 8)
		return 0;
	for (size_t i = 0; i < len; i++)
		number = number << 8 | (unsigned char)bytes[i];
	switch (len) {
	case 2:
		return (int16_t)number;
	case 4:
		return (int32_t)number;
	default:
		return (int64_t)number;
	}
}

struct binary_array binary_array_begin(const char *bytes, size_t len)
{
	if (len < HEAD_SIZE)
		return (struct binary_array){ .at = bytes };
	return (struct binary_array){ .at = bytes + HEAD_SIZE, .len = len - HEAD_SIZE };
}

const char *binary_array_next(struct binary_array *array, size_t *len)
{
	const char *element = array->at + LENGTH_SIZE;
	int64_t length;

	if (array->len < LENGTH_SIZE)
		return NULL;
	length = binary_number(array->at, LENGTH_SIZE);
	if (length < 0 || (uint64_t)length > array->len - LENGTH_SIZE)
		return NULL; /* below 0: SQL's NULL */
	*len = (size_t)length;
	array->at = element + *len;
	array->len -= LENGTH_SIZE + *len;
	return element;
}

int binary_array_number(struct binary_array *array, int64_t *number)
{
	size_t len;
	const char *bytes = binary_array_next(array, &len);

	if (!bytes)
		return -1;
	*number = binary_number(bytes, len);
	return 0;
}

struct row *row_new(const char *source)
{
	struct row *row = checked(calloc(1, sizeof(*row)));

	row->source = source;
	return row;
}

void row_free(struct row *row)
{
	if (!row)
		return;
	free(row->validities);
	free(row);
}

static int has(const struct row *row, enum column column)
{
	return !PQgetisnull(row->result, row->number, (int)column);
}

/* libpq ends each value with a NUL. */
static const char *text_of(const struct row *row, enum column column)
{
	return PQgetvalue(row->result, row->number, (int)column);
}

static size_t length_of(const struct row *row, enum column column)
{
	return (size_t)PQgetlength(row->result, row->number, (int)column);
}

static int64_t number_of(const struct row *row, enum column column)
{
	return binary_number(text_of(row, column), length_of(row, column));
}

static int compare(const void *left, const void *right)
{
	const struct validity *a = left, *b = right;

	if (a->coupon != b->coupon)
		return a->coupon < b->coupon ? -1 : 1;
	return a->at_ms < b->at_ms ? -1 : a->at_ms > b->at_ms;
}

static void validities_read(struct row *row)
{
	struct binary_array *arrays = row->arrays;
	struct validity one;

	row->validities_n = 0;
	row->validity = NULL;
	while (binary_array_number(&arrays[VALID_COUPON], &one.coupon) == 0 &&
	       binary_array_number(&arrays[VALID_AT], &one.at_ms) == 0 &&
	       binary_array_number(&arrays[VALID_FROM], &one.from_ms) == 0 &&
	       binary_array_number(&arrays[VALID_TO], &one.to_ms) == 0) {
		one.days = 0; /* where none has days there are no elements */
		binary_array_number(&arrays[VALID_DAYS], &one.days);
		row->validities = array_room(row->validities, row->validities_n,
					     &row->validities_room, sizeof(one));
		row->validities[row->validities_n++] = one;
	}
	if (row->validities_n > 1)
		qsort(row->validities, row->validities_n, sizeof(one), compare);
}

int row_begin(struct row *row, const PGresult *result, int number)
{
	row->result = result;
	row->number = number;
	check(PQnfields(result) == COLUMNS);
	row->left = number_of(row, NUM);
	row->coupon = 0;
	row->at_ms = -1;
	clock_rfc3339(number_of(row, MADE), row->time);
	snprintf(row->change, sizeof(row->change), "%" PRId64 "-%" PRId64, number_of(row, HISTORY),
		 number_of(row, MADE));
	for (enum column i = COUPON; i <= VALID_TO; i++)
		row->arrays[i] = binary_array_begin(text_of(row, i), length_of(row, i));
	validities_read(row);
	return event_type_parse(text_of(row, TYPE), &row->type);
}

int64_t row_id(const struct row *row)
{
	return number_of(row, ID);
}

/* A single coupon is that of all events. */
static int coupon_read(struct row *row, int64_t *coupon)
{
	int64_t next;

	if (binary_array_number(&row->arrays[COUPON], &next) == 0)
		row->coupon = next;
	*coupon = row->coupon;
	return *coupon > 0 ? 0 : -1;
}

static int receive_read(struct row *row, struct event *event)
{
	int64_t index, slot;
	size_t len;
	const char *bytes = binary_array_next(&row->arrays[BATCH], &len);

	if (!bytes || len != sizeof(event->receive.batch.bytes))
		return -1;
	memcpy(event->receive.batch.bytes, bytes, len);
	bytes = binary_array_next(&row->arrays[USER], &len);
	if (!bytes || user_id_parse(&event->receive.user, bytes, len) ||
	    binary_array_number(&row->arrays[INDEX], &index) ||
	    binary_array_number(&row->arrays[SLOT], &slot))
		return -1;
	event->receive.index = (int)index;
	event->slot = (int)slot;
	return 0;
}

static int time_read(struct row *row, struct event *event)
{
	int64_t at_ms;

	if (!has(row, AT))
		return 0;
	if (binary_array_number(&row->arrays[AT], &at_ms))
		return -1;
	if (at_ms != row->at_ms)
		clock_rfc3339(at_ms, row->at);
	row->at_ms = at_ms;
	event->received_at = row->at;
	return 0;
}

/* Of this time, or of any. */
static const struct validity *validity_find(const struct row *row, int64_t coupon)
{
	struct validity wanted = { .coupon = coupon, .at_ms = row->at_ms };
	const struct validity *found = bsearch(&wanted, row->validities, row->validities_n,
					       sizeof(wanted), compare);

	wanted.at_ms = 0;
	return found ? found
		     : bsearch(&wanted, row->validities, row->validities_n, sizeof(wanted),
			       compare);
}

static void validity_set(struct row *row, const struct validity *validity)
{
	int64_t at_ms = row->at_ms,
		to_ms = validity->days ? at_ms + validity->days * DAY_MS : validity->to_ms;

	clock_rfc3339(validity->from_ms ? validity->from_ms : at_ms, row->valid_from);
	*row->valid_to = '\0';
	if (to_ms)
		clock_rfc3339(to_ms, row->valid_to);
	row->validity = validity;
	row->validity_at_ms = at_ms;
}

static void validity_read(struct row *row, struct event *event)
{
	const struct validity *validity = row->validity;

	if (row->validities_n == 0)
		return;
	if (!validity || validity->coupon != event->receive.coupon ||
	    row->validity_at_ms != row->at_ms) {
		validity = validity_find(row, event->receive.coupon);
		if (!validity)
			return;
		validity_set(row, validity);
	}
	event->valid_from = row->valid_from;
	event->valid_to = *row->valid_to ? row->valid_to : NULL;
}

/* The text of a column that may be absent; an empty one is none. 0, or -1. */
static int text_read(struct row *row, enum column column, char *out, size_t size, const char **text)
{
	const char *bytes;
	size_t len;

	if (!has(row, column))
		return 0;
	bytes = binary_array_next(&row->arrays[column], &len);
	if (!bytes || len >= size)
		return -1;
	memcpy(out, bytes, len);
	out[len] = '\0';
	*text = *out ? out : NULL;
	return 0;
}

int row_next(struct row *row, struct event *event)
{
	if (row->left <= 0)
		return 0;
	row->left--;
	*event = (struct event){
		.type = row->type,
		.source = row->source,
		.time = row->time,
		.detail = has(row, DETAIL) ? text_of(row, DETAIL) : NULL,
		.change = row->change,
	};
	if (coupon_read(row, &event->receive.coupon))
		return -1;
	if (row->type == EVENT_CHANGED)
		return 1;
	if (receive_read(row, event) || time_read(row, event) ||
	    text_read(row, KEY, row->key, sizeof(row->key), &event->key) ||
	    text_read(row, REASON, row->reason, sizeof(row->reason), &event->reason))
		return -1;
	validity_read(row, event);
	return 1;
}

/*
 *	row of event_log ──event by event──▶ a packet for each coupon
 *	                                      └─full, another type, close──▶ send
 */
#include "events/event.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/message/receive.h"
#include "common/message/trace_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is written of an event beside the texts whose lengths event_add() counts. */
#define FIXED_SIZE 1024
#define REASON_SIZE 32

/*
 * An array in PostgreSQL's binary form begins with its dimensions, flags and type; then come, of
 * its one dimension, the number of elements and the first index.
 */
#define HEAD_SIZE 20
#define LENGTH_SIZE 4

/* The columns of the query, in its order. */
enum event_column {
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

#define DAY_MS UINT64_C(86400000)

/* How long a receive of this coupon and time is valid; see event_log. */
struct validity {
	int64_t coupon, at_ms;
	int64_t from_ms, days, to_ms;
};

/* A row, and the event of it that was read last. Texts are "" where the event has none. */
struct event_row {
	const PGresult *rows;
	int number;
	struct elements {
		const char *at;
		size_t len;
	} left[COLUMNS];             /* of each array, what was not read yet */
	struct validity *validities; /* sorted */
	size_t validities_n, validities_room;
	/* The validity of the last event, and what it means for the time of that event. */
	const struct validity *validity;
	int64_t validity_at_ms;
	char valid_from[CLOCK_RFC3339_SIZE];
	char valid_to[CLOCK_RFC3339_SIZE];
	/* Common to all events of the row: */
	enum event_type type;
	char time[CLOCK_RFC3339_SIZE];
	int64_t made_ms;
	/* The event that was read last: */
	struct receive receive; /* of a changed campaign its coupon alone */
	int slot;
	int64_t history_id;
	const char *detail; /* a JSON object, whose members are added to `data` */
	size_t detail_len;
	int64_t at_ms;
	char received_at[CLOCK_RFC3339_SIZE];
	char key[RECEIVE_KEY_MAX + 1];
	char trace[TRACE_SIZE];
	char reason[REASON_SIZE]; /* of enum reason: nothing in it is escaped */
};

struct packets {
	const char *source;
	packet_fn *send;
	void *context;
	struct event_row row;
	struct event_packet *open; /* by coupon */
};

static const char *const types[EVENT_TYPES] = {
#define EVENT(name, text) [name] = text,
#include "common/message/event_table.h"
#undef EVENT
};

const char *event_type_text(enum event_type type)
{
	return types[type];
}

int event_type_parse(const char *text, enum event_type *type)
{
	for (int i = 0; i < EVENT_TYPES; i++)
		if (strcmp(text, types[i]) == 0) {
			*type = (enum event_type)i;
			return 0;
		}
	return -1;
}

/* A signed integer of 2, 4 or 8 bytes; 0 for any other length. */
static int64_t binary_number(const char *bytes, size_t len)
{
	int64_t number;

	if (len != 2 && len != 4 && len != 8)
		return 0;
	number = (signed char)bytes[0];
	for (size_t i = 1; i < len; i++)
		number = number * 256 + (unsigned char)bytes[i];
	return number;
}

static int has(const struct event_row *row, enum event_column column)
{
	return !PQgetisnull(row->rows, row->number, (int)column);
}

/* libpq ends each value with a NUL. */
static const char *text_of(const struct event_row *row, enum event_column column)
{
	return PQgetvalue(row->rows, row->number, (int)column);
}

static size_t length_of(const struct event_row *row, enum event_column column)
{
	return (size_t)PQgetlength(row->rows, row->number, (int)column);
}

static int64_t number_of(const struct event_row *row, enum event_column column)
{
	return binary_number(text_of(row, column), length_of(row, column));
}

/* The next element, which is lent, and its length. NULL: there is none, or it is malformed. */
static const char *element_next(struct event_row *row, enum event_column column, size_t *len)
{
	struct elements *left = &row->left[column];
	const char *element = left->at + LENGTH_SIZE;
	int64_t length;

	if (left->len < LENGTH_SIZE)
		return NULL;
	length = binary_number(left->at, LENGTH_SIZE);
	if (length < 0 || (uint64_t)length > left->len - LENGTH_SIZE)
		return NULL; /* below 0: SQL's NULL */
	*len = (size_t)length;
	left->at = element + *len;
	left->len -= LENGTH_SIZE + *len;
	return element;
}

/* Reads the next element as a number. 0, or -1: `number` is as before. */
static int number_next(struct event_row *row, enum event_column column, int64_t *number)
{
	size_t len;
	const char *bytes = element_next(row, column, &len);

	if (!bytes)
		return -1;
	*number = binary_number(bytes, len);
	return 0;
}

/* Reads the next element as a text, if the row has the column. 0, or -1. */
static int text_next(struct event_row *row, enum event_column column, char *out, size_t size)
{
	const char *bytes;
	size_t len;

	if (!has(row, column))
		return 0;
	bytes = element_next(row, column, &len);
	if (!bytes || len >= size)
		return -1;
	memcpy(out, bytes, len);
	out[len] = '\0';
	return 0;
}

static int compare(const void *left, const void *right)
{
	const struct validity *a = left, *b = right;

	if (a->coupon != b->coupon)
		return a->coupon < b->coupon ? -1 : 1;
	return a->at_ms < b->at_ms ? -1 : a->at_ms > b->at_ms;
}

/* Begins to read a row. 0, or -1: its type is not known. */
static int row_begin(struct event_row *row, const PGresult *rows, int number)
{
	struct validity one;

	check(PQnfields(rows) == COLUMNS);
	row->rows = rows;
	row->number = number;
	row->receive = (struct receive){ 0 };
	row->at_ms = -1;
	row->history_id = 0;
	row->detail_len = 0;
	*row->received_at = *row->valid_from = *row->valid_to = *row->key = *row->reason =
		*row->trace = '\0';
	row->made_ms = number_of(row, MADE);
	clock_rfc3339(row->made_ms, row->time);
	for (enum event_column i = COUPON; i <= DETAIL; i++) {
		/* An array without elements is shorter than its head. */
		size_t len = length_of(row, i), head = len < HEAD_SIZE ? len : HEAD_SIZE;

		row->left[i] = (struct elements){ .at = text_of(row, i) + head, .len = len - head };
	}

	row->validities_n = 0;
	row->validity = NULL;
	while (number_next(row, VALID_COUPON, &one.coupon) == 0 &&
	       number_next(row, VALID_AT, &one.at_ms) == 0 &&
	       number_next(row, VALID_FROM, &one.from_ms) == 0 &&
	       number_next(row, VALID_TO, &one.to_ms) == 0) {
		one.days = 0; /* where none has days there are no elements */
		number_next(row, VALID_DAYS, &one.days);
		row->validities = array_room(row->validities, row->validities_n,
					     &row->validities_room, sizeof(one));
		row->validities[row->validities_n++] = one;
	}
	if (row->validities_n > 1)
		qsort(row->validities, row->validities_n, sizeof(one), compare);
	return event_type_parse(text_of(row, TYPE), &row->type);
}

/*
 * Sets the validity of the event that was read last: the one for its time, or else the one for any
 * time.
 */
static void validity_read(struct event_row *row)
{
	struct validity wanted = { .coupon = row->receive.coupon, .at_ms = row->at_ms };
	const struct validity *validity = row->validity;
	int64_t to_ms;

	if (row->validities_n == 0 ||
	    (validity && validity->coupon == wanted.coupon && row->validity_at_ms == row->at_ms))
		return;
	validity = bsearch(&wanted, row->validities, row->validities_n, sizeof(wanted), compare);
	wanted.at_ms = 0;
	if (!validity)
		validity = bsearch(&wanted, row->validities, row->validities_n, sizeof(wanted),
				   compare);
	row->validity = validity;
	row->validity_at_ms = row->at_ms;
	*row->valid_from = *row->valid_to = '\0';
	if (!validity)
		return;
	clock_rfc3339(validity->from_ms ? validity->from_ms : row->at_ms, row->valid_from);
	to_ms = validity->to_ms;
	if (validity->days) /* may wrap for times that no program writes */
		to_ms = (int64_t)((uint64_t)row->at_ms + (uint64_t)validity->days * DAY_MS);
	if (to_ms)
		clock_rfc3339(to_ms, row->valid_to);
}

/* Reads the next event. 0, or -1: the row is malformed. */
static int event_next(struct event_row *row)
{
	struct receive *receive = &row->receive;
	int64_t before_ms = row->at_ms, index, slot = 0;
	const char *bytes;
	size_t len;

	number_next(row, COUPON, &receive->coupon); /* a single one is that of all events */
	if (receive->coupon <= 0)
		return -1;
	if (has(row, HISTORY) && number_next(row, HISTORY, &row->history_id))
		return -1;
	if (has(row, DETAIL)) {
		row->detail = element_next(row, DETAIL, &row->detail_len);
		if (!row->detail || row->detail_len < 2)
			return -1;
	}
	if (row->type == EVENT_CHANGED)
		return 0;

	bytes = element_next(row, BATCH, &len);
	if (!bytes || len != sizeof(receive->batch.bytes))
		return -1;
	memcpy(receive->batch.bytes, bytes, len);
	bytes = element_next(row, USER, &len);
	if (!bytes || user_id_parse(&receive->user, bytes, len) ||
	    number_next(row, INDEX, &index) || (has(row, SLOT) && number_next(row, SLOT, &slot)))
		return -1;
	receive->index = (int)index;
	row->slot = (int)slot;
	if (has(row, AT) && number_next(row, AT, &row->at_ms))
		return -1;
	if (row->at_ms != before_ms)
		clock_rfc3339(row->at_ms, row->received_at);
	if (text_next(row, KEY, row->key, sizeof(row->key)) ||
	    text_next(row, REASON, row->reason, sizeof(row->reason)))
		return -1;

	/* A trace that is malformed, which no program writes, is left out. */
	bytes = has(row, TRACE) ? element_next(row, TRACE, &len) : NULL;
	*row->trace = '\0';
	if (bytes && trace_context_valid(bytes, len)) {
		memcpy(row->trace, bytes, len);
		row->trace[len] = '\0';
	}
	validity_read(row);
	return 0;
}

/* Printable ASCII as it is inside a JSON string. Returns `out`. */
static const char *escaped(const char *text, char *out)
{
	char *p = out;

	for (; *text; *p++ = *text++)
		if (*text == '"' || *text == '\\')
			*p++ = '\\';
	*p = '\0';
	return out;
}

/*
 * Writes the event and a NUL, and returns its length. The id of a receive's event is BATCH.INDEX,
 * by which the receive is unique, the type, and the number of the operation if an order has made
 * it; that of a campaign's, its row of campaign_history and the time.
 */
static size_t event_write(const struct event_row *row, const char *source, char *out)
{
	const struct receive *receive = &row->receive;
	const char *type = types[row->type];
	char batch[ULID_SIZE], user[2 * USER_ID_SIZE], key[2 * RECEIVE_KEY_MAX + 1];
	const struct {
		const char *name, *text;
	} members[] = {
		{ "received_at", row->received_at }, { "valid_from", row->valid_from },
		{ "valid_to", row->valid_to },       { "key", escaped(row->key, key) },
		{ "reason", row->reason },
	};
	char name[2 * TRACE_SIZE];
	char *p = out + sprintf(out, "{\"specversion\":\"1.0\",\"id\":\"");

	ulid_format(&receive->batch, batch);
	if (row->type == EVENT_CHANGED)
		p += sprintf(p, "campaign/%" PRId64 "/%" PRId64 "-%" PRId64, receive->coupon,
			     row->history_id, row->made_ms);
	else
		p += sprintf(p, "%s.%d/%s", batch, receive->index, strchr(type, '.') + 1);
	if (row->type != EVENT_CHANGED && has(row, HISTORY))
		p += sprintf(p, "/%" PRId64, row->history_id);
	p += sprintf(p,
		     "\",\"source\":\"%s\",\"type\":\"%s\",\"subject\":\"%" PRId64
		     "\",\"time\":\"%s\"",
		     source, type, receive->coupon, row->time);
	if (*row->trace)
		p += sprintf(p, ",\"traceparent\":\"%.*s\"", TRACE_PARENT_LEN, row->trace);
	if (*row->trace && *trace_context_name(row->trace))
		p += sprintf(p, ",\"requestid\":\"%s\"",
			     escaped(trace_context_name(row->trace), name));
	p += sprintf(p, ",\"data\":{\"coupon\":\"%" PRId64 "\"", receive->coupon);
	if (row->type != EVENT_CHANGED) {
		escaped(receive->user.text, user);
		p += sprintf(p, ",\"user\":\"%s\",\"receive\":\"%" PRId64 ".%s.%s.%d\"", user,
			     receive->coupon, user, batch, receive->index);
	}
	if (has(row, SLOT))
		p += sprintf(p, ",\"slot\":%d", row->slot);
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (*members[i].text)
			p += sprintf(p, ",\"%s\":\"%s\"", members[i].name, members[i].text);
	if (has(row, DETAIL)) /* with its last brace */
		p += sprintf(p, ",%.*s}", (int)row->detail_len - 1, row->detail + 1);
	else
		p += sprintf(p, "}}");
	return (size_t)(p - out);
}

struct packets *packets_new(const char *source, packet_fn *send, void *context)
{
	struct packets *packets = checked(calloc(1, sizeof(*packets)));

	packets->source = source;
	packets->send = send;
	packets->context = context;
	return packets;
}

static void packet_drop(struct packets *packets, struct event_packet *packet)
{
	HASH_DEL(packets->open, packet);
	free(packet->body);
	free(packet);
}

void packets_clear(struct packets *packets)
{
	while (packets->open)
		packet_drop(packets, packets->open);
}

void packets_free(struct packets *packets)
{
	if (!packets)
		return;
	packets_clear(packets);
	free(packets->row.validities);
	free(packets);
}

static void packet_end(struct packets *packets, struct event_packet *packet)
{
	packet->body[packet->len++] = ']';
	packet->body[packet->len] = '\0';
	packets->send(packets->context, packet);
	packet_drop(packets, packet);
}

/* Adds the event that was read last to a packet. */
static void event_add(struct packets *packets)
{
	const struct event_row *row = &packets->row;
	struct event_packet *packet;
	/* The user is written twice, and each of its bytes may need a backslash. */
	const size_t size_max = FIXED_SIZE + 4 * (size_t)row->receive.user.len +
				strlen(packets->source) + 2 * strlen(row->key) +
				2 * strlen(row->trace) + row->detail_len;
	size_t len;

	HASH_FIND(hh, packets->open, &row->receive.coupon, sizeof(packet->coupon), packet);
	if (packet && (packet->type != row->type || packet->events == PACKET_EVENTS_MAX ||
		       packet->len + size_max + 2 > PACKET_BYTES_MAX)) {
		packet_end(packets, packet);
		packet = NULL;
	}
	if (!packet) {
		packet = checked(calloc(1, sizeof(*packet)));
		packet->coupon = row->receive.coupon;
		packet->type = row->type;
		HASH_ADD(hh, packets->open, coupon, sizeof(packet->coupon), packet);
	}

	/* Room also for what encloses events, and for a NUL. */
	if (packet->room - packet->len < size_max + 3) {
		packet->room = 2 * (packet->len + size_max + 3);
		packet->body = checked(realloc(packet->body, packet->room));
	}
	packet->body[packet->len++] = packet->events++ ? ',' : '[';
	len = event_write(row, packets->source, packet->body + packet->len);
	check(len <= size_max);
	packet->len += len;
}

int packets_add(struct packets *packets, const PGresult *rows, int number, int64_t *id)
{
	struct event_row *row = &packets->row;
	int rc = row_begin(row, rows, number);

	*id = number_of(row, ID);
	for (int64_t left = number_of(row, NUM); rc == 0 && left > 0; left--) {
		rc = event_next(row);
		if (rc == 0)
			event_add(packets);
	}
	return rc;
}

void packets_close(struct packets *packets)
{
	while (packets->open)
		packet_end(packets, packets->open);
}

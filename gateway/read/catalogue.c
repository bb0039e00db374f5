#include "gateway/read/catalogue.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "gateway/read/coupons.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 256       /* which the loop takes at once */
#define ALL_AGAIN_MS 300000 /* then all are read again, in case something was missed */
#define FAILED_AGAIN_MS 500

struct catalogue {
	struct lookup *lookup;
	struct offered *by_id;
	struct offered **order;
	size_t n, size;
	int is_read;

	int64_t *changed; /* coupons that are to be read */
	size_t changed_n, changed_size;
	int all_are_due;
	int is_wanted;   /* a look waits, even if nothing has changed */
	int64_t all_ms;  /* when all are read again */
	int64_t next_ms; /* no read begins before; after a failure */

	/* The read that is in progress. */
	int is_reading;
	int64_t *asked; /* those of the changed ones that it reads */
	size_t asked_n, asked_size;
	uint64_t pass;             /* of a read of all */
	uint64_t begun_n, ended_n; /* reads; looks that have ended */
};

/* ---- the order */

static int order_compare(int64_t begin_ms, int64_t id, const struct offered *one)
{
	if (begin_ms != one->begin_ms)
		return begin_ms < one->begin_ms ? -1 : 1;
	return (id > one->id) - (id < one->id);
}

/* The first place whose campaign is not before this one. */
static size_t order_place(const struct catalogue *catalogue, int64_t begin_ms, int64_t id)
{
	size_t low = 0, high = catalogue->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (order_compare(begin_ms, id, catalogue->order[middle]) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

size_t catalogue_after(const struct catalogue *catalogue, int64_t begin_ms, int64_t id)
{
	size_t place = order_place(catalogue, begin_ms, id);

	return place < catalogue->n && order_compare(begin_ms, id, catalogue->order[place]) == 0
		       ? place + 1
		       : place;
}

size_t catalogue_count(const struct catalogue *catalogue)
{
	return catalogue->n;
}

struct offered *catalogue_at(const struct catalogue *catalogue, size_t place)
{
	return catalogue->order[place];
}

struct offered *catalogue_find(const struct catalogue *catalogue, int64_t id)
{
	struct offered *one;

	HASH_FIND(hh, catalogue->by_id, &id, sizeof(id), one);
	return one;
}

static void one_remove(struct catalogue *catalogue, struct offered *one)
{
	size_t place = order_place(catalogue, one->begin_ms, one->id);

	memmove(&catalogue->order[place], &catalogue->order[place + 1],
		(--catalogue->n - place) * sizeof(*catalogue->order));
	HASH_DEL(catalogue->by_id, one);
	free(one->tags);
	cJSON_free(one->members);
	free(one);
}

static void one_add(struct catalogue *catalogue, struct offered *one)
{
	size_t place = order_place(catalogue, one->begin_ms, one->id);

	catalogue->order = array_room(catalogue->order, catalogue->n, &catalogue->size,
				      sizeof(*catalogue->order));
	memmove(&catalogue->order[place + 1], &catalogue->order[place],
		(catalogue->n++ - place) * sizeof(*catalogue->order));
	catalogue->order[place] = one;
	HASH_ADD(hh, catalogue->by_id, id, sizeof(one->id), one);
}

/* ---- rows */

/* The members of the reply, as JSON without its braces. `tags` are separated by commas. */
static char *members_text(const struct offered *one, const PGresult *rows, int row, char *tags)
{
	cJSON *object = checked(cJSON_CreateObject()), *list;
	char *text, *word;

	cJSON_AddStringToObject(object, "name", column_text(rows, row, "name"));
	list = cJSON_AddArrayToObject(object, "tags");
	while ((word = strsep(&tags, ",")) != NULL)
		if (*word)
			cJSON_AddItemToArray(list, checked(cJSON_CreateString(word)));
	member_time(object, "begin", one->begin_ms);
	member_time(object, "end", one->end_ms);
	member_discount(object, rows, row);
	text = checked(cJSON_PrintUnformatted(object));
	cJSON_Delete(object);
	memmove(text, text + 1, strlen(text) - 2);
	text[strlen(text) - 2] = '\0';
	return text;
}

static void row_take(struct catalogue *catalogue, const PGresult *rows, int row)
{
	int64_t id = column_number(rows, row, "id");
	struct offered *one = catalogue_find(catalogue, id);
	const char *tags = column_text(rows, row, "tags");
	char *words = checked(strdup(tags));

	if (one)
		one_remove(catalogue, one);
	one = checked(calloc(1, sizeof(*one)));
	one->id = id;
	one->begin_ms = column_number(rows, row, "begin_ms");
	one->end_ms = column_number(rows, row, "end_ms");
	one->pass = catalogue->pass;
	one->row_ms = clock_monotonic_ms();
	check(asprintf(&one->tags, *tags ? ",%s," : "%s", tags) >= 0);
	one->members = members_text(one, rows, row, words);
	one_add(catalogue, one);
	free(words);
}

/* ---- reading */

static void page_read(struct catalogue *catalogue, int64_t after);

/*
 * The notification of a change that was committed before this read began is here by now: it came
 * before the read's answer. If such changes wait, the next read has them.
 */
static void read_end(struct catalogue *catalogue)
{
	catalogue->is_reading = 0;
	catalogue->ended_n = catalogue->begun_n -
			     (catalogue->changed_n > 0 || catalogue->all_are_due);
}

static void read_failed(struct catalogue *catalogue)
{
	catalogue->is_reading = 0;
	catalogue->all_are_due = 1;
	catalogue->next_ms = clock_monotonic_ms() + FAILED_AGAIN_MS;
}

static void on_rows(void *context, const PGresult *rows)
{
	struct catalogue *catalogue = context;
	struct offered *one;

	if (!rows) {
		read_failed(catalogue);
		return;
	}
	for (size_t i = 0; i < catalogue->asked_n; i++) {
		one = catalogue_find(catalogue, catalogue->asked[i]);
		if (one)
			one_remove(catalogue, one);
	}
	for (int row = 0; row < PQntuples(rows); row++)
		row_take(catalogue, rows, row);
	read_end(catalogue);
}

static void on_page(void *context, const PGresult *rows)
{
	struct catalogue *catalogue = context;
	struct offered *one, *next;
	int n = rows ? PQntuples(rows) : 0;

	if (!rows) {
		read_failed(catalogue);
		return;
	}
	for (int row = 0; row < n; row++)
		row_take(catalogue, rows, row);
	if (n == PAGE_ROWS) {
		page_read(catalogue, column_number(rows, n - 1, "id"));
		return;
	}
	HASH_ITER (hh, catalogue->by_id, one, next)
		if (one->pass != catalogue->pass)
			one_remove(catalogue, one);
	catalogue->is_read = 1;
	catalogue->all_ms = clock_monotonic_ms() + ALL_AGAIN_MS;
	read_end(catalogue);
}

/* A page of all, after this id. */
static void page_read(struct catalogue *catalogue, int64_t after)
{
	if (lookup_ask(catalogue->lookup, LOOKUP_OFFER_PAGE,
		       POSTGRES_ARGUMENTS(postgres_number(after), postgres_number(PAGE_ROWS)),
		       on_page, catalogue))
		read_failed(catalogue);
}

/* What has changed, as many as go in one statement. */
static void rows_read(struct catalogue *catalogue)
{
	struct postgres_array array;
	size_t n;

	catalogue->changed_n = numbers_unique(catalogue->changed, catalogue->changed_n);
	n = catalogue->changed_n < LOOKUP_MANY_MAX ? catalogue->changed_n : LOOKUP_MANY_MAX;
	postgres_array_init(&array, POSTGRES_INT8);
	catalogue->asked_n = 0;
	for (size_t i = 0; i < n; i++) {
		catalogue->asked = array_room(catalogue->asked, i, &catalogue->asked_size,
					      sizeof(*catalogue->asked));
		catalogue->asked[i] = catalogue->changed[--catalogue->changed_n];
		catalogue->asked_n++;
		postgres_array_add_number(&array, catalogue->asked[i]);
	}
	if (lookup_ask(catalogue->lookup, LOOKUP_OFFER_ROWS,
		       POSTGRES_ARGUMENTS(postgres_array(&array)), on_rows, catalogue))
		read_failed(catalogue);
}

static void on_changed(void *context, int64_t coupon)
{
	struct catalogue *catalogue = context;

	if (coupon == 0) {
		catalogue->all_are_due = 1;
		return;
	}
	catalogue->changed = array_room(catalogue->changed, catalogue->changed_n,
					&catalogue->changed_size, sizeof(*catalogue->changed));
	catalogue->changed[catalogue->changed_n++] = coupon;
}

static int is_due(const struct catalogue *catalogue, int64_t now_ms)
{
	return !catalogue->is_reading && now_ms >= catalogue->next_ms &&
	       !lookup_trouble(catalogue->lookup) &&
	       (catalogue->all_are_due || now_ms >= catalogue->all_ms || catalogue->changed_n > 0 ||
		catalogue->is_wanted);
}

void catalogue_tick(struct catalogue *catalogue, int64_t now_ms)
{
	int all = catalogue->all_are_due || now_ms >= catalogue->all_ms;

	if (!is_due(catalogue, now_ms))
		return;
	catalogue->is_reading = 1;
	catalogue->is_wanted = 0;
	catalogue->begun_n++;
	if (all) {
		catalogue->all_are_due = 0;
		catalogue->changed_n = 0;
		catalogue->pass++;
		page_read(catalogue, 0);
	} else {
		rows_read(catalogue);
	}
}

int catalogue_is_busy(const struct catalogue *catalogue)
{
	return is_due(catalogue, clock_monotonic_ms());
}

int catalogue_is_read(const struct catalogue *catalogue)
{
	return catalogue->is_read;
}

uint64_t catalogue_renew(struct catalogue *catalogue)
{
	catalogue->is_wanted = 1;
	return catalogue->begun_n + 1;
}

int catalogue_has(const struct catalogue *catalogue, uint64_t look)
{
	return catalogue->ended_n >= look || lookup_trouble(catalogue->lookup);
}

struct catalogue *catalogue_new(struct lookup *lookup)
{
	struct catalogue *catalogue = checked(calloc(1, sizeof(*catalogue)));

	catalogue->lookup = lookup;
	catalogue->all_are_due = 1;
	lookup_on_terms(lookup, on_changed, catalogue);
	return catalogue;
}

#include "ctl/distribute/book.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

struct book *book_new(const struct list *list, uint32_t settled, const int64_t counts[ENDS_N])
{
	struct book *book = calloc(1, sizeof(*book));

	check(book != NULL && settled <= list->n);
	book->list = list;
	book->n = list->n;
	book->base = book->next = book->ended_n = settled;
	memcpy(book->counts, counts, sizeof(book->counts));
	book->ends = calloc(list->n, sizeof(*book->ends)); /* END_WAITING */
	check(book->ends != NULL);
	for (uint32_t i = 0; i < BOOK_FLIGHTS_MAX; i++) {
		book->flights[i].sent_us = -1;
		book->free[book->free_n++] = BOOK_FLIGHTS_MAX - 1 - i;
	}
	for (uint32_t i = settled; i < list->n; i++)
		if (list->users[i].flaw != END_WAITING)
			book_end_unsent(book, i, list->users[i].flaw);
	return book;
}

void book_free(struct book *book)
{
	free(book->ends);
	free(book);
}

uint32_t book_inflight(const struct book *book)
{
	return BOOK_FLIGHTS_MAX - book->free_n;
}

int64_t book_next(struct book *book)
{
	if (book->again_n > 0)
		return book->again[book->again_at];
	while (book->next < book->n && book->ends[book->next] != END_WAITING)
		book->next++;
	return book->next < book->n ? (int64_t)book->next : -1;
}

uint32_t book_send(struct book *book, uint32_t connection, int64_t now_us)
{
	int64_t user = book_next(book);
	uint32_t number;

	check(user >= 0 && book->free_n > 0);
	if (book->again_n > 0) {
		book->again_at = (book->again_at + 1) % BOOK_FLIGHTS_MAX;
		book->again_n--;
	}
	number = book->free[--book->free_n];
	book->flights[number] = (struct flight){
		.user = (uint32_t)user,
		.connection = connection,
		.sent_us = now_us,
	};
	book->ends[user] = END_SENT;
	return number;
}

const struct flight *book_flight(const struct book *book, int64_t number, uint32_t connection)
{
	const struct flight *flight;

	if (number < 0 || number >= BOOK_FLIGHTS_MAX)
		return NULL;
	flight = &book->flights[number];
	return flight->sent_us >= 0 && flight->connection == connection ? flight : NULL;
}

/* Frees a number, and returns its user. */
static uint32_t flight_end(struct book *book, uint32_t number)
{
	struct flight *flight = &book->flights[number];

	check(flight->sent_us >= 0);
	flight->sent_us = -1;
	book->free[book->free_n++] = number;
	return flight->user;
}

void book_end(struct book *book, uint32_t number, enum end end)
{
	uint32_t user = flight_end(book, number);

	check(end_is_final(end) && book->ends[user] == END_SENT);
	book->ends[user] = (uint8_t)end;
	book->ended_n++;
}

void book_again(struct book *book, uint32_t number)
{
	uint32_t user = flight_end(book, number);

	/* What waits here was in flight, and nothing new is sent before it. */
	check(book->again_n < BOOK_FLIGHTS_MAX);
	book->again[(book->again_at + book->again_n++) % BOOK_FLIGHTS_MAX] = user;
}

void book_lost(struct book *book, uint32_t connection)
{
	for (uint32_t i = 0; i < BOOK_FLIGHTS_MAX; i++)
		if (book->flights[i].sent_us >= 0 && book->flights[i].connection == connection)
			book_again(book, i);
}

int64_t book_overdue(const struct book *book, int64_t before_us)
{
	for (uint32_t i = 0; i < BOOK_FLIGHTS_MAX; i++)
		if (book->flights[i].sent_us >= 0 && book->flights[i].sent_us < before_us)
			return book->flights[i].connection;
	return -1;
}

void book_end_unsent(struct book *book, uint32_t user, enum end end)
{
	check(end_is_final(end) && book->ends[user] == END_WAITING);
	book->ends[user] = (uint8_t)end;
	book->ended_n++;
}

int64_t book_settle(struct book *book)
{
	if (book->base == book->n || !end_is_final((enum end)book->ends[book->base]))
		return -1;
	book->counts[book->ends[book->base]]++;
	return book->base++;
}

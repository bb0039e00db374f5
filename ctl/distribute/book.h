/*
 * The book of a distribution: how far it is with each listed user, and what is in flight. No I/O.
 *
 *	users:  0 ……………………… base ……………………… next ……………………… n
 *	        all have ended    some have ended      not sent yet
 *
 * A request in flight has a number below BOOK_FLIGHTS_MAX, which is its id on the wire, and belongs
 * to one connection: when that ends, the request is sent again. What is to be sent again goes
 * before what was not sent yet.
 */
#ifndef CTL_DISTRIBUTE_BOOK_H
#define CTL_DISTRIBUTE_BOOK_H

#include "ctl/distribute/list.h"

#define BOOK_FLIGHTS_MAX 16384

struct flight {
	uint32_t user; /* its index in the list */
	uint32_t connection;
	int64_t sent_us; /* -1: this number is free */
};

struct book {
	const struct list *list;
	uint8_t *ends; /* enum end of each user */
	uint32_t n, base, next;
	uint32_t ended_n;
	int64_t counts[ENDS_N]; /* of the users before base */
	struct flight flights[BOOK_FLIGHTS_MAX];
	uint32_t free[BOOK_FLIGHTS_MAX], free_n; /* numbers */
	uint32_t again[BOOK_FLIGHTS_MAX], again_at, again_n;
};

/* Begins with the users from `settled` on; `counts` has the ends of those before. */
struct book *book_new(const struct list *list, uint32_t settled, const int64_t counts[ENDS_N]);
void book_free(struct book *book);

uint32_t book_inflight(const struct book *book);

/* The next user to be sent, or -1: all are sent. It stays the next until book_send(). */
int64_t book_next(struct book *book);
/* Sends it: there must be one, and less in flight than BOOK_FLIGHTS_MAX. Returns its number. */
uint32_t book_send(struct book *book, uint32_t connection, int64_t now_us);

/* The request in flight with this number; NULL: there is none on this connection. */
const struct flight *book_flight(const struct book *book, int64_t number, uint32_t connection);

/* The request has ended, or is to be sent again. */
void book_end(struct book *book, uint32_t number, enum end end);
void book_again(struct book *book, uint32_t number);
/* All requests of a connection are to be sent again. */
void book_lost(struct book *book, uint32_t connection);

/* The connection of a request that was sent before `before_us`, or -1. */
int64_t book_overdue(const struct book *book, int64_t before_us);

/* A user that was not sent has ended. */
void book_end_unsent(struct book *book, uint32_t user, enum end end);

/*
 * Takes the user at base, if it has ended, and moves base behind it. Returns its index, or -1.
 */
int64_t book_settle(struct book *book);

#endif

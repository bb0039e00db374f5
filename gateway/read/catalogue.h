/*
 * The campaigns that are on offer, as PostgreSQL has them: published, not hidden, and not ended. In
 * the order of their begin and id. Event-loop thread only.
 *
 *	a new connection, every 5 min ─▶ offer_page, all of them ─┐
 *	a notification of changed terms ─▶ offer_rows, of these ──┴─▶ the catalogue
 *
 * While PostgreSQL is away or not trusted, it stays as it was read last.
 */
#pragma once

#include "common/hash.h"
#include "gateway/read/lookup.h"

struct offered {
	int64_t id; /* the coupon's */
	UT_hash_handle hh;
	int64_t begin_ms, end_ms; /* 0: no bound */
	char *tags;               /* ",noon,winter,", or "" */
	char *members;            /* of the reply: what does not change with the stock */
	uint64_t pass;            /* in which it was read from PostgreSQL */
	int64_t row_ms;           /* when that was, by the monotonic clock */

	/* For offers.c: what Redis had, not before read_ms of the monotonic clock; 0: not read. */
	int64_t read_ms;
	const char *state; /* NULL: it could not be told */
	int64_t total, stock, limit;
};

struct catalogue;

struct catalogue *catalogue_new(struct lookup *lookup);
void catalogue_tick(struct catalogue *catalogue, int64_t now_ms);
int catalogue_is_busy(const struct catalogue *catalogue); /* the next tick is urgent */
int catalogue_is_read(const struct catalogue *catalogue); /* once at least */

/*
 * Reads what has changed, and returns the number of this look. The second tells whether it has
 * ended: the catalogue has what was committed before the look began. Without PostgreSQL there is
 * nothing to wait for.
 */
uint64_t catalogue_renew(struct catalogue *catalogue);
int catalogue_has(const struct catalogue *catalogue, uint64_t look);

/* By the order: how many there are, one of them, and the first place after this one. */
size_t catalogue_count(const struct catalogue *catalogue);
struct offered *catalogue_at(const struct catalogue *catalogue, size_t place);
size_t catalogue_after(const struct catalogue *catalogue, int64_t begin_ms, int64_t id);
struct offered *catalogue_find(const struct catalogue *catalogue, int64_t id); /* NULL: none */

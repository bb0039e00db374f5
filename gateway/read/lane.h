/*
 * What waits to be looked up, oldest first: queries, each a statement of its own, or coupons or
 * receives, of which many go into one statement. Requests for one coupon share its look-up until it
 * is taken to be sent. Part of lookup.
 */
#pragma once

#include "common/hash.h"
#include "common/postgres/argument.h"

#include <libpq-fe.h>
#include <stdint.h>
#include <sys/queue.h>

/* The rows, lent; NULL: the look-up failed. */
typedef void lookup_fn(void *context, const PGresult *rows);
/* The rows, lent, of several receives: `n` of this one, from `row` on. NULL: the look-up failed. */
typedef void lookup_receive_fn(void *context, const PGresult *rows, int row, int n);

#define LANE_ARGUMENTS_MAX 6

struct lane_query;

struct lane_entry {
	STAILQ_ENTRY(lane_entry) next;
	int64_t queued_ms;
	const struct lane_query *query; /* its statement */
	STAILQ_HEAD(, lane_asker) askers;
	int n;
	struct postgres_argument arguments[LANE_ARGUMENTS_MAX];
	struct postgres_array array; /* of the one argument that is an array */
	int64_t coupon;              /* 0: a query, or a receive */
	struct receive receive;      /* its coupon 0: a query, or a coupon */
	UT_hash_handle hh;           /* while it waits */
};

STAILQ_HEAD(lane_list, lane_entry);

struct lane {
	size_t max, n;
	struct lane_list entries;
	struct lane_entry *by_coupon; /* the same coupons */
};

void lane_init(struct lane *lane, size_t max);

/*
 * 0, or -1 when too many wait. `coupon`: the one argument of a statement for many, or 0. Texts are
 * copied; the memory of an array, of which there is one argument at most, is taken over.
 */
int lane_add(struct lane *lane, const struct lane_query *query, int64_t coupon, int n,
	     const struct postgres_argument *arguments, lookup_fn *done, void *context);
/*
 * 0, or -1 when too many wait. The receive is copied. Rows of the statement have a column `ord`,
 * which counts the receives from 1, and are in its order.
 */
int lane_add_receive(struct lane *lane, const struct lane_query *query,
		     const struct receive *receive, lookup_receive_fn *done, void *context);

/*
 * Moves the first `n` at most that were queued before `before_ms` to the end of `to`. Returns how
 * many.
 */
size_t lane_take(struct lane *lane, size_t n, int64_t before_ms, struct lane_list *to);
/* Reports to everyone who asked, and frees the entries. Rows NULL: the look-up failed. */
void lane_list_end(struct lane_list *list, const PGresult *rows);

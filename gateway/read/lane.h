/*
 * What waits to be looked up, oldest first: queries, each a statement of its own, and coupons, of
 * which many go into one statement. Requests for one coupon share its look-up until it is taken to
 * be sent. Part of lookup.
 */
#ifndef GATEWAY_READ_LANE_H
#define GATEWAY_READ_LANE_H

#include "common/hash.h"
#include "common/postgres/argument.h"

#include <libpq-fe.h>
#include <stdint.h>
#include <sys/queue.h>

/* The rows, lent; NULL: the look-up failed. */
typedef void lookup_fn(void *context, const PGresult *rows);
/* The number of the coupon's row; -1: there is no such coupon. Rows NULL: the look-up failed. */
typedef void lookup_coupon_fn(void *context, const PGresult *rows, int row);

#define LANE_ARGUMENTS_MAX 5

struct lane_query {
	STAILQ_ENTRY(lane_query) next;
	const char *sql;
	int n;
	struct postgres_argument arguments[LANE_ARGUMENTS_MAX];
	int is_routine;              /* set by the caller: not counted */
	struct postgres_array array; /* of the one argument that is an array */
	lookup_fn *done;
	void *context;
	int64_t queued_ms;
};

STAILQ_HEAD(lane_query_list, lane_query);

/* Copies texts. The memory of an array, of which there is one at most, is taken over. */
struct lane_query *lane_query_new(const char *sql, int n, const struct postgres_argument *arguments,
				  lookup_fn *done, void *context);
void lane_query_free(struct lane_query *query);

struct coupon_asker {
	STAILQ_ENTRY(coupon_asker) next;
	lookup_coupon_fn *done;
	void *context;
};

struct coupon_entry {
	int64_t id;
	int64_t queued_ms;
	UT_hash_handle hh; /* while it waits */
	STAILQ_ENTRY(coupon_entry) next;
	STAILQ_HEAD(, coupon_asker) askers;
};

STAILQ_HEAD(coupon_list, coupon_entry);

struct lane {
	size_t max; /* queries, and coupons */
	size_t queries_n;
	struct lane_query_list queries;
	struct coupon_list coupons;
	struct coupon_entry *by_id; /* the same coupons */
};

void lane_init(struct lane *lane, size_t max);
size_t lane_waiting(const struct lane *lane);

/* Takes the query over. 0, or -1 when too many wait: it is freed. */
int lane_add(struct lane *lane, struct lane_query *query);
/* The oldest one that was queued before `before_ms`, which the caller then owns; NULL: none. */
struct lane_query *lane_take(struct lane *lane, int64_t before_ms);

/* 0, or -1 when too many other coupons wait. */
int lane_add_coupon(struct lane *lane, int64_t coupon, int64_t now_ms, lookup_coupon_fn *done,
		    void *context);
/* Moves the first `n` at most that were queued before `before_ms` to the end of `to`. */
void lane_take_coupons(struct lane *lane, size_t n, int64_t before_ms, struct coupon_list *to);
/* Reports to everyone who asked, and frees the entries. Rows NULL: the look-up failed. */
void coupon_list_end(struct coupon_list *list, const PGresult *rows);

#endif

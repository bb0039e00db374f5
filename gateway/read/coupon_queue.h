/*
 * The coupons that wait to be looked up, oldest first. Requests for one coupon share its look-up
 * until it is taken to be sent. Part of lookup.
 */
#ifndef GATEWAY_READ_COUPON_QUEUE_H
#define GATEWAY_READ_COUPON_QUEUE_H

#include "common/hash.h"

#include <libpq-fe.h>
#include <stdint.h>
#include <sys/queue.h>

/* The number of the coupon's row; -1: there is no such coupon. Rows NULL: the look-up failed. */
typedef void lookup_coupon_fn(void *context, const PGresult *rows, int row);

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

struct coupon_queue {
	struct coupon_list waiting;
	struct coupon_entry *by_id; /* the same entries */
	size_t max;
};

void coupon_queue_init(struct coupon_queue *queue, size_t max);
/* 0, or -1 when `max` other coupons wait. */
int coupon_queue_add(struct coupon_queue *queue, int64_t coupon, int64_t now_ms,
		     lookup_coupon_fn *done, void *context);
int coupon_queue_is_empty(const struct coupon_queue *queue);

/* Moves the first `n` at most that were queued before `before_ms` to the end of `to`. */
void coupon_queue_take(struct coupon_queue *queue, size_t n, int64_t before_ms,
		       struct coupon_list *to);

/* Reports to everyone who asked, and frees the entries. Rows NULL: the look-up failed. */
void coupon_list_end(struct coupon_list *list, const PGresult *rows);

#endif

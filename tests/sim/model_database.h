/* PostgreSQL as couponmq uses it: the effects of settle(), one transaction after another. */
#pragma once

#include "tests/sim/model_redis.h"

#define ROWS_MAX 4096
#define POISON_COUPON 666 /* settle() refuses a transaction that contains it */

struct row {
	struct receive receive;
	int slot;
};

struct database_coupon {
	int exists, published;
	int64_t total, issued;
	int limit;
	int64_t generation, seq_seen, settled;
};

static struct {
	struct database_coupon coupons[COUPONS];
	struct row rows[ROWS_MAX], rejected[ROWS_MAX];
	size_t rows_n, rejected_n;
} database;

static struct database_coupon *database_coupon(int64_t id)
{
	struct database_coupon *coupon = id >= COUPON_FIRST && id < COUPON_FIRST + COUPONS
						 ? &database.coupons[id - COUPON_FIRST]
						 : NULL;

	return coupon && coupon->exists ? coupon : NULL;
}

static int receive_same(const struct receive *a, const struct receive *b)
{
	return a->coupon == b->coupon && a->index == b->index && ulid_same(&a->batch, &b->batch);
}

static const struct row *row_find(const struct row *rows, size_t n, const struct receive *receive)
{
	for (size_t i = 0; i < n; i++)
		if (receive_same(&rows[i].receive, receive))
			return &rows[i];
	return NULL;
}

static const struct row *row_issued(const struct receive *receive)
{
	return row_find(database.rows, database.rows_n, receive);
}

static const struct row *row_rejected(const struct receive *receive)
{
	return row_find(database.rejected, database.rejected_n, receive);
}

static const struct row *row_holder(const struct receive *receive, int slot)
{
	for (size_t i = 0; i < database.rows_n; i++) {
		const struct row *row = &database.rows[i];

		if (user_id_same(&row->receive.user, &receive->user) &&
		    row->receive.coupon == receive->coupon && row->slot == slot)
			return row;
	}
	return NULL;
}

enum settled { SETTLED_ISSUED, SETTLED_REPEATED, SETTLED_REJECTED };

static enum settled database_settle_one(const struct receive *receive, int slot, int64_t generation,
					int64_t seq)
{
	struct database_coupon *coupon = database_coupon(receive->coupon);
	int good = coupon && slot >= 1 && slot <= coupon->limit;

	if (row_rejected(receive))
		return SETTLED_REJECTED;
	if (row_issued(receive))
		return SETTLED_REPEATED;
	if (coupon && coupon->generation == generation) {
		coupon->settled++;
		if (seq > coupon->seq_seen)
			coupon->seq_seen = seq;
	}
	if (!good || row_holder(receive, slot) || coupon->issued >= coupon->total) {
		assert_true(database.rejected_n < ROWS_MAX);
		database.rejected[database.rejected_n++] = (struct row){ *receive, slot };
		return SETTLED_REJECTED;
	}
	assert_true(database.rows_n < ROWS_MAX);
	database.rows[database.rows_n++] = (struct row){ *receive, slot };
	coupon->issued++;
	return SETTLED_ISSUED;
}

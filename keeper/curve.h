/*
 * The curves of coupons: how their sales go, in rows of PostgreSQL (sql/schema/curve.sql) that the
 * sweeps of the keeper write of what they have read anyway, and of what gateways have refused,
 * which Redis collects (lua/refused.lua). Nothing depends on them: while no keeper is elected, or a
 * statement fails, rows and counts are missing. The keeper's thread.
 */
#pragma once

#include "keeper/context.h"

/*
 * What is known of the last row of a coupon, so that PostgreSQL is asked only for another one. Of
 * two coupons that share an entry the later replaces the earlier one.
 */
#define CURVE_COUPONS 4096

struct curve_coupon {
	int64_t coupon;
	struct curve_point {
		int64_t total, stock, taken, issued, settled;
	} told;         /* as PostgreSQL was told last */
	int is_known;   /* it was told */
	int is_changed; /* a row is due: that came too early, or more was refused since */
	int64_t due_ms; /* no row is added before */
};

/* All zero at first. */
struct curve {
	struct curve_coupon coupons[CURVE_COUPONS];
	int is_due;         /* this sweep adds rows */
	int64_t due_ms;     /* the next sweep that does */
	int64_t again_ms;   /* after PostgreSQL has refused them: no row is added before */
	int64_t tidy_ms;    /* the next removal of old rows */
	int64_t refused_ms; /* when refusals are taken next */
	int64_t writes;     /* to Redis, of refusals */
};

/*
 * Once a second: adds what gateways have refused to the counts of the coupons. 0, or -1: Redis or
 * PostgreSQL is lost.
 */
int curve_refused(struct curve *curve, struct keeper_context *context);

/* A sweep begins. Rows that are too old are removed from time to time. */
void curve_begin(struct curve *curve, struct keeper_context *context);
/*
 * Adds the rows of a page's coupons, in one statement if one of them is to be added. 0, or -1:
 * PostgreSQL is lost.
 */
int curve_add(struct curve *curve, struct keeper_context *context, const struct coupon_page *page);

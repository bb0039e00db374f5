/*
 * The read operations `coupon` and `coupons`. `coupon` reads Redis, or PostgreSQL (which may be a
 * replica) where Redis does not hold the coupon. `coupons` reads a page of a user's coupons from
 * PostgreSQL, which may be a replica.
 */
#ifndef GATEWAY_READ_COUPONS_H
#define GATEWAY_READ_COUPONS_H

#include "gateway/listen/request.h"
#include "gateway/read/lookup.h"
#include "gateway/read/status.h"

/*
 * What coupons give to users, their discount and metadata, as far as a process remembers it by the
 * version of their terms, up to a limit. What is not remembered is looked up, each coupon once at a
 * time, in PostgreSQL, which may be a replica. Event-loop thread only.
 */

struct offers;

struct offers *offers_new(struct lookup *reads);

/* Each takes the request. */
void coupon_answer(const struct status_parts *parts, struct request *request);
void coupons_answer(struct lookup *reads, struct request *request);

/* What lookup_coupon() found, in the form of admission and the `coupon` operation. */
enum coupon_state coupon_state_of(const PGresult *rows, int row);

#endif

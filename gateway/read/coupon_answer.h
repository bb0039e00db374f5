/*
 * The read operation `coupon`: reads Redis, or PostgreSQL (which may be a replica) where Redis does
 * not hold the coupon.
 */
#ifndef GATEWAY_READ_COUPON_ANSWER_H
#define GATEWAY_READ_COUPON_ANSWER_H

#include "gateway/read/status.h"

void coupon_answer(const struct status_parts *parts, struct request *request); /* takes it */

/*
 * What lookup_coupon() found, in the form of admission and the `coupon` operation.
 */
enum coupon_state coupon_state_of(const PGresult *rows, int row);

#endif

/*
 * The read operation `coupons`: a page of a user's coupons from PostgreSQL, which may be a replica.
 */
#ifndef GATEWAY_READ_COUPONS_ANSWER_H
#define GATEWAY_READ_COUPONS_ANSWER_H

#include "gateway/listen/request.h"
#include "gateway/read/lookup.h"

void coupons_answer(struct lookup *reads, struct request *request); /* takes the request */

#endif

/*
 * The read operation `quote`: what the terms of a coupon take off an amount, from PostgreSQL, which
 * may be a replica.
 */
#pragma once

#include "gateway/listen/request.h"
#include "gateway/read/lookup.h"

void quote_answer(struct lookup *reads, struct request *request); /* takes the request */

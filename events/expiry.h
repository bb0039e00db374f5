/*
 * Writes the events coupon.expiring of campaigns that ask for them, in a thread: a step reads all
 * user coupons of a campaign, and nothing waits for it. Only the keeper's worker does so, and only
 * it has a connection for it.
 */
#pragma once

#include "common/program/config.h"

struct expiry;

/* Starts the thread. `config` must outlive it. */
struct expiry *expiry_start(const struct config *config);
/* Stops the thread. Abandons a step under way; PostgreSQL may still commit it, as a whole. */
void expiry_stop(struct expiry *expiry);

/*
 * Writes the events coupon.expiring of campaigns that ask for them, in a thread: a step reads all
 * user coupons of a campaign, and nothing waits for it. The keeper's worker alone does so, and has a
 * connection for it meanwhile.
 */
#pragma once

#include "common/program/config.h"

struct expiry;

/* Starts the thread. `config` must outlive it. */
struct expiry *expiry_start(const struct config *config);
/* Stops the thread. A step that runs is broken off: it is done again, as if it had not begun. */
void expiry_stop(struct expiry *expiry);

/*
 * Sends the deliveries that are queued for webhooks, in a thread. It never makes the loop or the
 * keeper wait: it shares no connection and no lock with them.
 */
#pragma once

#include "common/program/config.h"
#include "events/endpoint.h"

struct webhooks;

/* Both must outlive it. A worker that by its settings sends nothing still removes what expires. */
struct webhooks *webhooks_start(const struct config *config, const struct rules *rules);
/* Waits up to two seconds for what is being sent; the rest is sent again by another worker. */
void webhooks_stop(struct webhooks *webhooks);

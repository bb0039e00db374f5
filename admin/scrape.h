/*
 * What gateways and workers tell of themselves: /metrics and /readyz of each of
 * COUPON_ADMIN_METRICS, all at once. One thread, which waits at most a second for the slowest.
 */
#pragma once

#include "common/program/config.h"

#include <cjson/cJSON.h>

#define SCRAPE_DESCRIPTORS 2 /* for each of them: a connection for each page */

struct scrape;

/*
 * Ends the process with a sentence unless COUPON_ADMIN_METRICS is a list of host:port, and
 * COUPON_GATEWAY_KEY would not be sent to another machine in the clear. Returns how many there are.
 */
unsigned scrape_check(const struct config *config);

struct scrape *scrape_new(const struct config *config);
void scrape_free(struct scrape *scrape);

/*
 * For cJSON_Delete(). A label's value is the name of a member; `kind` is null until it has
 * answered once, `readyz` is null where it does not.
 *
 *	[{"address":"127.0.0.1:7480","kind":"gateway","error":null,"readyz":{"ready":true,…},
 *	  "metrics":{"requests_inflight":3,"answers_total":{"ok":17,"busy":2},…}},…]
 */
cJSON *scrape_read(struct scrape *scrape);
/* Closes the connections, which are kept otherwise. */
void scrape_rest(struct scrape *scrape);

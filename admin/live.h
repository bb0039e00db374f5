/*
 * What goes on, once a second, as server-sent events: for those who look, the same for all of them.
 * A thread asks PostgreSQL, Redis, and what COUPON_ADMIN_METRICS names. While nobody looks it
 * sleeps, without connections.
 *
 *	thread: stores, scrape ──▶ sample ──eventfd──▶ loop ──▶ each who looks
 *
 * A sample has at most LIVE_NEAR active campaigns, and those that clients have asked for:
 *
 *	{"at":"…","stores":{"postgresql":{"error":null,"us":412},"redis":{…}},"processes":[…],
 *	 "states":{"issuing":3,…},"campaigns":[{"coupon":"1001","name":"Noon","state":"issuing",
 *	 "total":100,"issued":40,"in_flight":2,…,"redis":{"stock":58,…}},…]}
 *
 * `processes` are those of scrape.h; `redis` is null where Redis does not have the campaign. What a
 * store does not tell is null.
 */
#pragma once

#include "common/program/config.h"

#include <event2/event.h>
#include <event2/http.h>

#define LIVE_NEAR 40
#define LIVE_LOOKERS_MAX 100
#define LIVE_LOOKERS_OF_KEY_MAX 20
#define LIVE_ASKED_MAX 100        /* campaigns, by one who looks */
#define LIVE_ASKED_OF_KEY_MAX 200 /* by all with one key */
#define LIVE_ALL_MAX 500          /* by all of them */

struct live;

/* Whether he who sent the request may go on looking. Asked before each event. */
typedef int live_may_fn(void *context, struct evhttp_request *request);

struct live *live_start(struct event_base *base, const struct config *config, live_may_fn *may,
			void *context);
/* Before the requests are gone. */
void live_stop(struct live *live);

/*
 * Answers the request with events until its client goes or may no longer look, or, with `once`,
 * with one sample. `key`: the id of the client's key, or the client's name; `coupons`: the ids that
 * it asks for, joined by commas, or "". 0, or what HTTP status to refuse it with, 400 or 503, and
 * why (a constant).
 */
int live_look(struct live *live, struct evhttp_request *request, const char *key,
	      const char *coupons, int once, const char **why);

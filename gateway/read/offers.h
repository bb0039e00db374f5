/*
 * What coupons give to users, their discount and metadata, as far as a process remembers it by the
 * version of their terms, up to a limit. What is not remembered is looked up, each coupon once at a
 * time, in PostgreSQL, which may be a replica. Event-loop thread only.
 */
#ifndef GATEWAY_READ_OFFERS_H
#define GATEWAY_READ_OFFERS_H

#include "gateway/read/lookup.h"

#include <cjson/cJSON.h>

#define OFFERS_MAX 4096      /* coupons that are remembered */
#define OFFERS_KEEP_MS 10000 /* then one is read again, in case PostgreSQL was put back */
#define OFFERS_AGAIN_MS 1000 /* as long as PostgreSQL does not have the version, or failed */

struct offers;

/* The members for a reply, lent; NULL: they are not known. */
typedef void offer_fn(void *context, const cJSON *members);

struct offers *offers_new(struct lookup *reads);
/* After the look-ups have ended. */
void offers_free(struct offers *offers);

/*
 * Ends in `done`, possibly within the call. The members belong to that version or to a later one,
 * and to an earlier one only while the replica is behind. Nobody waits for a PostgreSQL that failed
 * before.
 */
void offers_ask(struct offers *offers, int64_t coupon, int64_t version, offer_fn *done,
		void *context);

#endif

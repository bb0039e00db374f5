#include "gateway/read/offers.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "gateway/read/row.h"

#include <stdlib.h>
#include <sys/queue.h>

struct asker {
	STAILQ_ENTRY(asker) next;
	int64_t version; /* of the terms that it wants */
	offer_fn *done;
	void *context;
};

struct offer {
	int64_t id; /* of the coupon */
	UT_hash_handle hh;
	TAILQ_ENTRY(offer) by_use;
	int64_t version; /* of the members; 0: they were never read */
	cJSON *members;
	int64_t asked_for; /* version, by the last look-up */
	int has_failed;    /* it did */
	int64_t ended_ms;  /* when it ended */
	int is_asked;      /* a look-up is in progress: the offer is not forgotten */
	STAILQ_HEAD(, asker) askers;
};

struct offers {
	struct lookup *reads;
	struct offer *by_id;
	TAILQ_HEAD(, offer) by_use; /* least recently used first */
};

struct offers *offers_new(struct lookup *reads)
{
	struct offers *offers = calloc(1, sizeof(*offers));

	check(offers != NULL);
	offers->reads = reads;
	TAILQ_INIT(&offers->by_use);
	return offers;
}

static void offer_forget(struct offers *offers, struct offer *offer)
{
	check(!offer->is_asked);
	HASH_DEL(offers->by_id, offer);
	TAILQ_REMOVE(&offers->by_use, offer, by_use);
	cJSON_Delete(offer->members);
	free(offer);
}

void offers_free(struct offers *offers)
{
	struct offer *offer;

	if (!offers)
		return;
	while ((offer = TAILQ_FIRST(&offers->by_use)))
		offer_forget(offers, offer);
	free(offers);
}

/* For a new one the least recently used is forgotten. NULL: it is being looked up. */
static struct offer *offer_add(struct offers *offers, int64_t coupon)
{
	struct offer *offer = TAILQ_FIRST(&offers->by_use);

	if (HASH_COUNT(offers->by_id) >= OFFERS_MAX) {
		if (offer->is_asked)
			return NULL;
		offer_forget(offers, offer);
	}
	offer = calloc(1, sizeof(*offer));
	check(offer != NULL);
	offer->id = coupon;
	STAILQ_INIT(&offer->askers);
	HASH_ADD(hh, offers->by_id, id, sizeof(offer->id), offer);
	TAILQ_INSERT_TAIL(&offers->by_use, offer, by_use);
	return offer;
}

static struct offer *offer_get(struct offers *offers, int64_t coupon)
{
	struct offer *offer;

	HASH_FIND(hh, offers->by_id, &coupon, sizeof(coupon), offer);
	if (!offer)
		return offer_add(offers, coupon);
	TAILQ_REMOVE(&offers->by_use, offer, by_use);
	TAILQ_INSERT_TAIL(&offers->by_use, offer, by_use);
	return offer;
}

/* Members of an older version are shown if they are all that PostgreSQL has, not if it failed. */
static const cJSON *members_known(const struct offer *offer, int64_t version)
{
	return offer->version >= version || !offer->has_failed ? offer->members : NULL;
}

static void offer_read(struct offer *offer, const PGresult *rows)
{
	offer->ended_ms = clock_monotonic_ms();
	offer->has_failed = !rows || PQntuples(rows) == 0;
	if (offer->has_failed)
		return;
	cJSON_Delete(offer->members);
	offer->members = cJSON_CreateObject();
	check(offer->members != NULL);
	offer->version = column_number(rows, 0, "version");
	member_offer(offer->members, rows, 0);
}

static void on_offer(void *context, const PGresult *rows)
{
	struct offer *offer = context;
	struct asker *asker;

	offer_read(offer, rows);
	while ((asker = STAILQ_FIRST(&offer->askers))) {
		STAILQ_REMOVE_HEAD(&offer->askers, next);
		asker->done(asker->context, members_known(offer, asker->version));
		free(asker);
	}
	offer->is_asked = 0; /* from here on it may be forgotten */
}

static void asker_add(struct offer *offer, int64_t version, offer_fn *done, void *context)
{
	struct asker *asker = malloc(sizeof(*asker));

	check(asker != NULL);
	*asker = (struct asker){ .version = version, .done = done, .context = context };
	STAILQ_INSERT_TAIL(&offer->askers, asker, next);
}

/* Whether PostgreSQL is to be asked now: for that version, or whether there is another one. */
static int is_due(const struct offer *offer, int64_t version)
{
	int64_t after_ms = offer->version < version ? OFFERS_AGAIN_MS : OFFERS_KEEP_MS;

	return !offer->is_asked &&
	       (offer->asked_for < version || clock_monotonic_ms() - offer->ended_ms >= after_ms);
}

void offers_ask(struct offers *offers, int64_t coupon, int64_t version, offer_fn *done,
		void *context)
{
	struct offer *offer = offer_get(offers, coupon);
	int had_failed;

	if (!offer) {
		done(context, NULL);
		return;
	}
	had_failed = offer->has_failed;
	if (is_due(offer, version)) {
		offer->asked_for = version;
		if (lookup_offer(offers->reads, coupon, on_offer, offer))
			offer_read(offer, NULL);
		else
			offer->is_asked = 1;
	}
	if (offer->is_asked && offer->version < version && !had_failed)
		asker_add(offer, version, done, context);
	else
		done(context, members_known(offer, version));
}

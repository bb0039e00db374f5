#include "keeper/metrics.h"

#include "common/log/log.h"
#include "common/rabbit/topology.h"

#include <pthread.h>
#include <string.h>

_Static_assert(KEEPER_METRIC_PLACES <= METRICS_MAX, "each has a place");

static const struct metric_row metrics[] = {
#define METRIC(name, text, type, help) { text, type, help },
#include "keeper/metric_table.h"
#undef METRIC
};

const char *const watch_queues[RESEND_QUEUES] = { [RESEND_RECEIVES] = AMQP_QUEUE,
						  [RESEND_PARKED] = AMQP_PARKED_QUEUE,
						  [RESEND_DEAD] = AMQP_DEAD_QUEUE };

/* What keeper_watch_publish() found last. */
static struct {
	pthread_mutex_t mutex;
	struct watch_campaign list[WATCH_CAMPAIGNS];
	size_t n;
} campaigns = { .mutex = PTHREAD_MUTEX_INITIALIZER };

void keeper_metrics_prometheus(struct evbuffer *out)
{
	static const char *const states[] = {
#define STATE(name, text) [name] = text,
		WATCH_STATES(STATE)
#undef STATE
	};
	static const struct metric_row rows[] = {
#define VALUE(name, text, help) [name] = { text, "gauge", help },
		CAMPAIGN_VALUES(VALUE)
#undef VALUE
	};
	char coupon[NUMBER_SIZE];

	exposition_table(out, metrics, KEEPER_METRIC_END - METRICS_KEEPER, METRICS_KEEPER);
	exposition_head(out, "keeper_coupons", "gauge",
			"Watched coupons by state, while this worker is the keeper.");
	for (unsigned i = 0; i < WATCH_STATE_COUNT; i++)
		exposition_labelled(out, "keeper_coupons", "state", states[i],
				    KEEPER_METRIC_COUPONS + i);
	exposition_head(out, "keeper_queue_messages", "gauge",
			"Messages of a queue that no worker holds, while this worker is the "
			"keeper.");
	for (unsigned i = 0; i < RESEND_QUEUES; i++)
		exposition_labelled(out, "keeper_queue_messages", "queue", watch_queues[i],
				    KEEPER_METRIC_QUEUES + i);

	pthread_mutex_lock(&campaigns.mutex);
	for (size_t value = 0; value < CAMPAIGN_VALUE_COUNT; value++) {
		exposition_head(out, rows[value].name, rows[value].type, rows[value].help);
		for (size_t i = 0; i < campaigns.n; i++)
			exposition_value(out, rows[value].name, "coupon",
					 number_text(campaigns.list[i].coupon, coupon),
					 campaigns.list[i].values[value]);
	}
	pthread_mutex_unlock(&campaigns.mutex);
}

void keeper_watch_begin(struct keeper_watch *watch)
{
	watch->sweep++;
	watch->sums = (struct watch_sums){ 0 };
}

/*
 * The numbers of a coupon do not add up. It is logged and counted when that was so in WATCH_LOOKS
 * sweeps in a row.
 */
static void suspect_add(struct keeper_watch *watch, const struct coupon_row *row,
			const struct coupon_look *look, int64_t known)
{
	struct watch_suspect *suspect = &watch->suspects[row->id % WATCH_SUSPECTS];
	int is_old = suspect->sweep < watch->sweep - 1;

	if (suspect->coupon != row->id && !is_old)
		return; /* another suspect of this sweep or the last one uses the entry */
	if (is_old)
		*suspect = (struct watch_suspect){ .coupon = row->id };
	suspect->sweep = watch->sweep;
	if (suspect->looks < WATCH_LOOKS && ++suspect->looks == WATCH_LOOKS)
		log_error("coupon_unequal", LOG_I("coupon", row->id), LOG_I("total", look->total),
			  LOG_I("stock", look->stock), LOG_I("reserved", look->reserved),
			  LOG_I("lost", look->lost), LOG_I("seq", look->seq),
			  LOG_I("issued", row->issued), LOG_I("settled", row->settled),
			  LOG_I("known", known));
	watch->sums.of[KEEPER_METRIC_UNEQUAL] += suspect->looks == WATCH_LOOKS;
}

/* The place of a campaign among those that are told; NULL: there is none for it. */
static struct watch_campaign *campaign_place(struct keeper_watch *watch, int64_t coupon,
					     int is_busy, int64_t now_ms)
{
	struct watch_campaign *place = watch->campaigns;

	for (size_t i = 0; i < watch->campaigns_n; i++) {
		struct watch_campaign *campaign = &watch->campaigns[i];

		if (campaign->coupon == coupon)
			return campaign;
		if (campaign->busy_ms < place->busy_ms)
			place = campaign;
	}
	if (watch->campaigns_n < WATCH_CAMPAIGNS)
		place = &watch->campaigns[watch->campaigns_n++];
	else if (!is_busy || now_ms - place->busy_ms < WATCH_IDLE_MS)
		return NULL;
	*place = (struct watch_campaign){ .coupon = coupon };
	return place;
}

int keeper_watch_add(struct keeper_watch *watch, struct redis_client *redis, const char *run_id,
		     const struct coupon_row *row, const struct coupon_look *look, int64_t now_ms)
{
	int is_verified = coupon_is_verified(row, look, run_id);
	struct watch_campaign *campaign;
	int64_t *of = watch->sums.of, in_flight, known = 0;
	enum watch_state state;

	if (row->status == COUPON_CLOSED)
		state = WATCH_CLOSED;
	else if (!is_verified)
		state = WATCH_UNAVAILABLE;
	else if (row->status == COUPON_PAUSED)
		state = WATCH_PAUSED;
	else
		state = now_ms < row->begin_ms ? WATCH_NOT_STARTED : WATCH_OPEN;
	watch->sums.states[state]++;
	of[KEEPER_METRIC_UNFREED] += row->pending;
	of[KEEPER_METRIC_OUTBOX] += look->outbox_n;
	if (!is_verified)
		return 0;

	/*
	 * PostgreSQL was read first: receives that were settled since then count as in flight until
	 * the next sweep.
	 */
	in_flight = look->reserved + (look->seq > row->settled ? look->seq - row->settled : 0);
	of[KEEPER_METRIC_IN_FLIGHT] += in_flight;
	of[KEEPER_METRIC_RESERVED] += look->reserved;
	of[KEEPER_METRIC_LOST] += look->lost;
	campaign = campaign_place(watch, row->id, in_flight > 0, now_ms);
	if (campaign) {
		if (in_flight > 0 || campaign->values[CAMPAIGN_ISSUED] != row->issued)
			campaign->busy_ms = now_ms;
		campaign->sweep = watch->sweep;
		campaign->values[CAMPAIGN_OFFERED] = row->total;
		campaign->values[CAMPAIGN_STOCK] = look->stock;
		campaign->values[CAMPAIGN_ISSUED] = row->issued;
		campaign->values[CAMPAIGN_IN_FLIGHT] = in_flight;
	}

	/*
	 * While a slot is to be freed or a late outcome to be counted, the numbers are not
	 * compared: Redis has not counted it yet.
	 */
	if (row->pending || row->late || coupon_adds_up(row, look, 0))
		return 0;
	if (coupon_known(redis, row->id, &known))
		return redis_client_is_open(redis) ? 0 : -1;
	if (!coupon_adds_up(row, look, known))
		suspect_add(watch, row, look, known);
	return 0;
}

static void sums_publish(const struct watch_sums *sums)
{
	for (unsigned i = 0; i < WATCH_STATE_COUNT; i++)
		metrics_set(KEEPER_METRIC_COUPONS + i, sums->states[i]);
	for (unsigned i = KEEPER_METRIC_UNEQUAL; i <= KEEPER_METRIC_OUTBOX; i++)
		metrics_set(i, sums->of[i]);
}

void keeper_watch_publish(struct keeper_watch *watch)
{
	size_t n = 0;

	sums_publish(&watch->sums);
	/* Campaigns that this sweep has not seen are forgotten. */
	for (size_t i = 0; i < watch->campaigns_n; i++)
		if (watch->campaigns[i].sweep == watch->sweep)
			watch->campaigns[n++] = watch->campaigns[i];
	watch->campaigns_n = n;
	pthread_mutex_lock(&campaigns.mutex);
	memcpy(campaigns.list, watch->campaigns, n * sizeof(campaigns.list[0]));
	campaigns.n = n;
	pthread_mutex_unlock(&campaigns.mutex);
}

void keeper_watch_none(void)
{
	static const struct watch_sums none;

	sums_publish(&none);
	pthread_mutex_lock(&campaigns.mutex);
	campaigns.n = 0;
	pthread_mutex_unlock(&campaigns.mutex);
	for (unsigned i = 0; i < RESEND_QUEUES; i++)
		metrics_set(KEEPER_METRIC_QUEUES + i, 0);
	metrics_set(KEEPER_METRIC_OUTBOX_AGE, 0);
	metrics_set(KEEPER_METRIC_KEYS_AHEAD, 0);
	metrics_set(KEEPER_METRIC_USES_BYTES, 0);
	metrics_set(KEEPER_METRIC_USES_COVERED, 0);
}

#include "worker/webhook/sending.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "worker/metrics.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define RECORD_AGAIN_MS 1000 /* after a failure */

void sending_begin(struct sending *sending, const struct claimed *claimed,
		   const struct rules *rules, int64_t lease_ms)
{
	check(sending->state == SENDING_FREE);
	*sending = (struct sending){
		.state = SENDING_SENDING,
		.delivery = claimed->delivery,
		.lease = claimed->lease,
		.webhook = claimed->webhook,
		.attempts = claimed->attempts + 1,
		.lease_ms = lease_ms,
	};
	sending->post = post_new(rules, &claimed->request, &sending->result);
	if (!sending->post)
		sending->state = SENDING_ENDED;
}

static void post_drop(struct sending *sending)
{
	post_free(sending->post);
	sending->post = NULL;
	sending->state = SENDING_ENDED;
}

void sending_end(struct sending *sending, CURLcode code)
{
	check(sending->state == SENDING_SENDING);
	post_result(sending->post, code, &sending->result);
	post_drop(sending);
}

void sending_release(struct sending *sending)
{
	check(sending->state == SENDING_SENDING);
	sending->is_released = 1;
	post_drop(sending);
}

static void verdict_note(const struct sending *sending, enum verdict verdict)
{
	const struct post_result *result = &sending->result;

	switch (verdict) {
	case VERDICT_DELIVERED:
		metrics_count(METRIC_WEBHOOK_DELIVERED, 1);
		return;
	case VERDICT_RETRY:
	case VERDICT_GONE:
		metrics_count(METRIC_WEBHOOK_FAILED, 1);
		log_warn("webhook_failed", LOG_I("webhook", sending->webhook),
			 LOG_I("delivery", sending->delivery), LOG_I("attempt", sending->attempts),
			 LOG_I("status", result->status), LOG_S("why", result->why));
		return;
	case VERDICT_FAILED:
		metrics_count(METRIC_WEBHOOK_FAILED, 1);
		metrics_count(METRIC_WEBHOOK_GIVEN_UP, 1);
		log_error("webhook_given_up", LOG_I("webhook", sending->webhook),
			  LOG_I("delivery", sending->delivery),
			  LOG_I("attempts", sending->attempts), LOG_I("status", result->status),
			  LOG_S("why", result->why));
		return;
	case VERDICT_RELEASED:
		return;
	}
}

static uint32_t random_number(void)
{
	uint32_t number;

	check(getrandom(&number, sizeof(number), 0) == sizeof(number));
	return number;
}

void sending_record(struct sending *sending, struct store *store, const struct config *config)
{
	struct finish finish = {
		.delivery = sending->delivery,
		.lease = sending->lease,
		.verdict = verdict_of(&sending->result, sending->attempts,
				      config->webhook_attempts),
		.result = &sending->result,
		.retry_ms = retry_delay_ms(sending->attempts, config->webhook_retry_ms,
					   random_number()),
	};
	char disabled[STORE_DISABLED_SIZE] = "";
	int rc;

	check(sending->state == SENDING_ENDED);
	if (sending->is_released)
		finish.verdict = VERDICT_RELEASED;
	rc = store_finish(store, &finish, disabled);
	sending->retry_ms = clock_monotonic_ms() + RECORD_AGAIN_MS;
	if (rc < 0 && clock_monotonic_ms() < sending->lease_ms)
		return;
	if (rc == 1)
		verdict_note(sending, finish.verdict);
	if (*disabled)
		log_warn("webhook_disabled", LOG_I("webhook", sending->webhook),
			 LOG_S("why", disabled));
	sending->state = SENDING_FREE;
}

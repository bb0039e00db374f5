/* One request to a webhook, from its claim until PostgreSQL has its outcome. Without a thread. */
#ifndef WORKER_WEBHOOK_SENDING_H
#define WORKER_WEBHOOK_SENDING_H

#include "worker/webhook/store.h"

#include <stdint.h>

/*
 *	FREE ──begin()──▶ SENDING ──end()──▶ ENDED ──record()──▶ FREE
 */
enum sending_state { SENDING_FREE, SENDING_SENDING, SENDING_ENDED };

struct sending {
	enum sending_state state;
	int64_t delivery;
	int lease;
	int64_t webhook;
	int64_t attempts;  /* with this one */
	int64_t lease_ms;  /* when its lease ends, by the monotonic clock */
	struct post *post; /* while it is sent */
	struct post_result result;
	int is_released;  /* it was given up before its end */
	int64_t retry_ms; /* after a failure: it is not recorded before */
};

/* Begins it: its handle can be performed. If it cannot be sent it has ended already. */
void sending_begin(struct sending *sending, const struct claimed *claimed,
		   const struct rules *rules, int64_t lease_ms);
/* The request was performed, with this code. The handle is not used any more. */
void sending_end(struct sending *sending, CURLcode code);
/* It is given up, whatever has become of it. */
void sending_release(struct sending *sending);
/*
 * Writes the outcome to PostgreSQL. Afterwards it is free, unless that failed while its lease
 * lasts: then it is to be called again, after `retry_ms`.
 */
void sending_record(struct sending *sending, struct store *store, const struct config *config);

#endif

/*
 * The outcomes of one batch, as a worker sends them:
 * {"v":1,"batch":"…","outcomes":[[0,"issued"],[1,"rejected","slot_taken"]]}.
 */
#ifndef GATEWAY_PUBLISH_OUTCOME_MESSAGE_H
#define GATEWAY_PUBLISH_OUTCOME_MESSAGE_H

#include "common/message/json.h"
#include "gateway/publish/waiters.h"

/* A message from a worker: the outcomes of one batch, as JSON. */
struct outcome_message {
	STAILQ_ENTRY(outcome_message) next;
	size_t len;
	char body[];
};

STAILQ_HEAD(outcome_message_list, outcome_message);

void outcome_message_list_free(struct outcome_message_list *list);

typedef void outcome_fn(void *context, const struct ulid *batch, int index,
			enum outcome_state state, const char *reason);

/*
 * Calls `each` for every outcome. 0, or -1 when the message is malformed; `each` was called for the
 * outcomes before the fault.
 */
int outcome_message_decode(struct json_arena *arena, const char *body, size_t len, outcome_fn *each,
			   void *context);

/* The constant for this reason of a rejection; "other" for an unknown one. */
const char *outcome_reason(const char *text);

#endif

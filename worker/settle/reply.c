#include "worker/settle/reply.h"

#include "common/check.h"

#include <stdio.h>

size_t reply_format(const struct delivery *delivery, char out[REPLY_SIZE])
{
	const struct delivery_message *message = delivery_message(delivery);
	char batch[ULID_SIZE];
	size_t len;

	len = (size_t)snprintf(out, REPLY_SIZE, "{\"v\":1,\"batch\":\"%s\",\"outcomes\":[",
			       ulid_format(&message->batch, batch));
	for (size_t i = delivery_first(delivery); i < delivery_end(delivery); i++) {
		const struct outcome *outcome = &delivery_outcomes(delivery)[i];
		const char *comma = i > delivery_first(delivery) ? "," : "";

		if (outcome->kind == OUTCOME_REJECTED)
			len += (size_t)snprintf(out + len, REPLY_SIZE - len,
						"%s[%zu,\"rejected\",\"%s\"]", comma, i,
						outcome_reason_text(outcome));
		else
			len += (size_t)snprintf(out + len, REPLY_SIZE - len, "%s[%zu,\"issued\"]",
						comma, i);
		check(len < REPLY_SIZE);
	}
	len += (size_t)snprintf(out + len, REPLY_SIZE - len, "]}");
	check(len < REPLY_SIZE);
	return len;
}

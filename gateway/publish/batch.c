#include "gateway/publish/batch.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_LEN (sizeof(PACKED_HEAD) - 1 + sizeof(PACKED_TAIL) - 1)
#define NEXT_LEN (sizeof(PACKED_NEXT) - 1)

void batch_list_free(struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(batch);
	}
}

/* The size of the body with one batch more. */
static size_t bytes_with(const struct packet *packet, const struct batch *batch)
{
	size_t before = packet->batches_n > 1 ? packet->bytes : packet->bytes + FRAME_LEN;

	return before + NEXT_LEN + batch->body_len;
}

struct packet *packet_take(struct batch_list *pending)
{
	struct packet *packet = checked(calloc(1, sizeof(*packet)));
	struct batch *batch = STAILQ_FIRST(pending);

	check(batch != NULL);
	STAILQ_INIT(&packet->batches);
	do {
		packet->bytes = packet->batches_n > 0 ? bytes_with(packet, batch) : batch->body_len;
		packet->receives += batch->receives;
		packet->wants_outcome |= batch->wants_outcome;
		packet->batches_n++;
		STAILQ_REMOVE_HEAD(pending, next);
		STAILQ_INSERT_TAIL(&packet->batches, batch, next);
	} while ((batch = STAILQ_FIRST(pending)) && packet->batches_n < PACKED_BATCHES_MAX &&
		 packet->receives + batch->receives <= MESSAGE_RECEIVES_MAX &&
		 bytes_with(packet, batch) <= PACKED_BYTES_MAX);
	return packet;
}

void packet_open(struct packet *packet, struct batch_list *batches)
{
	STAILQ_CONCAT(batches, &packet->batches);
	free(packet);
}

char *packet_body(struct packet *packet, char buffer[PACKED_BYTES_MAX])
{
	struct batch *batch = STAILQ_FIRST(&packet->batches);
	char *end = buffer;

	if (packet->batches_n == 1)
		return batch->body;
	end = mempcpy(end, PACKED_HEAD, sizeof(PACKED_HEAD) - 1);
	for (; batch; batch = STAILQ_NEXT(batch, next)) {
		end = mempcpy(end, batch->body, batch->body_len);
		if (STAILQ_NEXT(batch, next))
			end = mempcpy(end, PACKED_NEXT, NEXT_LEN);
	}
	end = mempcpy(end, PACKED_TAIL, sizeof(PACKED_TAIL) - 1);
	check((size_t)(end - buffer) == packet->bytes);
	return buffer;
}

int batch_rate_is_full(struct batch_rate *rate, int64_t now_ms)
{
	int64_t past_ms = now_ms - rate->since_ms;

	if (past_ms >= BATCH_RATE_MS) {
		rate->was_full = rate->receives >= BATCH_RATE_FULL && past_ms < 2 * BATCH_RATE_MS;
		rate->since_ms = now_ms;
		rate->receives = 0;
	}
	return rate->was_full;
}

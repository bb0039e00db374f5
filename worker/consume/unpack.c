#include "worker/consume/unpack.h"

#include "common/message/message.h"

#include <stdio.h>

static void dead_add(struct unpack *unpack, uint64_t tag, const char *error, void *envelope)
{
	char reason[SETTLEMENT_REASON_SIZE];

	snprintf(reason, sizeof(reason), "unreadable: %s", error);
	settlement_add_dead(unpack->settlement, tag, reason, envelope);
}

/* `whole`: the envelope of the message that carries it with others; NULL: it is the message. */
static void batch_add(struct unpack *unpack, uint64_t tag, const char *text, size_t len,
		      unsigned how, void *envelope, const void *whole)
{
	const struct message *message = &unpack->message;
	const char *error = NULL;
	int rc = message_decode(unpack->arena, text, len, &unpack->message, &error);

	if (whole)
		envelope = unpack->part_new(whole, text, len, rc ? NULL : &message->batch);
	if (rc == 0)
		settlement_add(unpack->settlement, tag, message, how, envelope);
	else
		dead_add(unpack, tag, error, envelope);
}

void unpack_add(struct unpack *unpack, uint64_t tag, const char *body, size_t len, unsigned how,
		void *envelope)
{
	struct packed packed;
	const char *text, *error;
	int is_packed = packed_open(&packed, body, len, &error);

	if (is_packed < 0) {
		dead_add(unpack, tag, error, envelope);
		return;
	}
	if (!is_packed) {
		batch_add(unpack, tag, body, len, how, envelope, NULL);
		return;
	}
	while (packed_next(&packed, &text, &len))
		batch_add(unpack, tag, text, len, how, NULL, envelope);
	unpack->envelope_free(envelope);
}

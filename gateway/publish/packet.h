/*
 * What one AMQP message carries: a batch, or several that waited together (packed.h). Of their
 * receives for 256 there is room, as of a single batch, so that a worker's prefetch bounds what it
 * holds. No I/O.
 */
#ifndef GATEWAY_PUBLISH_PACKET_H
#define GATEWAY_PUBLISH_PACKET_H

#include "common/message/packed.h"
#include "gateway/publish/batch.h"

struct packet {
	struct batch_list batches; /* at least one */
	size_t batches_n;
	size_t receives;
	size_t bytes;      /* of the body */
	int wants_outcome; /* of one of them at least */
};

/* Takes batches from the head of the list, as many as fit. The list is not empty. */
struct packet *packet_take(struct batch_list *pending);
/* Appends its batches to the list, and frees it. */
void packet_open(struct packet *packet, struct batch_list *batches);

/* The body: lent by the packet, or written to `buffer`. Its length is `bytes`. */
char *packet_body(struct packet *packet, char buffer[PACKED_BYTES_MAX]);

const struct batch *packet_first(const struct packet *packet);

#endif

/*
 * What a worker tells a gateway that waits:
 * {"v":1,"batch":"…","outcomes":[[0,"issued"],[1,"rejected","slot_taken"]]}.
 */
#ifndef WORKER_SETTLE_REPLY_H
#define WORKER_SETTLE_REPLY_H

#include "worker/settle/settlement.h"

#define REPLY_SIZE (128 + MESSAGE_RECEIVES_MAX * 48)

/*
 * Writes the outcomes of what is taken of a delivery and returns the length. An earlier outcome
 * `issued` is told as `issued`.
 */
size_t reply_format(const struct delivery *delivery, char out[REPLY_SIZE]);

#endif

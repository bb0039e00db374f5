/*
 * A packed message: several batches in one AMQP message, of any coupons. Each is a line, byte for
 * byte as a message of version 1 (message.h), so that none is decoded to be packed or forwarded:
 *
 *	{"v":2,"batches":[
 *	{"v":1,"batch":"01JD…","coupon":"1001",…},
 *	{"v":1,"batch":"01JE…","coupon":"1002",…}
 *	]}
 *
 * The line breaks are part of the format.
 */
#ifndef COMMON_MESSAGE_PACKED_H
#define COMMON_MESSAGE_PACKED_H

#include <stddef.h>

#define PACKED_VERSION 2
#define PACKED_HEAD "{\"v\":2,\"batches\":[\n"
#define PACKED_NEXT ",\n"
#define PACKED_TAIL "\n]}"

#define PACKED_BATCHES_MAX 256
#define PACKED_BYTES_MAX 131072 /* as gateways send it; workers read up to ENVELOPE_BODY_MAX */

struct packed {
	const char *at; /* NULL: no batch is left */
	const char *end;
};

/*
 * Begins to read a body, which is lent. 1 when it is packed, 0 when it is not, or -1 with the
 * reason in `*error` (a constant).
 */
int packed_open(struct packed *packed, const char *body, size_t len, const char **error);
/* The next batch, lent from the body: 1, or 0 when there is none. There is at least one. */
int packed_next(struct packed *packed, const char **batch, size_t *len);

#endif

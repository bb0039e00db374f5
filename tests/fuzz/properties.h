/*
 * Properties of a message as received, decoded by librabbitmq: flags and fields may be anything.
 */
#pragma once

#include "common/rabbit/connection.h"
#include "tests/fuzz/fuzz.h"

/*
 * Reads a length of two bytes and that many bytes; 0 with the properties, which are valid as long
 * as `pool`, or -1.
 */
static inline int properties_take(struct bytes *bytes, amqp_pool_t *pool,
				  amqp_basic_properties_t *properties)
{
	size_t len = (size_t)bytes_u8(bytes) << 8;
	const uint8_t *at;
	void *decoded;

	len |= bytes_u8(bytes);
	at = bytes_take(bytes, len, &len);
	if (amqp_decode_properties(AMQP_BASIC_CLASS, pool,
				   (amqp_bytes_t){ .len = len, .bytes = (void *)(uintptr_t)at },
				   &decoded) != 0)
		return -1;
	*properties = *(amqp_basic_properties_t *)decoded;
	return 0;
}

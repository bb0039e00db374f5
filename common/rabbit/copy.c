#include "common/rabbit/copy.h"

#include "common/rabbit/envelope.h"

#include <string.h>

static int describes_delivery(amqp_bytes_t key)
{
	static const char *const names[] = { "x-delivery-count", "x-acquired-count",
					     ENVELOPE_TAG_HEADER };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (key.len == strlen(names[i]) && memcmp(key.bytes, names[i], key.len) == 0)
			return 1;
	return 0;
}

void rabbit_copy_init(struct rabbit_copy *copy, const amqp_basic_properties_t *properties)
{
	int n = 0;

	copy->properties = *properties;
	copy->properties._flags &= (amqp_flags_t)~AMQP_BASIC_USER_ID_FLAG;
	if (!(properties->_flags & AMQP_BASIC_HEADERS_FLAG))
		return;
	for (int i = 0; i < properties->headers.num_entries && n < RABBIT_COPY_HEADERS_MAX; i++)
		if (!describes_delivery(properties->headers.entries[i].key))
			copy->headers[n++] = properties->headers.entries[i];
	copy->properties.headers = (amqp_table_t){ .num_entries = n, .entries = copy->headers };
}

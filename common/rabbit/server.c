#include "common/rabbit/server.h"

#include "common/log/service_version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 32

/* A text of the server's properties; empty when it has none of that name. Returns `out`. */
static const char *text_read(amqp_connection_state_t connection, const char *name,
			     char out[TEXT_SIZE])
{
	const amqp_table_t *properties = amqp_get_server_properties(connection);

	out[0] = '\0';
	for (int i = 0; properties && i < properties->num_entries; i++) {
		const amqp_table_entry_t *entry = &properties->entries[i];
		const amqp_bytes_t *text = &entry->value.value.bytes;

		if (entry->key.len == strlen(name) &&
		    memcmp(entry->key.bytes, name, entry->key.len) == 0 &&
		    entry->value.kind == AMQP_FIELD_KIND_UTF8)
			snprintf(out, TEXT_SIZE, "%.*s", (int)text->len, (const char *)text->bytes);
	}
	return out;
}

int rabbit_server_major(amqp_connection_state_t connection)
{
	char product[TEXT_SIZE], version[TEXT_SIZE];

	if (strcmp(text_read(connection, "product", product), "RabbitMQ") != 0)
		return 0;
	return atoi(text_read(connection, "version", version));
}

void rabbit_server_log(amqp_connection_state_t connection)
{
	char product[TEXT_SIZE], version[TEXT_SIZE];

	service_version_log(SERVICE_RABBITMQ, text_read(connection, "product", product),
			    text_read(connection, "version", version));
}

#include "common/rabbit/connection.h"

#include "common/clock.h"
#include "common/log.h"

#include <amqp_tcp_socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int amqp_link_result(amqp_rpc_reply_t reply, char error[AMQP_LINK_ERROR_SIZE])
{
	const amqp_connection_close_t *connection_close;
	const amqp_channel_close_t *channel_close;

	switch (reply.reply_type) {
	case AMQP_RESPONSE_NORMAL:
		return 0;
	case AMQP_RESPONSE_NONE:
		snprintf(error, AMQP_LINK_ERROR_SIZE, "no reply");
		return -1;
	case AMQP_RESPONSE_LIBRARY_EXCEPTION:
		snprintf(error, AMQP_LINK_ERROR_SIZE, "%s",
			 amqp_error_string2(reply.library_error));
		return -1;
	case AMQP_RESPONSE_SERVER_EXCEPTION:
		break;
	}
	if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
		connection_close = reply.reply.decoded;
		snprintf(error, AMQP_LINK_ERROR_SIZE, "the broker closed the connection: %.*s",
			 (int)connection_close->reply_text.len,
			 (const char *)connection_close->reply_text.bytes);
	} else if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
		channel_close = reply.reply.decoded;
		snprintf(error, AMQP_LINK_ERROR_SIZE, "the broker closed the channel: %.*s",
			 (int)channel_close->reply_text.len,
			 (const char *)channel_close->reply_text.bytes);
	} else {
		snprintf(error, AMQP_LINK_ERROR_SIZE, "the broker sent method 0x%08X",
			 reply.reply.id);
	}
	return -1;
}

/* So that a silent peer ends a blocked write, and so that small frames go out at once. */
static void socket_tune(int fd)
{
	unsigned timeout_ms = AMQP_LINK_HEARTBEAT_S * 1000;
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static amqp_rpc_reply_t login(amqp_connection_state_t link, const struct amqp_connection_info *info)
{
	static const char *const names[] = { "connection.blocked", "consumer_cancel_notify",
					     "basic.nack", "publisher_confirms" };
	amqp_table_entry_t capabilities[4], property;
	amqp_table_t table = { .num_entries = 1, .entries = &property };

	for (int i = 0; i < 4; i++) {
		capabilities[i].key = amqp_cstring_bytes(names[i]);
		capabilities[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
		capabilities[i].value.value.boolean = 1;
	}
	property.key = amqp_cstring_bytes("capabilities");
	property.value.kind = AMQP_FIELD_KIND_TABLE;
	property.value.value.table.num_entries = 4;
	property.value.value.table.entries = capabilities;
	return amqp_login_with_properties(link, info->vhost, AMQP_DEFAULT_MAX_CHANNELS,
					  AMQP_DEFAULT_FRAME_SIZE, AMQP_LINK_HEARTBEAT_S, &table,
					  AMQP_SASL_METHOD_PLAIN, info->user, info->password);
}

/* The next question may take what is left of the time for all of them. */
static void time_left_set(amqp_connection_state_t link, int64_t deadline_ms)
{
	int64_t left_ms = deadline_ms - clock_monotonic_ms();
	struct timeval left = { .tv_usec = 1000 };

	if (left_ms > 1)
		left = (struct timeval){ .tv_sec = left_ms / 1000,
					 .tv_usec = left_ms % 1000 * 1000 };
	amqp_set_rpc_timeout(link, &left);
}

static void time_restore(amqp_connection_state_t link)
{
	struct timeval timeout = { .tv_sec = AMQP_LINK_TIMEOUT_S };

	amqp_set_rpc_timeout(link, &timeout);
}

static int channel_open(amqp_connection_state_t link, int confirms, int64_t deadline_ms,
			char error[AMQP_LINK_ERROR_SIZE])
{
	time_left_set(link, deadline_ms);
	amqp_channel_open(link, AMQP_LINK_CHANNEL);
	if (amqp_link_result(amqp_get_rpc_reply(link), error))
		return -1;
	if (!confirms)
		return 0;
	time_left_set(link, deadline_ms);
	amqp_confirm_select(link, AMQP_LINK_CHANNEL);
	return amqp_link_result(amqp_get_rpc_reply(link), error);
}

amqp_connection_state_t amqp_link_open(const char *url, int confirms,
				       char error[AMQP_LINK_ERROR_SIZE])
{
	struct timeval timeout = { .tv_sec = AMQP_LINK_TIMEOUT_S };
	int64_t deadline_ms = clock_monotonic_ms() + 2000 * AMQP_LINK_TIMEOUT_S;
	struct amqp_connection_info info;
	amqp_connection_state_t link = NULL;
	amqp_socket_t *socket;
	char *text = strdup(url);
	int status;

	snprintf(error, AMQP_LINK_ERROR_SIZE, "out of memory");
	if (!text)
		return NULL;
	status = amqp_parse_url(text, &info);
	if (status != AMQP_STATUS_OK || info.ssl) {
		snprintf(error, AMQP_LINK_ERROR_SIZE,
			 "AMQP_URL is not of the form amqp://user:password@host:port/vhost");
		goto out;
	}
	link = amqp_new_connection();
	if (!link)
		goto out;
	socket = amqp_tcp_socket_new(link);
	if (!socket)
		goto fail;
	status = amqp_socket_open_noblock(socket, info.host, info.port, &timeout);
	if (status != AMQP_STATUS_OK) {
		snprintf(error, AMQP_LINK_ERROR_SIZE, "%s:%d: %s", info.host, info.port,
			 amqp_error_string2(status));
		goto fail;
	}
	socket_tune(amqp_get_sockfd(link));
	amqp_set_handshake_timeout(link, &timeout);
	time_left_set(link, deadline_ms);
	if (amqp_link_result(login(link, &info), error))
		goto fail;
	if (channel_open(link, confirms, deadline_ms, error))
		goto fail;
	time_restore(link);
	goto out;
fail:
	amqp_link_drop(link);
	link = NULL;
out:
	free(text);
	return link;
}

/* The outcome of a declaration. */
static int declared(amqp_connection_state_t link, const char *name,
		    char error[AMQP_LINK_ERROR_SIZE])
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(link);

	if (amqp_link_result(reply, error) == 0)
		return 0;
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
	    reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD &&
	    ((const amqp_channel_close_t *)reply.reply.decoded)->reply_code ==
		    AMQP_PRECONDITION_FAILED)
		log_error("queue_differs", LOG_S("name", name), LOG_S("error", error));
	return -1;
}

static int queue_declare(amqp_connection_state_t link, const char *queue, const char *exchange,
			 const char *routing_key, int64_t deadline_ms,
			 char error[AMQP_LINK_ERROR_SIZE])
{
	amqp_table_entry_t type = { .key = amqp_cstring_bytes("x-queue-type"),
				    .value = { .kind = AMQP_FIELD_KIND_UTF8,
					       .value.bytes = amqp_cstring_bytes("quorum") } };
	amqp_table_t arguments = { .num_entries = 1, .entries = &type };

	time_left_set(link, deadline_ms);
	amqp_queue_declare(link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0,
			   arguments);
	if (declared(link, queue, error))
		return -1;
	time_left_set(link, deadline_ms);
	amqp_queue_bind(link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(queue),
			amqp_cstring_bytes(exchange), amqp_cstring_bytes(routing_key),
			amqp_empty_table);
	return amqp_link_result(amqp_get_rpc_reply(link), error);
}

static int all_declare(amqp_connection_state_t link, int64_t deadline_ms,
		       char error[AMQP_LINK_ERROR_SIZE])
{
	static const char *const exchanges[] = { AMQP_EXCHANGE, AMQP_DEAD_EXCHANGE };

	for (int i = 0; i < 2; i++) {
		time_left_set(link, deadline_ms);
		amqp_exchange_declare(link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(exchanges[i]),
				      amqp_cstring_bytes("topic"), 0, 1, 0, 0, amqp_empty_table);
		if (declared(link, exchanges[i], error))
			return -1;
	}
	if (queue_declare(link, AMQP_QUEUE, AMQP_EXCHANGE, AMQP_ROUTING_KEY, deadline_ms, error))
		return -1;
	if (queue_declare(link, AMQP_PARKED_QUEUE, AMQP_EXCHANGE, AMQP_PARKED_KEY, deadline_ms,
			  error))
		return -1;
	return queue_declare(link, AMQP_DEAD_QUEUE, AMQP_DEAD_EXCHANGE, "#", deadline_ms, error);
}

int amqp_link_declare(amqp_connection_state_t link, char error[AMQP_LINK_ERROR_SIZE])
{
	int rc = all_declare(link, clock_monotonic_ms() + 2000 * AMQP_LINK_TIMEOUT_S, error);

	time_restore(link);
	return rc;
}

void amqp_link_close(amqp_connection_state_t link)
{
	if (!link)
		return;
	amqp_connection_close(link, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(link);
}

void amqp_link_drop(amqp_connection_state_t link)
{
	if (link)
		amqp_destroy_connection(link);
}

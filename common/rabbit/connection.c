#include "common/rabbit/connection.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/thread.h"
#include "common/trust.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT_SIZE 32

struct url_setting {
	const char *name, *form;
	int port, tls_port; /* where the URL has none */
};

static const struct url_setting amqp_setting = { "AMQP_URL", RABBIT_URL_FORM, 5672, 5671 };
static const struct url_setting api_setting = { "COUPON_RABBITMQ_API", RABBIT_API_FORM, 15672,
						15671 };

/* Finds where the hosts begin, after user and password, and where they end. */
static const char *hosts_find(const char *text, const char **end)
{
	const char *scheme = strstr(text, "://"), *authority = scheme ? scheme + 3 : text, *at;

	*end = authority + strcspn(authority, "/");
	at = memchr(authority, '@', (size_t)(*end - authority));
	return at ? at + 1 : authority;
}

/*
 * Adds the URL with one of its hosts, as the library parses it. User, password and vhost are parsed
 * by us, since the library refuses %80 and above there.
 */
static int host_add(struct rabbit_url *url, const struct url_setting *setting, const char *text,
		    const char *host, size_t len)
{
	struct rabbit_host *added = &url->hosts[url->hosts_n++];
	const char *scheme = strstr(text, "://"), *colon = memchr(host, ':', len);
	const char *bracket = memrchr(host, ']', len), *name = bracket ? bracket : host;

	if (!scheme || memchr(host, '@', len))
		return -1;
	if (*host != '[' && colon && memchr(colon + 1, ':', (size_t)(host + len - colon - 1)))
		return -1; /* an IPv6 address without brackets */
	check(asprintf(&added->text, "%.*s%.*s", (int)(scheme + 3 - text), text, (int)len, host) >=
	      0);
	if (amqp_parse_url(added->text, &added->info) != AMQP_STATUS_OK)
		return -1;
	if (url->user)
		added->info.user = url->user;
	if (url->password)
		added->info.password = url->password;
	if (url->vhost)
		added->info.vhost = url->vhost;
	if (!memchr(name, ':', len - (size_t)(name - host)))
		added->info.port = added->info.ssl ? setting->tls_port : setting->port;
	return 0;
}

/* Decodes "user:password@" before the hosts and "/vhost" after them. 0, or -1. */
static int parts_decode(struct rabbit_url *url, const char *text, const char *hosts,
			const char *end)
{
	const char *scheme = strstr(text, "://"), *login = scheme ? scheme + 3 : text, *colon;

	if (hosts > login) {
		size_t len = (size_t)(hosts - 1 - login);

		colon = memchr(login, ':', len);
		url->user = percent_decode(login, colon ? (size_t)(colon - login) : len);
		url->password = colon ? percent_decode(colon + 1, (size_t)(hosts - 2 - colon))
				      : NULL;
		if (!url->user || (colon && !url->password) ||
		    (colon && memchr(colon + 1, ':', (size_t)(hosts - 2 - colon))))
			return -1;
	}
	if (*end != '/' || !end[1])
		return 0;
	url->vhost = strpbrk(end + 1, "/@") ? NULL : percent_decode(end + 1, strlen(end + 1));
	return url->vhost ? 0 : -1;
}

static int url_parse(struct rabbit_url *url, const struct url_setting *setting, const char *text,
		     char error[RABBIT_ERROR_SIZE])
{
	const char *end, *hosts = hosts_find(text, &end), *host = hosts, *next;
	size_t query = strcspn(text, "?#");
	int rc = 0;

	*url = (struct rabbit_url){ .hosts_n = 0 };
	if (text[query] && !strchr(text + query, '@')) { /* else it belongs to a password */
		snprintf(error, RABBIT_ERROR_SIZE,
			 "%s has \"%c%.*s\": nothing is allowed after the vhost", setting->name,
			 text[query], (int)strcspn(text + query + 1, "=&#@"), text + query + 1);
		return -1;
	}
	if (text[query] || parts_decode(url, text, hosts, end)) {
		snprintf(error, RABBIT_ERROR_SIZE,
			 "%s is not of the form %s: user, password and vhost have %% only before "
			 "two hexadecimal digits, and no : / @ ? #",
			 setting->name, setting->form);
		return -1;
	}
	do {
		size_t len = strcspn(host, ",/");

		if (url->hosts_n == RABBIT_HOSTS_MAX) {
			snprintf(error, RABBIT_ERROR_SIZE, "%s has more than %d hosts",
				 setting->name, RABBIT_HOSTS_MAX);
			return -1;
		}
		next = host + len;
		/* The library takes an empty host for localhost; only a single one may be empty. */
		if (len == 0 && (url->hosts_n > 0 || next != end)) {
			url->hosts_n++;
			rc = -1;
		} else {
			rc = host_add(url, setting, text, host, len);
		}
		host = next + 1;
	} while (next != end && rc == 0);
	if (rc && url->hosts_n == 1 && next == end)
		snprintf(error, RABBIT_ERROR_SIZE, "%s is not of the form %s", setting->name,
			 setting->form);
	else if (rc)
		snprintf(error, RABBIT_ERROR_SIZE,
			 "host %zu of %s is not host or host:port, or the URL is not of the form "
			 "%s",
			 url->hosts_n, setting->name, setting->form);
	return rc;
}

int rabbit_url_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE])
{
	return url_parse(url, &amqp_setting, text, error);
}

/* The library knows other schemes, which have the same parts. A path means nothing. */
int rabbit_api_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE])
{
	int is_tls = strncmp(text, "https://", 8) == 0, rc;
	const char *end;
	char *mapped;

	*url = (struct rabbit_url){ .hosts_n = 0 };
	hosts_find(text, &end);
	if ((!is_tls && strncmp(text, "http://", 7) != 0) || strcmp(end, "/") > 0) {
		snprintf(error, RABBIT_ERROR_SIZE, "%s is not of the form %s", api_setting.name,
			 api_setting.form);
		return -1;
	}
	check(asprintf(&mapped, "amqp%s://%s", is_tls ? "s" : "", text + (is_tls ? 8 : 7)) > 0);
	rc = url_parse(url, &api_setting, mapped, error);
	free(mapped);
	return rc;
}

void rabbit_url_fini(struct rabbit_url *url)
{
	for (size_t i = 0; i < url->hosts_n; i++)
		free(url->hosts[i].text);
	free(url->user);
	free(url->password);
	free(url->vhost);
	*url = (struct rabbit_url){ .hosts_n = 0 };
}

void rabbit_url_shuffle(struct rabbit_url *url)
{
	for (size_t n = url->hosts_n; n > 1; n--) {
		struct rabbit_host last = url->hosts[n - 1];
		uint32_t random;

		check(getrandom(&random, sizeof(random), 0) == sizeof(random));
		url->hosts[n - 1] = url->hosts[random % n];
		url->hosts[random % n] = last;
	}
}

char *rabbit_host_text(const struct rabbit_host *host, char out[RABBIT_HOST_SIZE])
{
	int is_ipv6 = strchr(host->info.host, ':') != NULL;

	snprintf(out, RABBIT_HOST_SIZE, is_ipv6 ? "[%.253s]:%d" : "%.253s:%d", host->info.host,
		 host->info.port);
	return out;
}

int rabbit_text_is(amqp_bytes_t bytes, const char *text)
{
	return bytes.len == strlen(text) && memcmp(bytes.bytes, text, bytes.len) == 0;
}

const amqp_field_value_t *rabbit_table_find(const amqp_table_t *table, const char *name)
{
	for (int i = 0; i < table->num_entries; i++)
		if (rabbit_text_is(table->entries[i].key, name))
			return &table->entries[i].value;
	return NULL;
}

/* Reads a property of the server; empty when it has none of that name. Returns `out`. */
static const char *text_read(amqp_connection_state_t connection, const char *name,
			     char out[TEXT_SIZE])
{
	const amqp_table_t *properties = amqp_get_server_properties(connection);
	const amqp_field_value_t *value = properties ? rabbit_table_find(properties, name) : NULL;

	out[0] = '\0';
	if (value && value->kind == AMQP_FIELD_KIND_UTF8)
		snprintf(out, TEXT_SIZE, "%.*s", (int)value->value.bytes.len,
			 (const char *)value->value.bytes.bytes);
	return out;
}

int rabbit_server_major(amqp_connection_state_t connection)
{
	char product[TEXT_SIZE], version[TEXT_SIZE];

	if (strcmp(text_read(connection, "product", product), "RabbitMQ") != 0)
		return 0;
	return atoi(text_read(connection, "version", version));
}

const char *rabbit_status_text(int status)
{
	switch (status) {
	case AMQP_STATUS_SSL_ERROR:
	case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
	case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
	case AMQP_STATUS_SSL_CONNECTION_FAILED:
		if (*trust_why())
			return trust_why();
		return "TLS: the connection was reset"; /* an error of the socket, not of OpenSSL */
	default:
		return amqp_error_string2(status);
	}
}

int rabbit_reply_check(amqp_rpc_reply_t reply, char error[RABBIT_ERROR_SIZE])
{
	amqp_bytes_t text;

	switch (reply.reply_type) {
	case AMQP_RESPONSE_NORMAL:
		return 0;
	case AMQP_RESPONSE_NONE:
		snprintf(error, RABBIT_ERROR_SIZE, "no reply");
		return -1;
	case AMQP_RESPONSE_LIBRARY_EXCEPTION:
		snprintf(error, RABBIT_ERROR_SIZE, "%s", rabbit_status_text(reply.library_error));
		return -1;
	case AMQP_RESPONSE_SERVER_EXCEPTION:
		break;
	}
	if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
		text = ((const amqp_connection_close_t *)reply.reply.decoded)->reply_text;
		snprintf(error, RABBIT_ERROR_SIZE, "the broker closed the connection: %.*s",
			 (int)text.len, (const char *)text.bytes);
	} else if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
		text = ((const amqp_channel_close_t *)reply.reply.decoded)->reply_text;
		snprintf(error, RABBIT_ERROR_SIZE, "the broker closed the channel: %.*s",
			 (int)text.len, (const char *)text.bytes);
	} else {
		snprintf(error, RABBIT_ERROR_SIZE, "the broker sent method 0x%08X", reply.reply.id);
	}
	return -1;
}

static amqp_rpc_reply_t login(amqp_connection_state_t connection,
			      const struct amqp_connection_info *info)
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
	return amqp_login_with_properties(connection, info->vhost, AMQP_DEFAULT_MAX_CHANNELS,
					  AMQP_DEFAULT_FRAME_SIZE, RABBIT_HEARTBEAT_S, &table,
					  AMQP_SASL_METHOD_PLAIN, info->user, info->password);
}

/* The time that is left, at least a millisecond. */
static struct timeval time_left(int64_t deadline_ms)
{
	int64_t left_ms = deadline_ms - clock_monotonic_ms();

	if (left_ms < 1)
		left_ms = 1;
	return (struct timeval){ .tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000 };
}

void rabbit_time_left_set(amqp_connection_state_t connection, int64_t deadline_ms)
{
	struct timeval left = time_left(deadline_ms);

	amqp_set_rpc_timeout(connection, &left);
}

void rabbit_time_restore(amqp_connection_state_t connection)
{
	struct timeval timeout = { .tv_sec = RABBIT_TIMEOUT_S };

	amqp_set_rpc_timeout(connection, &timeout);
}

static int channel_open(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			char error[RABBIT_ERROR_SIZE])
{
	rabbit_time_left_set(connection, deadline_ms);
	amqp_channel_open(connection, RABBIT_CHANNEL);
	if (rabbit_reply_check(amqp_get_rpc_reply(connection), error))
		return -1;
	if (!confirms)
		return 0;
	rabbit_time_left_set(connection, deadline_ms);
	amqp_confirm_select(connection, RABBIT_CHANNEL);
	return rabbit_reply_check(amqp_get_rpc_reply(connection), error);
}

_Static_assert(TRUST_ERROR_SIZE <= RABBIT_ERROR_SIZE, "it has space for a sentence about TLS");

/*
 * Connects the socket. librabbitmq keeps it non-blocking under TLS too, and bounds the handshake as
 * it does the connect. It reads before it polls, and always into more space than a record has
 * (16 KiB), so nothing that has arrived stays in OpenSSL, where poll() would not see it. The host
 * is verified by OpenSSL: the library's own comparison knows no addresses.
 */
static int socket_open(amqp_connection_state_t connection, const struct amqp_connection_info *info,
		       const struct timeval *timeout, char error[RABBIT_ERROR_SIZE])
{
	amqp_socket_t *socket = info->ssl ? amqp_ssl_socket_new(connection)
					  : amqp_tcp_socket_new(connection);
	unsigned timeout_ms = SILENCE_MS;
	int on = 1, idle_s = SILENCE_IDLE_S, probe_s = SILENCE_PROBE_S, status, fd;

	if (!socket)
		return -1;
	if (info->ssl) {
		if (trust_context_set(amqp_ssl_socket_get_context(socket), TRUST_RABBITMQ,
				      info->host, error))
			return -1;
		amqp_ssl_socket_set_verify_peer(socket, 1);
		amqp_ssl_socket_set_verify_hostname(socket, 0);
	}
	trust_begin();
	status = amqp_socket_open_noblock(socket, info->host, info->port, timeout);
	if (status != AMQP_STATUS_OK) {
		snprintf(error, RABBIT_ERROR_SIZE, "%s", rabbit_status_text(status));
		return -1;
	}

	/* Small frames go out at once; a machine that is gone is noticed before two heartbeats. */
	fd = amqp_get_sockfd(connection);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof(probe_s));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	return 0;
}

/* Connects to one host, and does everything that follows with it. NULL with `error`. */
static amqp_connection_state_t host_open(const struct rabbit_host *host, int confirms,
					 int is_one_of_several, rabbit_begin_fn *begin,
					 void *context, char error[RABBIT_ERROR_SIZE])
{
	struct timeval timeout = { .tv_sec = is_one_of_several ? RABBIT_CLUSTER_TIMEOUT_S
							       : RABBIT_TIMEOUT_S },
		       handshake;
	int64_t begun_ms = clock_monotonic_ms();
	int64_t deadline_ms = begun_ms +
			      (is_one_of_several ? 1000 : 2000) * (int64_t)timeout.tv_sec;
	amqp_connection_state_t connection = amqp_new_connection();
	char product[TEXT_SIZE], version[TEXT_SIZE], text[RABBIT_HOST_SIZE];

	snprintf(error, RABBIT_ERROR_SIZE, "out of memory");
	if (!connection || socket_open(connection, &host->info, &timeout, error))
		goto fail;
	handshake = time_left(begun_ms + 1000 * timeout.tv_sec);
	amqp_set_handshake_timeout(connection, &handshake);
	rabbit_time_left_set(connection, deadline_ms);
	if (rabbit_reply_check(login(connection, &host->info), error))
		goto fail;
	service_version_log(SERVICE_RABBITMQ, text_read(connection, "product", product),
			    text_read(connection, "version", version));
	if (channel_open(connection, confirms, deadline_ms, error))
		goto fail;
	if (begin && begin(context, connection, rabbit_host_text(host, text), deadline_ms, error))
		goto fail;
	amqp_set_rpc_timeout(connection, &timeout);
	return connection;
fail:
	amqp_destroy_connection(connection);
	return NULL;
}

amqp_connection_state_t rabbit_connection_begin(const char *text, int confirms,
						rabbit_begin_fn *begin, void *context,
						char error[RABBIT_ERROR_SIZE])
{
	amqp_connection_state_t connection = NULL;
	char why[RABBIT_ERROR_SIZE], host[RABBIT_HOST_SIZE];
	struct rabbit_url url;
	size_t len = 0;

	if (rabbit_url_parse(&url, text, error)) {
		rabbit_url_fini(&url);
		return NULL;
	}
	error[0] = '\0';
	rabbit_url_shuffle(&url);
	for (size_t i = 0; i < url.hosts_n && !connection; i++) {
		connection = host_open(&url.hosts[i], confirms, url.hosts_n > 1, begin, context,
				       why);
		if (connection)
			break;
		/* Add what this host has answered to what the hosts before it have. */
		snprintf(error + len, RABBIT_ERROR_SIZE - len, "%s%s: %s", len > 0 ? "; " : "",
			 rabbit_host_text(&url.hosts[i], host), why);
		len = strlen(error);
	}
	rabbit_url_fini(&url);
	return connection;
}

amqp_connection_state_t rabbit_connection_open(const char *url, int confirms,
					       char error[RABBIT_ERROR_SIZE])
{
	return rabbit_connection_begin(url, confirms, NULL, NULL, error);
}

int rabbit_reply_code(amqp_rpc_reply_t reply)
{
	if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION ||
	    reply.reply.id != AMQP_CHANNEL_CLOSE_METHOD)
		return 0;
	return ((const amqp_channel_close_t *)reply.reply.decoded)->reply_code;
}

int rabbit_channel_reopen(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			  char error[RABBIT_ERROR_SIZE])
{
	amqp_channel_close_ok_t closed = { 0 };
	int status = amqp_send_method(connection, RABBIT_CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD,
				      &closed);

	if (status == AMQP_STATUS_OK)
		return channel_open(connection, confirms, deadline_ms, error);
	snprintf(error, RABBIT_ERROR_SIZE, "%s", rabbit_status_text(status));
	return -1;
}

void rabbit_connection_close(amqp_connection_state_t connection)
{
	if (!connection)
		return;
	amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(connection);
}

#define LOOK_EVERY_S 1

struct watch {
	LIST_ENTRY(watch) next;
	int fd;           /* a duplicate: stays valid when the library closes its own */
	int64_t begun_ms; /* 0: no call is in progress */
	int cut;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, watch) watches;
static int started;

/* The watchdog's thread: cuts the calls that hang. */
static void *calls_watch(void *unused)
{
	struct watch *watch;

	(void)unused;
	for (;;) {
		int64_t now_ms;

		sleep(LOOK_EVERY_S);
		pthread_mutex_lock(&mutex);
		now_ms = clock_monotonic_ms();
		LIST_FOREACH (watch, &watches, next) {
			if (watch->begun_ms == 0 || now_ms - watch->begun_ms < WATCHDOG_CALL_MS)
				continue;
			log_warn("amqp_call_hangs", LOG_I("for_ms", now_ms - watch->begun_ms));
			shutdown(watch->fd, SHUT_RDWR);
			watch->begun_ms = 0;
			watch->cut = 1;
		}
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

struct watch *watch_new(int fd)
{
	struct watch *watch = checked(calloc(1, sizeof(*watch)));

	watch->fd = dup(fd);
	pthread_mutex_lock(&mutex);
	LIST_INSERT_HEAD(&watches, watch, next);
	if (!started) {
		check(thread_detach(calls_watch, NULL) == 0);
		started = 1;
	}
	pthread_mutex_unlock(&mutex);
	return watch;
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;
	pthread_mutex_lock(&mutex);
	LIST_REMOVE(watch, next);
	pthread_mutex_unlock(&mutex);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

void watch_begin(struct watch *watch)
{
	pthread_mutex_lock(&mutex);
	watch->begun_ms = clock_monotonic_ms();
	pthread_mutex_unlock(&mutex);
}

int watch_end(struct watch *watch)
{
	int cut;

	pthread_mutex_lock(&mutex);
	cut = watch->cut;
	watch->begun_ms = 0;
	watch->cut = 0;
	pthread_mutex_unlock(&mutex);
	return cut;
}

void watch_cut_all(void)
{
	struct watch *watch;

	pthread_mutex_lock(&mutex);
	LIST_FOREACH (watch, &watches, next)
		shutdown(watch->fd, SHUT_RDWR);
	pthread_mutex_unlock(&mutex);
}

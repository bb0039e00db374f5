#include "client/client.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/trust.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_US 15000000        /* of an exchange: longer than the gateway's own deadlines */
#define RETRY_AFTER_MAX_MS 3600000 /* as the gateway tells at most */

static const unsigned char protocols[] = "\x08"
					 "couponmq"; /* for ALPN */

static void path_read(struct gateway_address *address, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->address;

	if (!*path || strlen(path) >= sizeof(un->sun_path))
		log_fatal("COUPON_LISTEN is \"%s\": a Unix socket's path has 1 to %zu bytes", path,
			  sizeof(un->sun_path) - 1);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, strlen(path) + 1);
	address->len = sizeof(*un);
}

static void host_read(struct gateway_address *address, const char *text)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char *copy = checked(strdup(text)), *host, service[16];
	int port, rc;

	if (config_address(copy, &host, &port) || strlen(host) >= sizeof(address->host))
		log_fatal("COUPON_LISTEN is \"%s\": allowed is host:port, /path or unix:path",
			  text);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal("COUPON_LISTEN is \"%s\": the host is not known: %s", text,
			  gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	strcpy(address->host, host);
	freeaddrinfo(found);
	free(copy);
}

static int is_address(const char *host)
{
	struct in6_addr address;

	return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

static SSL_CTX *context_new(const char *host, const char *authorities)
{
	SSL_CTX *context = checked(SSL_CTX_new(TLS_client_method()));
	char error[TRUST_ERROR_SIZE];

	trust_authorities_set(TRUST_GATEWAY, authorities);
	if (trust_context_set(context, TRUST_GATEWAY, host, error))
		log_fatal("%s", error);
	check(SSL_CTX_set_alpn_protos(context, protocols, sizeof(protocols) - 1) == 0);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return context;
}

void gateway_address_read(struct gateway_address *address, const struct config *config)
{
	const char *text = config->listen;

	memset(address, 0, sizeof(*address));
	if (text[0] == '/') {
		path_read(address, text);
	} else if (strncmp(text, "unix:", 5) == 0) {
		path_read(address, text + 5);
	} else {
		host_read(address, text);
		if (*config->tls_ca)
			address->tls = context_new(address->host, config->tls_ca);
	}
}

/* A socket that is connected, or connecting. -1 with errno. */
static int connect_begin(const struct gateway_address *address)
{
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int error;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&address->address, address->len) == 0 ||
	    errno == EINPROGRESS)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

#define EVENTS_MAX 256
#define LINE_BYTES 65536 /* a line that is longer comes in pieces */
#define IN_BYTES (LINE_BYTES + STREAM_BYTES)

/* Closes the socket and empties the buffers. */
static void connection_clear(struct client_connection *c)
{
	if (c->stream.fd >= 0)
		stream_close(&c->stream);
	c->stream.fd = -1;
	c->state = CLIENT_CLOSED;
	c->want_write = 0;
	c->open = 0;
	c->out_at = c->out_len = c->in_at = c->in_len = 0;
}

/*
 * The next complete line without its line end, valid until the next receive. NULL: there is none
 * yet. A line that does not fit into the buffer is returned in pieces.
 */
static const char *line_next(struct client_connection *c, size_t *len)
{
	char *line = c->in + c->in_at, *stop;

	while ((stop = memchr(line, '\n', c->in_len - c->in_at))) {
		*len = (size_t)(stop - line);
		c->in_at += *len + 1;
		if (*len > 0)
			return line;
		line = c->in + c->in_at;
	}
	if (c->in_at > 0 || c->in_len < LINE_BYTES)
		return NULL;
	*len = c->in_len;
	c->in_at = c->in_len;
	return line;
}

void client_init(struct client *client, const struct client_owner *owner,
		 const struct gateway_address *address, uint32_t n, size_t out_bytes)
{
	*client = (struct client){
		.owner = *owner,
		.address = address,
		.arena = json_arena_new(),
		.list = checked(calloc(n, sizeof(*client->list))),
		.n = n,
		.closed_n = n,
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.begin_us = clock_monotonic_us(),
	};
	check(client->epoll >= 0);
	for (uint32_t i = 0; i < n; i++) {
		client->list[i].stream.fd = -1;
		client->list[i].out = checked(malloc(out_bytes));
		client->list[i].in = checked(malloc(IN_BYTES));
	}
}

void client_fini(struct client *client)
{
	for (uint32_t i = 0; i < client->n; i++) {
		connection_clear(&client->list[i]);
		free(client->list[i].out);
		free(client->list[i].in);
	}
	free(client->list);
	json_arena_free(client->arena);
	close(client->epoll);
}

static void now_set(struct client *client)
{
	client->now_us = clock_monotonic_us() - client->begin_us;
}

void client_start(struct client *client)
{
	client->begin_us = clock_monotonic_us();
	client->now_us = 0;
	/* These times were measured from the former beginning. */
	for (uint32_t i = 0; i < client->n; i++)
		client->list[i].retry_us = 0;
}

static void watch(struct client *client, uint32_t i, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u32 = i };

	check(epoll_ctl(client->epoll, operation, client->list[i].stream.fd, &event) == 0);
}

void client_close(struct client *client, uint32_t i, const char *why)
{
	struct client_connection *c = &client->list[i];

	if (c->state == CLIENT_CONNECTED) {
		client->open_n--;
		client->disconnections++;
		client->owner.lost(client->owner.context, i);
	}
	if (c->state != CLIENT_CLOSED)
		client->closed_n++;
	snprintf(client->error, sizeof(client->error), "%s", why);
	connection_clear(c);
	c->retry_us = client->now_us + backoff_ms(&c->backoff) * 1000;
}

static void connection_open(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];

	c->stream.fd = connect_begin(client->address);
	if (c->stream.fd < 0) {
		client_close(client, i, strerror(errno));
		return;
	}
	c->state = CLIENT_CONNECTING;
	client->closed_n--;
	watch(client, i, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

void client_send(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	ssize_t n = stream_send(&c->stream, c->out + c->out_at, c->out_len - c->out_at);
	int wants;

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		client_close(client, i, strerror(errno));
		return;
	}
	if (n > 0)
		c->out_at += (size_t)n;
	if (c->out_at == c->out_len)
		c->out_at = c->out_len = 0;
	wants = c->out_len > 0 || stream_unsent(&c->stream) > 0;
	if (c->want_write != wants) {
		c->want_write = wants;
		watch(client, i, EPOLL_CTL_MOD, c->want_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

static void fill(struct client *client, uint32_t i)
{
	if (client->list[i].state == CLIENT_CONNECTED)
		client->owner.fill(client->owner.context, i);
}

static void connection_receive(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	struct client_reply reply;
	const char *line;
	size_t len;
	ssize_t n;

	c->in_len -= c->in_at;
	memmove(c->in, c->in + c->in_at, c->in_len);
	c->in_at = 0;
	n = stream_read(&c->stream, c->in + c->in_len, STREAM_READ_BYTES);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		client_close(client, i, n ? strerror(errno) : "the gateway closed the connection");
		return;
	}
	c->in_len += n > 0 ? (size_t)n : 0;
	now_set(client);
	while ((line = line_next(c, &len))) {
		int is_reply = client_reply_read(client->arena, line, len, &reply) == 0;

		client->owner.reply(client->owner.context, i, is_reply ? &reply : NULL, line, len);
	}
	fill(client, i);
}

static void connection_opened(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];

	c->state = CLIENT_CONNECTED;
	client->open_n++;
	backoff_reset(&c->backoff);
	fill(client, i);
	if (c->state == CLIENT_CONNECTED && stream_is_ready(&c->stream))
		connection_receive(client, i);
}

static void connection_secure(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	int rc;

	trust_begin();
	rc = stream_handshake(&c->stream);

	if (rc < 0)
		client_close(client, i, *trust_why() ? trust_why() : "the TLS handshake ended");
	else if (rc > 0)
		connection_opened(client, i);
}

static void connection_connected(struct client *client, uint32_t i)
{
	const struct gateway_address *address = client->address;
	struct client_connection *c = &client->list[i];
	int error = 0, fd = c->stream.fd;
	socklen_t len = sizeof(error);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	if (error) {
		client_close(client, i, strerror(error));
		return;
	}
	watch(client, i, EPOLL_CTL_MOD, EPOLLIN);
	if (!address->tls) {
		connection_opened(client, i);
		return;
	}
	stream_secure(&c->stream, checked(SSL_new(address->tls)));
	if (!is_address(address->host))
		SSL_set_tlsext_host_name(c->stream.session, address->host);
	SSL_set_connect_state(c->stream.session);
	c->state = CLIENT_SECURING;
	connection_secure(client, i);
}

static void event_take(struct client *client, uint32_t i, uint32_t events)
{
	struct client_connection *c = &client->list[i];

	if (c->state == CLIENT_CONNECTING) {
		connection_connected(client, i);
		return;
	}
	if (c->state == CLIENT_SECURING) {
		connection_secure(client, i);
		return;
	}
	if (c->state == CLIENT_CONNECTED && (events & EPOLLOUT)) {
		client_send(client, i);
		fill(client, i);
	}
	if (c->state == CLIENT_CONNECTED && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(client, i);
}

void client_wait(struct client *client, int64_t timeout_us)
{
	const struct timespec timeout = { .tv_sec = timeout_us / 1000000,
					  .tv_nsec = timeout_us % 1000000 * 1000 };
	struct pollfd waited = { .fd = client->epoll, .events = POLLIN };
	struct epoll_event events[EVENTS_MAX];
	int n;

	for (uint32_t i = 0; client->closed_n > 0 && i < client->n; i++)
		if (client->list[i].state == CLIENT_CLOSED &&
		    client->list[i].retry_us <= client->now_us)
			connection_open(client, i);
	n = epoll_wait(client->epoll, events, EVENTS_MAX, 0);
	/* epoll_wait() counts in ms, and epoll_pwait2() needs Linux 5.11. */
	if (n == 0 && ppoll(&waited, 1, &timeout, NULL) > 0)
		n = epoll_wait(client->epoll, events, EVENTS_MAX, 0);
	now_set(client);
	for (int i = 0; i < n; i++)
		event_take(client, events[i].data.u32, events[i].events);
	now_set(client);
}

/* One request, and its reply. */
struct exchange {
	struct client client;
	const char *request;
	char *reply; /* NULL: there is none yet */
	int is_sent;
};

static void exchange_fill(void *context, uint32_t i)
{
	struct exchange *exchange = context;
	struct client_connection *c = &exchange->client.list[i];

	if (exchange->is_sent)
		return;
	exchange->is_sent = 1;
	c->out_len = (size_t)sprintf(c->out, "%s\n", exchange->request);
	client_send(&exchange->client, i);
}

static void exchange_reply(void *context, uint32_t i, const struct client_reply *reply,
			   const char *line, size_t len)
{
	struct exchange *exchange = context;

	(void)i;
	(void)reply;
	if (!exchange->reply)
		exchange->reply = checked(strndup(line, len));
}

static void exchange_lost(void *context, uint32_t i)
{
	(void)context;
	(void)i;
}

char *gateway_exchange(const struct config *config, const char *request)
{
	struct exchange exchange = { .request = request };
	const struct client_owner owner = { .context = &exchange,
					    .fill = exchange_fill,
					    .reply = exchange_reply,
					    .lost = exchange_lost };
	struct client *client = &exchange.client;
	struct gateway_address address;
	const char *why;

	gateway_address_read(&address, config);
	client_init(client, &owner, &address, 1, strlen(request) + 2);
	while (!exchange.reply && !*client->error && client->now_us < TIMEOUT_US)
		client_wait(client, TIMEOUT_US - client->now_us);
	why = *client->error ? client->error : strerror(ETIMEDOUT);
	if (!exchange.is_sent)
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", config->listen,
			  why);
	if (!exchange.reply)
		log_fatal("the gateway did not reply, and the outcome is unknown: %s", why);
	client_fini(client);
	return exchange.reply;
}

int client_reply_read(struct json_arena *arena, const char *line, size_t len,
		      struct client_reply *reply)
{
	const char *error;
	const cJSON *root = json_parse(arena, line, len, &error);
	int64_t code;

	memset(reply, 0, sizeof(*reply));
	if (!cJSON_IsObject(root) ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, 99, &code))
		return -1;
	reply->code = (int)code;
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "id"), 0, JSON_INTEGER_MAX,
			 &reply->request))
		reply->request = -1;
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "retry_after_ms"), 0,
			 RETRY_AFTER_MAX_MS, &reply->retry_after_ms))
		reply->retry_after_ms = 0;
	reply->receive = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "receive"));
	reply->reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "reason"));
	return 0;
}

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
	client_stop_watch(0);
}

void client_stop_watch(int on)
{
	signal(SIGINT, on ? on_signal : SIG_DFL);
	signal(SIGTERM, on ? on_signal : SIG_DFL);
}

int client_stop_asked(void)
{
	return stop_asked;
}

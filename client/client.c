#include "client/client.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/trust.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_US 15000000        /* of an exchange: longer than the gateway's own deadlines */
#define RETRY_AFTER_MAX_MS 3600000 /* as the gateway tells at most */

#define EVENTS_MAX 256
#define LINE_BYTES (1 << 20) /* a line that is longer comes in pieces */
#define PART_ROOM 512        /* at first */
#define KEY_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define PRESENTED "{\"op\":\"auth\",\"token\":\"%s\"}\n"

/* Where a gateway listens */

void gateway_address_read(struct gateway_address *address, const struct config *config, int is_http,
			  int away)
{
	static const unsigned char alpn_lines[] = "\x08"
						  "couponmq",
				   alpn_http[] = "\x08"
						 "http/1.1";
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	const char *setting = is_http ? "COUPON_HTTP_LISTEN" : "COUPON_LISTEN",
		   *text = is_http ? config->http_listen : config->listen, *path = NULL;
	struct sockaddr_un *un = (struct sockaddr_un *)&address->address;
	char error[TRUST_ERROR_SIZE], service[16], *copy, *host;
	struct addrinfo *found;
	int port, rc;

	memset(address, 0, sizeof(*address));
	address->is_http = is_http;
	address->key = config->gateway_key;
	if (strspn(address->key, KEY_CHARACTERS) < strlen(address->key) ||
	    strlen(address->key) > GATEWAY_KEY_MAX)
		log_fatal("COUPON_GATEWAY_KEY (not shown) is invalid: allowed is an API key or a "
			  "token, up to %d letters, digits and . _ -",
			  GATEWAY_KEY_MAX);

	/* A Unix socket. */
	if (!is_http && text[0] == '/')
		path = text;
	else if (!is_http && strncmp(text, "unix:", 5) == 0)
		path = text + 5;
	if (path) {
		if (!*path || strlen(path) >= sizeof(un->sun_path))
			log_fatal("COUPON_LISTEN is \"%s\": the path of a Unix socket must have 1 "
				  "to %zu bytes",
				  path, sizeof(un->sun_path) - 1);
		un->sun_family = AF_UNIX;
		memcpy(un->sun_path, path, strlen(path) + 1);
		address->len = sizeof(*un);
		return;
	}

	copy = checked(strdup(text));
	if (config_address(copy, &host, &port) || strlen(host) >= sizeof(address->host))
		log_fatal("%s is \"%s\": allowed is %s", setting, text,
			  is_http ? "host:port" : "host:port, /path or unix:path");
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal_as(away, "%s is \"%s\": the host is not known: %s", setting, text,
			     gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	strcpy(address->host, host);
	freeaddrinfo(found);
	free(copy);

	if (!*config->tls_ca)
		return;
	address->tls = checked(SSL_CTX_new(TLS_client_method()));
	trust_authorities_set(TRUST_GATEWAY, config->tls_ca);
	if (trust_context_set(address->tls, TRUST_GATEWAY, address->host, error))
		log_fatal("%s", error);
	check(SSL_CTX_set_alpn_protos(address->tls, is_http ? alpn_http : alpn_lines,
				      sizeof(alpn_lines) - 1) == 0);
	SSL_CTX_set_mode(address->tls,
			 SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

/*
 * A socket that is connected, or connecting; -1 with errno. It comes from the address `source` of
 * 127.0.0.0/8, where 1 is 127.0.0.1; 0: from the one that the kernel chooses.
 */
static int gateway_connect(const struct gateway_address *address, uint32_t source)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(((uint32_t)127 << 24) + source),
	};
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int error = 0;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/*
	 * The kernel chooses the port when it connects: then it only has to be free for this pair
	 * of addresses.
	 */
	if (source != 0 && (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) ||
			    bind(fd, (const struct sockaddr *)&in, sizeof(in))))
		error = errno;
	else if (connect(fd, (const struct sockaddr *)&address->address, address->len) &&
		 errno != EINPROGRESS)
		error = errno;
	if (error == 0)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

/* Replies over HTTP */

void http_response_reset(struct http_response *reply)
{
	http_parser_init(&reply->parser, HTTP_RESPONSE);
	reply->parser.data = reply;
	reply->len = 0;
	reply->is_complete = 0;
}

/* A result other than 0 ends the parser; 1 and 2 would mean that the body is absent. */
static int on_head(http_parser *parser)
{
	const struct http_response *reply = parser->data;
	int is_wrong = parser->http_major != 1 || parser->http_minor != 1 ||
		       parser->status_code < 200 || parser->flags & F_CHUNKED ||
		       parser->content_length == UINT64_MAX || /* it has none */
		       parser->content_length > reply->most;

	return is_wrong ? -1 : 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct http_response *reply = parser->data;

	if (reply->room - reply->len < len) {
		size_t room = reply->room ? 2 * reply->room : PART_ROOM;

		reply->room = room > reply->len + len ? room : reply->len + len;
		reply->body = checked(realloc(reply->body, reply->room));
	}
	memcpy(reply->body + reply->len, at, len);
	reply->len += len;
	return 0;
}

static int on_complete(http_parser *parser)
{
	struct http_response *reply = parser->data;

	reply->is_complete = 1;
	http_parser_pause(parser, 1);
	return 0;
}

long http_response_feed(struct http_response *reply, const char *bytes, size_t len)
{
	static const http_parser_settings settings = { .on_headers_complete = on_head,
						       .on_body = on_body,
						       .on_message_complete = on_complete };
	size_t taken = http_parser_execute(&reply->parser, &settings, bytes, len);
	enum http_errno error = HTTP_PARSER_ERRNO(&reply->parser);

	return error == HPE_OK || (error == HPE_PAUSED && reply->is_complete) ? (long)taken : -1;
}

size_t http_response_text_len(const struct http_response *reply)
{
	size_t len = reply->len;

	while (len > 0 && strchr("\r\n", reply->body[len - 1]))
		len--;
	return len;
}

/* Connections */

/* Closes the socket and empties the buffers. */
static void connection_clear(struct client_connection *c)
{
	if (c->stream.fd >= 0)
		stream_close(&c->stream);
	c->stream.fd = -1;
	c->state = CLIENT_CLOSED;
	c->want_write = 0;
	c->open = 0;
	c->out_at = c->out_len = c->part_len = 0;
	http_response_reset(&c->http);
}

void client_init(struct client *client, const struct client_owner *owner,
		 const struct client_form *form)
{
	size_t key_bytes = strlen(form->address->key) + sizeof(PRESENTED),
	       out_bytes = form->out_bytes > key_bytes ? form->out_bytes : key_bytes;

	*client = (struct client){
		.owner = *owner,
		.form = *form,
		.arena = json_arena_new(),
		.list = checked(calloc(form->n, sizeof(*client->list))),
		.n = form->n,
		.closed_n = form->n,
		.received = checked(malloc(STREAM_BYTES)),
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.begin_us = clock_monotonic_us(),
	};
	check(client->epoll >= 0);
	for (uint32_t i = 0; i < client->n; i++) {
		client->list[i].stream.fd = -1;
		client->list[i].out = checked(malloc(out_bytes));
		client->list[i].http.most = LINE_BYTES;
		http_response_reset(&client->list[i].http);
	}
}

void client_fini(struct client *client)
{
	for (uint32_t i = 0; i < client->n; i++) {
		connection_clear(&client->list[i]);
		free(client->list[i].http.body);
		free(client->list[i].out);
		free(client->list[i].part);
	}
	free(client->list);
	free(client->received);
	json_arena_free(client->arena);
	close(client->epoll);
}

void client_start(struct client *client)
{
	client->begin_us = clock_monotonic_us();
	client->now_us = 0;
	/* These times were measured from the former beginning. */
	for (uint32_t i = 0; i < client->n; i++)
		client->list[i].retry_us = client->list[i].begun_us = 0;
}

static void watch(struct client *client, uint32_t i, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u32 = i };

	check(epoll_ctl(client->epoll, operation, client->list[i].stream.fd, &event) == 0);
}

static void connection_end(struct client *client, uint32_t i, int error, const char *why)
{
	struct client_connection *c = &client->list[i];
	int was_open = c->state == CLIENT_CONNECTED;

	snprintf(client->error, sizeof(client->error), "%s", why);
	client->error_number = error;
	if (was_open) {
		client->open_n--;
		client->disconnections++;
		if (client->owner.lost)
			client->owner.lost(client->owner.context, i);
	}
	if (c->state != CLIENT_CLOSED)
		client->closed_n++;
	connection_clear(c);
	if (!client->form.on_demand)
		c->retry_us = client->now_us + backoff_ms(&c->backoff) * 1000;
	if (!was_open && client->owner.refused)
		client->owner.refused(client->owner.context, i);
}

void client_close(struct client *client, uint32_t i, const char *why)
{
	connection_end(client, i, 0, why);
}

void client_close_unopened(struct client *client, int64_t before_us)
{
	for (uint32_t i = 0; i < client->n; i++) {
		const struct client_connection *c = &client->list[i];

		if (c->state != CLIENT_CLOSED && c->state != CLIENT_CONNECTED &&
		    c->begun_us < before_us)
			connection_end(client, i, ETIMEDOUT, "the gateway does not answer");
	}
}

void client_end(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];

	if (c->state == CLIENT_CONNECTED)
		client->open_n--;
	if (c->state != CLIENT_CLOSED)
		client->closed_n++;
	connection_clear(c);
}

void client_connect(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	uint32_t sources = client->form.sources;

	c->stream.fd = gateway_connect(client->form.address,
				       sources ? client->source_next++ % sources + 1 : 0);
	if (c->stream.fd < 0) {
		connection_end(client, i, errno, strerror(errno));
		return;
	}
	c->state = CLIENT_CONNECTING;
	c->begun_us = client->now_us;
	client->closed_n--;
	watch(client, i, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

void client_send(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	ssize_t n = stream_send(&c->stream, c->out + c->out_at, c->out_len - c->out_at);
	int wants;

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		connection_end(client, i, errno, strerror(errno));
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

static int is_open(const struct client_connection *c)
{
	return c->state == CLIENT_CONNECTED || c->state == CLIENT_PRESENTING;
}

static void fill(struct client *client, uint32_t i)
{
	if (client->list[i].state == CLIENT_CONNECTED)
		client->owner.fill(client->owner.context, i);
}

/* Requests may be sent. */
static void connection_ready(struct client *client, uint32_t i)
{
	client->list[i].state = CLIENT_CONNECTED;
	client->open_n++;
	backoff_reset(&client->list[i].backoff);
}

/*
 * Takes one reply: the verdict on the key, or else the owner's. `status`: of HTTP, which has to be
 * that of the answer; 0: it is a line.
 */
static void line_give(struct client *client, uint32_t i, const char *line, size_t len, int status)
{
	struct client_reply reply;
	int is_reply = client_reply_read(client->arena, line, len, &reply) == 0;
	enum answer answer = is_reply ? answer_from_code(reply.code) : ANSWER_COUNT;
	char why[80];

	if (status && (answer == ANSWER_COUNT || answer_http(answer) != status))
		is_reply = 0;
	if (client->list[i].state != CLIENT_PRESENTING) {
		client->owner.reply(client->owner.context, i, is_reply ? &reply : NULL, line, len);
	} else if (is_reply && reply.code == 0) {
		connection_ready(client, i);
	} else {
		snprintf(why, sizeof(why), "it refuses COUPON_GATEWAY_KEY: %s",
			 answer < ANSWER_COUNT ? answer_status(answer) : "no answer that is known");
		connection_end(client, i,
			       answer == ANSWER_UNAUTHORIZED || answer == ANSWER_FORBIDDEN ? EACCES
											   : 0,
			       why);
	}
}

/* Gives the owner each line that is complete, and keeps the part of the next one. */
static void lines_take(struct client *client, uint32_t i, const char *bytes, size_t len)
{
	struct client_connection *c = &client->list[i];

	while (is_open(c) && len > 0) {
		const char *stop = memchr(bytes, '\n', len);
		size_t n = stop ? (size_t)(stop - bytes) : len, whole = c->part_len + n;

		if (stop && c->part_len == 0) {
			if (n > 0)
				line_give(client, i, bytes, n, 0);
		} else {
			if (c->part_room < whole) {
				size_t room = c->part_room ? 2 * c->part_room : PART_ROOM;

				c->part_room = room > whole ? room : whole;
				c->part = checked(realloc(c->part, c->part_room));
			}
			memcpy(c->part + c->part_len, bytes, n);
			c->part_len = whole;
			if (stop || whole >= LINE_BYTES) {
				c->part_len = 0;
				line_give(client, i, c->part, whole, 0);
			}
		}
		bytes += n + (stop != NULL);
		len -= n + (stop != NULL);
	}
}

/* Gives the owner the body of each reply that is complete. */
static void bodies_take(struct client *client, uint32_t i, const char *bytes, size_t len)
{
	struct client_connection *c = &client->list[i];
	struct http_response *http = &c->http;

	while (c->state == CLIENT_CONNECTED && len > 0) {
		long taken = http_response_feed(http, bytes, len);

		if (taken < 0) {
			client->owner.reply(client->owner.context, i, NULL, bytes, len);
			if (c->state == CLIENT_CONNECTED)
				client_close(client, i, "it does not send HTTP replies");
			return;
		}
		bytes += taken;
		len -= (size_t)taken;
		if (!http->is_complete)
			continue;
		line_give(client, i, http->body ? http->body : "", http_response_text_len(http),
			  http->parser.status_code);
		http_response_reset(http);
	}
}

static void connection_receive(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	ssize_t n = stream_read(&c->stream, client->received, STREAM_READ_BYTES);

	if (n == 0) {
		client_close(client, i, "the gateway closed the connection");
		return;
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		connection_end(client, i, errno, strerror(errno));
		return;
	}
	client->now_us = clock_monotonic_us() - client->begin_us;
	if (n > 0 && client->form.address->is_http)
		bodies_take(client, i, client->received, (size_t)n);
	else if (n > 0)
		lines_take(client, i, client->received, (size_t)n);
	fill(client, i);
}

static void connection_opened(struct client *client, uint32_t i)
{
	const struct gateway_address *address = client->form.address;
	struct client_connection *c = &client->list[i];

	if (*address->key && !address->is_http) {
		c->state = CLIENT_PRESENTING;
		c->out_len = (size_t)sprintf(c->out, PRESENTED, address->key);
		client_send(client, i);
	} else {
		connection_ready(client, i);
	}
	fill(client, i);
	if (is_open(c) && stream_is_ready(&c->stream))
		connection_receive(client, i);
}

static void event_take(struct client *client, uint32_t i, uint32_t events)
{
	const struct gateway_address *address = client->form.address;
	struct client_connection *c = &client->list[i];
	int error = 0, rc;
	socklen_t len = sizeof(error);
	struct in6_addr numeric;
	SSL *session;

	if (c->state == CLIENT_CONNECTING) {
		if (getsockopt(c->stream.fd, SOL_SOCKET, SO_ERROR, &error, &len))
			error = errno;
		if (error) {
			connection_end(client, i, error, strerror(error));
			return;
		}
		watch(client, i, EPOLL_CTL_MOD, EPOLLIN);
		if (!address->tls) {
			connection_opened(client, i);
			return;
		}
		session = checked(SSL_new(address->tls));
		if (inet_pton(AF_INET, address->host, &numeric) != 1 &&
		    inet_pton(AF_INET6, address->host, &numeric) != 1)
			SSL_set_tlsext_host_name(session, address->host);
		SSL_set_connect_state(session);
		stream_secure(&c->stream, session);
		c->state = CLIENT_SECURING;
	}

	if (c->state == CLIENT_SECURING) {
		trust_begin();
		rc = stream_handshake(&c->stream);
		if (rc < 0)
			connection_end(client, i, EPROTO,
				       *trust_why() ? trust_why() : "the TLS handshake ended");
		else if (rc > 0)
			connection_opened(client, i);
		return;
	}

	if (is_open(c) && (events & EPOLLOUT)) {
		client_send(client, i);
		fill(client, i);
	}
	if (is_open(c) && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(client, i);
}

void client_wait(struct client *client, int64_t timeout_us)
{
	const struct timespec timeout = { .tv_sec = timeout_us / 1000000,
					  .tv_nsec = timeout_us % 1000000 * 1000 };
	struct pollfd waited = { .fd = client->epoll, .events = POLLIN };
	struct epoll_event events[EVENTS_MAX];
	int n;

	for (uint32_t i = 0; !client->form.on_demand && client->closed_n > 0 && i < client->n; i++)
		if (client->list[i].state == CLIENT_CLOSED &&
		    client->list[i].retry_us <= client->now_us)
			client_connect(client, i);
	n = epoll_wait(client->epoll, events, EVENTS_MAX, 0);
	/* epoll_wait() counts in ms, and epoll_pwait2() needs Linux 5.11. */
	if (n == 0 && ppoll(&waited, 1, &timeout, NULL) > 0)
		n = epoll_wait(client->epoll, events, EVENTS_MAX, 0);
	client->now_us = clock_monotonic_us() - client->begin_us;
	for (int i = 0; i < n; i++)
		event_take(client, events[i].data.u32, events[i].events);
	client->now_us = clock_monotonic_us() - client->begin_us;
}

/* One request, and its reply. */
struct single_request {
	struct client client;
	const char *request;
	char *reply; /* NULL: there is none yet */
	int is_sent;
};

static void exchange_fill(void *context, uint32_t i)
{
	struct single_request *exchange = context;
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
	struct single_request *exchange = context;

	(void)i;
	(void)reply;
	if (exchange->reply)
		return;
	exchange->reply = checked(malloc(len + 1));
	memcpy(exchange->reply, line, len); /* a line has no NUL at its end */
	exchange->reply[len] = '\0';
}

char *gateway_exchange(const struct config *config, const char *request, int away, int unanswered)
{
	struct single_request exchange = { .request = request };
	const struct client_owner owner = { .context = &exchange,
					    .fill = exchange_fill,
					    .reply = exchange_reply };
	struct gateway_address address;
	const struct client_form form = { .address = &address,
					  .n = 1,
					  .out_bytes = strlen(request) + 2 };
	struct client *client = &exchange.client;
	const char *why;

	gateway_address_read(&address, config, 0, away);
	client_init(client, &owner, &form);
	while (!exchange.reply && !*client->error && client->now_us < TIMEOUT_US)
		client_wait(client, TIMEOUT_US - client->now_us);
	why = *client->error ? client->error : strerror(ETIMEDOUT);
	if (!exchange.reply && (exchange.is_sent || client->error_number != EACCES))
		log_fatal_status(exchange.is_sent ? unanswered : away);
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

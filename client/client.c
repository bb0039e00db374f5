#include "client/client.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/config.h"

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
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_S 15 /* to connect, send, receive: longer than the gateway's own deadlines */
#define REPLY_MAX (1 << 20)
#define RETRY_AFTER_MAX_MS 3600000 /* as the gateway tells at most */

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
	char *copy = strdup(text), *host, service[16];
	int port, rc;

	if (!copy || config_address(copy, &host, &port))
		log_fatal("COUPON_LISTEN is \"%s\": allowed is host:port, /path or unix:path",
			  text);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal("COUPON_LISTEN is \"%s\": the host is not known: %s", text,
			  gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	freeaddrinfo(found);
	free(copy);
}

void gateway_address_read(struct gateway_address *address, const char *text)
{
	memset(address, 0, sizeof(*address));
	if (text[0] == '/')
		path_read(address, text);
	else if (strncmp(text, "unix:", 5) == 0)
		path_read(address, text + 5);
	else
		host_read(address, text);
}

/* A socket that is connected, or connecting with SOCK_NONBLOCK. -1 with errno. */
static int connect_begin(const struct gateway_address *address, int flags)
{
	const struct timeval timeout = { .tv_sec = TIMEOUT_S };
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	const int on = 1;
	int error;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* Of a socket that blocks; that to send is that to connect, too. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (const struct sockaddr *)&address->address, address->len) == 0 ||
	    (errno == EINPROGRESS && flags == SOCK_NONBLOCK))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Of a socket with a time limit. */
static const char *error_text(int error)
{
	return strerror(error == EAGAIN || error == EINPROGRESS ? ETIMEDOUT : error);
}

char *gateway_exchange(const char *listen_text, const char *request)
{
	struct gateway_address address;
	char *reply = checked(malloc(REPLY_MAX)), *got, *stop = NULL;
	FILE *stream;
	int fd;

	gateway_address_read(&address, listen_text);
	fd = connect_begin(&address, 0);
	if (fd < 0)
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", listen_text,
			  error_text(errno));
	stream = checked(fdopen(fd, "r"));
	errno = 0;
	got = dprintf(fd, "%s\n", request) > 0 ? fgets(reply, REPLY_MAX, stream) : NULL;
	while (!got && ferror(stream) && errno == EINTR) { /* stopped, and continued */
		clearerr(stream);
		got = fgets(reply, REPLY_MAX, stream);
	}
	if (got) {
		stop = strchr(reply, '\n');
		errno = feof(stream) ? ECONNRESET : EMSGSIZE;
	}
	if (!stop)
		log_fatal("the gateway did not reply, and the outcome is unknown: %s",
			  error_text(errno ? errno : ECONNRESET));
	*stop = '\0';
	fclose(stream);
	return reply;
}

#define EVENTS_MAX 256
#define IN_BYTES 65536

/* Closes the socket and empties the buffers. */
static void connection_clear(struct client_connection *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
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
	if (c->in_at > 0 || c->in_len < IN_BYTES)
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
		client->list[i].fd = -1;
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

	check(epoll_ctl(client->epoll, operation, client->list[i].fd, &event) == 0);
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

	c->fd = connect_begin(client->address, SOCK_NONBLOCK);
	if (c->fd < 0) {
		client_close(client, i, strerror(errno));
		return;
	}
	c->state = CLIENT_CONNECTING;
	client->closed_n--;
	watch(client, i, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void connection_opened(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	if (error) {
		client_close(client, i, strerror(error));
		return;
	}
	c->state = CLIENT_CONNECTED;
	client->open_n++;
	backoff_reset(&c->backoff);
	watch(client, i, EPOLL_CTL_MOD, EPOLLIN);
}

void client_send(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		client_close(client, i, strerror(errno));
		return;
	}
	if (n > 0)
		c->out_at += (size_t)n;
	if (c->out_at == c->out_len)
		c->out_at = c->out_len = 0;
	if (c->want_write != (c->out_len > 0)) {
		c->want_write = c->out_len > 0;
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
	n = recv(c->fd, c->in + c->in_len, IN_BYTES - c->in_len, 0);
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

static void event_take(struct client *client, uint32_t i, uint32_t events)
{
	struct client_connection *c = &client->list[i];

	if (c->state == CLIENT_CONNECTING) {
		connection_opened(client, i);
		fill(client, i);
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

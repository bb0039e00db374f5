#include "client/client.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/answer.h"
#include "common/message/number.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define IN_BYTES 65536
#define NUMBER_DIGITS_MAX 9

static void connection_init(struct client_connection *c, size_t out_bytes)
{
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->out = malloc(out_bytes);
	c->in = malloc(IN_BYTES);
	check(c->out != NULL && c->in != NULL);
}

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

static void connection_fini(struct client_connection *c)
{
	connection_clear(c);
	free(c->out);
	free(c->in);
}

/* Sends as much as the kernel takes. NULL, or why the connection is broken. */
static const char *bytes_send(struct client_connection *c)
{
	ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return strerror(errno);
	if (n > 0)
		c->out_at += (size_t)n;
	if (c->out_at == c->out_len)
		c->out_at = c->out_len = 0;
	return NULL;
}

/* Receives the available bytes. NULL, or why the connection has ended. */
static const char *bytes_receive(struct client_connection *c)
{
	ssize_t n;

	c->in_len -= c->in_at;
	memmove(c->in, c->in + c->in_at, c->in_len);
	c->in_at = 0;
	n = recv(c->fd, c->in + c->in_len, IN_BYTES - c->in_len, 0);
	if (n > 0)
		c->in_len += (size_t)n;
	else if (n == 0)
		return "the gateway closed the connection";
	else if (errno != EAGAIN && errno != EINTR)
		return strerror(errno);
	return NULL;
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
		.list = calloc(n, sizeof(*client->list)),
		.n = n,
		.closed_n = n,
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.begin_us = clock_monotonic_us(),
	};
	check(client->list != NULL && client->epoll >= 0);
	for (uint32_t i = 0; i < n; i++)
		connection_init(&client->list[i], out_bytes);
}

void client_fini(struct client *client)
{
	for (uint32_t i = 0; i < client->n; i++)
		connection_fini(&client->list[i]);
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

static void watch(struct client *client, struct client_connection *c, int operation,
		  uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u32 = (uint32_t)(c - client->list) };

	check(epoll_ctl(client->epoll, operation, c->fd, &event) == 0);
}

static void connection_closed(struct client *client, struct client_connection *c, const char *why)
{
	if (c->state == CLIENT_CONNECTED) {
		client->open_n--;
		client->disconnections++;
		client->owner.lost(client->owner.context, (uint32_t)(c - client->list));
	}
	if (c->state != CLIENT_CLOSED)
		client->closed_n++;
	snprintf(client->error, sizeof(client->error), "%s", why);
	connection_clear(c);
	c->retry_us = client->now_us + backoff_ms(&c->backoff) * 1000;
}

static void connection_open(struct client *client, struct client_connection *c)
{
	c->fd = gateway_connect(client->address);
	if (c->fd < 0) {
		connection_closed(client, c, strerror(errno));
		return;
	}
	c->state = CLIENT_CONNECTING;
	client->closed_n--;
	watch(client, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void connection_opened(struct client *client, struct client_connection *c)
{
	int error = gateway_connect_error(c->fd);

	if (error) {
		connection_closed(client, c, strerror(error));
		return;
	}
	c->state = CLIENT_CONNECTED;
	client->open_n++;
	backoff_reset(&c->backoff);
	watch(client, c, EPOLL_CTL_MOD, EPOLLIN);
}

void client_send(struct client *client, uint32_t i)
{
	struct client_connection *c = &client->list[i];
	const char *error = bytes_send(c);

	if (error) {
		connection_closed(client, c, error);
		return;
	}
	if (c->want_write != (c->out_len > 0)) {
		c->want_write = c->out_len > 0;
		watch(client, c, EPOLL_CTL_MOD, c->want_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

void client_close(struct client *client, uint32_t i, const char *why)
{
	connection_closed(client, &client->list[i], why);
}

static void fill(struct client *client, struct client_connection *c)
{
	if (c->state == CLIENT_CONNECTED)
		client->owner.fill(client->owner.context, (uint32_t)(c - client->list));
}

static void connection_receive(struct client *client, struct client_connection *c)
{
	const char *error = bytes_receive(c), *line;
	struct client_reply reply;
	size_t len;

	if (error) {
		connection_closed(client, c, error);
		return;
	}
	now_set(client);
	while ((line = line_next(c, &len))) {
		int is_reply = client_scan(line, len, &reply) == 0 ||
			       client_scan_strict(client->arena, line, len, &reply) == 0;

		client->owner.reply(client->owner.context, (uint32_t)(c - client->list),
				    is_reply ? &reply : NULL, line, len);
	}
	fill(client, c);
}

static void event_take(struct client *client, struct client_connection *c, uint32_t events)
{
	if (c->state == CLIENT_CONNECTING) {
		connection_opened(client, c);
		fill(client, c);
		return;
	}
	if (c->state == CLIENT_CONNECTED && (events & EPOLLOUT)) {
		client_send(client, (uint32_t)(c - client->list));
		fill(client, c);
	}
	if (c->state == CLIENT_CONNECTED && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(client, c);
}

void client_wait(struct client *client, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(client->epoll, events, EVENTS_MAX, timeout_ms);

	now_set(client);
	for (int i = 0; i < n; i++)
		if (events[i].data.u32 < client->n)
			event_take(client, &client->list[events[i].data.u32], events[i].events);
	now_set(client);
}

void client_connect(struct client *client)
{
	for (uint32_t i = 0; client->closed_n > 0 && i < client->n; i++) {
		struct client_connection *c = &client->list[i];

		if (c->state == CLIENT_CLOSED && c->retry_us <= client->now_us)
			connection_open(client, c);
	}
}

/* Moves `*p` behind `literal`. 0, or -1 when there is something else. */
static int literal_take(const char **p, const char *end, const char *literal, size_t len)
{
	if ((size_t)(end - *p) < len || memcmp(*p, literal, len) != 0)
		return -1;
	*p += len;
	return 0;
}

#define TAKE(p, end, literal) literal_take(p, end, literal, sizeof(literal) - 1)

static int number_take(const char **p, const char *end, int64_t *number)
{
	const char *first = *p;

	*number = 0;
	while (*p < end && **p >= '0' && **p <= '9' && *p - first < NUMBER_DIGITS_MAX)
		*number = *number * 10 + (*(*p)++ - '0');
	return *p > first && (*p - first == 1 || *first != '0') ? 0 : -1;
}

/* "1001" */
static int coupon_take(const char **p, const char *end)
{
	const char *quote;
	int64_t coupon;

	if (TAKE(p, end, "\""))
		return -1;
	quote = memchr(*p, '"', (size_t)(end - *p));
	if (!quote || id_parse(*p, (size_t)(quote - *p), &coupon))
		return -1;
	*p = quote + 1;
	return 0;
}

/* ,"status":"accepted","receive":"…","slot":1}; "coupon" is before "receive" if a code told it. */
static int accepted_scan(const char *p, const char *end, struct client_reply *reply)
{
	const char *quote;
	int64_t slot;

	if (TAKE(&p, end, ",\"status\":\"") ||
	    (TAKE(&p, end, "accepted") && TAKE(&p, end, "issued") && TAKE(&p, end, "queued")) ||
	    TAKE(&p, end, "\","))
		return -1;
	if (TAKE(&p, end, "\"coupon\":") == 0 && (coupon_take(&p, end) || TAKE(&p, end, ",")))
		return -1;
	if (TAKE(&p, end, "\"receive\":\""))
		return -1;
	quote = memchr(p, '"', (size_t)(end - p));
	if (!quote)
		return -1;
	reply->receive = p;
	reply->receive_len = (size_t)(quote - p);
	p = quote;
	return TAKE(&p, end, "\",\"slot\":") || number_take(&p, end, &slot) || TAKE(&p, end, "}") ||
			       p != end
		       ? -1
		       : 0;
}

int client_scan(const char *line, size_t len, struct client_reply *reply)
{
	const char *p = line, *end = line + len;
	int64_t code;

	reply->receive = NULL;
	reply->receive_len = 0;
	reply->reason = NULL;
	if (TAKE(&p, end, "{\"id\":") || number_take(&p, end, &reply->request) ||
	    TAKE(&p, end, ",\"code\":") || number_take(&p, end, &code))
		return -1;
	reply->code = (int)code;
	if (code == answer_code(ANSWER_OK))
		return accepted_scan(p, end, reply);
	/* These may have a receive in any position. */
	if (code == answer_code(ANSWER_REJECTED) || code == answer_code(ANSWER_UNKNOWN))
		return -1;
	return TAKE(&p, end, ",\"status\":\"") || end[-1] != '}' ? -1 : 0;
}

int client_scan_strict(struct json_arena *arena, const char *line, size_t len,
		       struct client_reply *reply)
{
	const char *error;
	const cJSON *root = json_parse(arena, line, len, &error), *item;
	int64_t code;

	memset(reply, 0, sizeof(*reply));
	if (!cJSON_IsObject(root) ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, 99, &code))
		return -1;
	reply->code = (int)code;
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "id"), 0, JSON_INTEGER_MAX,
			 &reply->request))
		reply->request = -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "receive");
	if (cJSON_IsString(item)) {
		reply->receive = item->valuestring;
		reply->receive_len = strlen(item->valuestring);
	}
	item = cJSON_GetObjectItemCaseSensitive(root, "reason");
	if (cJSON_IsString(item))
		reply->reason = item->valuestring;
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
	struct sigaction action = { .sa_handler = on ? on_signal : SIG_DFL };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int client_stop_asked(void)
{
	return stop_asked;
}

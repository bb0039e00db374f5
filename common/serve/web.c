#include "common/serve/web.h"

#include "common/check.h"
#include "common/array.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/serve/http_origin.h"
#include "common/serve/loop.h"
#include "common/serve/network.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TICK_MS 500
#define REQUEST_S 5 /* within it a request must arrive: the first one, and each in the reserve */
#define CONNECTIONS_MAX 512
#define OF_ADDRESS_MAX 64
#define RESERVE 16

/*
 * A connection. evhttp does not tell when one is closed: the place of its descriptor then has
 * another socket, or none, which the kernel's number of the socket shows.
 */
struct seat {
	uint64_t cookie; /* 0: the seat is free */
	uint64_t peer;
	enum room room; /* ROOM_FULL: of the reserve */
	int is_counted;
	int is_answering;
	int was_answered; /* one of its requests */
	int64_t since_ms; /* it waits for its client */
};

struct web {
	struct evhttp *evhttp;
	struct evconnlistener *listener; /* evhttp's */
	struct tls *tls;                 /* NULL: none is set */
	struct ticker *ticker;
	struct web_options options;
	struct rooms rooms;
	struct seat *seats; /* by descriptor */
	size_t seats_n, seats_size, reserve_n;
};

/* ---- seats */

static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) ? 0 : cookie;
}

static void seat_free(struct web *web, struct seat *seat)
{
	if (seat->cookie && seat->room == ROOM_FREE)
		rooms_give(&web->rooms, seat->peer, seat->is_counted);
	else if (seat->cookie)
		web->reserve_n--;
	memset(seat, 0, sizeof(*seat));
}

/* Frees the seats of connections that are closed. */
static void seats_look(struct web *web)
{
	for (size_t fd = 0; fd < web->seats_n; fd++)
		if (web->seats[fd].cookie && web->seats[fd].cookie != cookie_of((int)fd))
			seat_free(web, &web->seats[fd]);
}

/* Closes a connection, as if its client had: evhttp frees what it has of it. */
static void seat_cut(struct web *web, struct seat *seat)
{
	shutdown((int)(seat - web->seats), SHUT_RDWR);
	seat_free(web, seat);
}

/* A connection that evhttp was given. */
struct arrived {
	struct web *web;
	struct bufferevent *stream;
};

/* Seats a connection, which has its descriptor by now, or refuses it. */
static void on_seat(evutil_socket_t none, short what, void *data)
{
	static const char refusal[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
				      "Connection: close\r\nContent-Length: 0\r\n\r\n";
	struct arrived *arrived = data;
	struct web *web = arrived->web;
	struct bufferevent *stream = arrived->stream;
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(from);
	int fd = bufferevent_getfd(stream);
	struct seat *seat, taken = { .since_ms = clock_monotonic_ms() };

	(void)none;
	(void)what;
	taken.cookie = cookie_of(fd);
	if (fd < 0 || !taken.cookie || getpeername(fd, (struct sockaddr *)&from, &len))
		goto out;
	while ((size_t)fd >= web->seats_n) {
		web->seats = array_room(web->seats, web->seats_n, &web->seats_size,
					sizeof(*web->seats));
		memset(&web->seats[web->seats_n++], 0, sizeof(*web->seats));
	}
	seat = &web->seats[fd];
	seat_free(web, seat);
	taken.peer = peer_of_address((struct sockaddr *)&from);
	taken.room = rooms_take(&web->rooms, (struct sockaddr *)&from, &taken.is_counted);
	if (taken.room != ROOM_FREE) {
		seats_look(web);
		if (web->rooms.taken >= web->rooms.most) {
			struct seat *longest = NULL;

			/* The one that has waited longest for a request makes room for one more. */
			for (size_t i = 0; i < web->seats_n; i++) {
				struct seat *other = &web->seats[i];

				if (other->cookie && !other->is_answering &&
				    other->room == ROOM_FREE &&
				    (!longest || other->since_ms < longest->since_ms))
					longest = other;
			}
			if (longest)
				seat_cut(web, longest);
		}
		taken.room = rooms_take(&web->rooms, (struct sockaddr *)&from, &taken.is_counted);
	}
	if (taken.room == ROOM_FREE || (taken.room == ROOM_FULL && web->reserve_n < RESERVE)) {
		web->reserve_n += (size_t)(taken.room == ROOM_FULL);
		*seat = taken;
		goto out;
	}
	rooms_refused(&web->rooms, taken.room, (struct sockaddr *)&from);
	if (!web->tls && send(fd, refusal, sizeof(refusal) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_debug("refuse", LOG_I("fd", fd));
	shutdown(fd, SHUT_RDWR);
out:
	free(arrived);
	bufferevent_decref(stream);
}

static struct seat *seat_of(struct web *web, struct evhttp_request *request)
{
	struct evhttp_connection *connection = evhttp_request_get_connection(request);
	int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));

	return fd >= 0 && (size_t)fd < web->seats_n ? &web->seats[fd] : NULL;
}

/* ---- requests */

/* The reply is sent; the connection may bring another request. */
static void on_complete(struct evhttp_request *request, void *data)
{
	struct seat *seat = seat_of(data, request);

	if (!seat)
		return;
	seat->is_answering = 0;
	seat->was_answered = 1;
	seat->since_ms = clock_monotonic_ms();
}

static void on_request(struct evhttp_request *request, void *data)
{
	static const char *const monitored[] = { "/healthz", "/readyz", "/metrics" };
	struct web *web = data;
	const struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request)),
		   *host = evhttp_find_header(headers, "Host"),
		   *origin = evhttp_find_header(headers, "Origin"), *names = web->options.hosts;
	struct seat *seat = seat_of(web, request);
	int is_monitoring = 0, status = 0;
	char detail[320];

	if (seat) {
		seat->is_answering = 1;
		evhttp_request_set_on_complete_cb(request, on_complete, web);
	}
	for (size_t i = 0; path && i < sizeof(monitored) / sizeof(monitored[0]); i++)
		is_monitoring |= strcmp(path, monitored[i]) == 0;
	if (seat && seat->room == ROOM_FULL && !is_monitoring) {
		status = 503;
		snprintf(detail, sizeof(detail), "too many connections: nothing was done");
	} else if (names && host && !is_monitoring && !http_hosts_has(names, host)) {
		status = 421;
		snprintf(detail, sizeof(detail),
			 "Host is \"%.100s\": allowed are addresses, localhost and the names of "
			 "COUPON_HTTP_HOSTS",
			 host);
	} else if (names && origin && !http_hosts_has_origin(names, origin, host ? host : "")) {
		status = 403;
		snprintf(detail, sizeof(detail),
			 "Origin is \"%.100s\": allowed are the host itself and the names of "
			 "COUPON_HTTP_HOSTS",
			 origin);
	}
	if (!status) {
		web->options.request(request, web->options.context);
		return;
	}
	evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
	web->options.refuse(request, status, detail, web->options.context);
}

/* ---- the server */

/* evhttp would send the body after HEAD too, which must have none. */
void web_reply(struct evhttp_request *request, int status, const char *reason, const char *type,
	       struct evbuffer *body)
{
	if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD)
		evbuffer_drain(body, evbuffer_get_length(body));
	evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type);
	evhttp_send_reply(request, status, reason, body);
	evbuffer_free(body);
}

void web_reply_json(struct evhttp_request *request, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	check(body != NULL && evbuffer_add_printf(body, "%s\n", text) > 0);
	web_reply(request, status, NULL, "application/json", body);
}

int web_is_certified(struct evhttp_request *request)
{
	struct evhttp_connection *connection = evhttp_request_get_connection(request);
	SSL *session = bufferevent_openssl_get_ssl(evhttp_connection_get_bufferevent(connection));

	return session && tls_client_expires_s(session) > 0;
}

/* Called by evhttp for each accepted connection. */
static struct bufferevent *on_connection(struct event_base *base, void *data)
{
	struct web *web = data;
	struct bufferevent *stream;
	struct arrived *arrived;

	listener_accepted(web->listener);
	/* Without this option it would close the descriptor, and keep what TLS has. */
	if (!web->tls)
		stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	else
		stream = bufferevent_openssl_socket_new(base, -1,
							tls_session_new(web->tls, "http/1.1"),
							BUFFEREVENT_SSL_ACCEPTING,
							BEV_OPT_CLOSE_ON_FREE);
	arrived = checked(malloc(sizeof(*arrived)));
	*arrived = (struct arrived){ .web = web, .stream = checked(stream) };
	bufferevent_incref(stream);
	/* evhttp gives it its descriptor; this is called before anything is read from it. */
	check(event_base_once(base, -1, EV_TIMEOUT, on_seat, arrived, NULL) == 0);
	return stream;
}

static int on_tick(void *data)
{
	struct web *web = data;
	int64_t now_ms = clock_monotonic_ms();

	seats_look(web);
	for (size_t fd = 0; fd < web->seats_n; fd++) {
		struct seat *seat = &web->seats[fd];
		int s = seat->was_answered && seat->room == ROOM_FREE ? web->options.timeout_s
								      : REQUEST_S;

		if (seat->cookie && !seat->is_answering && now_ms - seat->since_ms >= s * 1000)
			seat_cut(web, seat);
	}
	if (!web->tls)
		return 1;
	tls_tick(web->tls, now_ms);
	if (web->options.tick)
		web->options.tick(web->options.context, web->tls);
	return 1;
}

void web_close(struct web *web)
{
	listener_end(web->listener);
}

void web_reload(struct web *web)
{
	if (web->tls)
		tls_reload(web->tls);
}

const struct tls *web_tls(const struct web *web)
{
	return web->tls;
}

struct web *web_new(struct event_base *base, int fd, const struct config *config,
		    const struct web_options *options)
{
	struct web *web = checked(calloc(1, sizeof(*web)));
	struct rlimit limit;
	char why[NETWORKS_WHY_SIZE];

	/* What is left is for those who are waited for, and for stores and commands. */
	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	web->rooms = (struct rooms){ .most = CONNECTIONS_MAX,
				     .of_address_max = OF_ADDRESS_MAX,
				     .address_size = sizeof(struct room_address) };
	if (limit.rlim_cur / 3 < CONNECTIONS_MAX)
		web->rooms.most = limit.rlim_cur / 3;
	check(networks_parse(&web->rooms.unlimited, config->connections_networks, why) == 0);
	web->options = *options;
	web->evhttp = checked(evhttp_new(base));
	web->tls = tls_new(config);
	web->ticker = ticker_new(base, TICK_MS, on_tick, web);
	ticker_start(web->ticker);
	evhttp_set_allowed_methods(web->evhttp, (ev_uint16_t)options->methods);
	evhttp_set_max_headers_size(web->evhttp, (ev_ssize_t)options->head_bytes_max);
	evhttp_set_max_body_size(web->evhttp, (ev_ssize_t)options->body_bytes_max);
	evhttp_set_timeout(web->evhttp, options->timeout_s);
	evhttp_set_gencb(web->evhttp, on_request, web);
	evhttp_set_bevcb(web->evhttp, on_connection, web);
	web->listener = listener_new(base, fd, NULL, NULL);
	check(evhttp_bind_listener(web->evhttp, web->listener) != NULL);
	close(fd); /* the listener has a copy */
	return web;
}

void web_free(struct web *web)
{
	evhttp_free(web->evhttp);
	ticker_free(web->ticker);
	tls_free(web->tls);
	for (size_t fd = 0; fd < web->seats_n; fd++)
		seat_free(web, &web->seats[fd]);
	free(web->seats);
	free(web);
}

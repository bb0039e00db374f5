#include "gateway/listen/arrival.h"

#include "common/check.h"
#include "common/serve/loop.h"
#include "gateway/listen/proxy.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENERS_MAX 4
#define HANDSHAKES_MAX 1024           /* at once; each holds about 50 KiB */
#define HANDSHAKES_OF_ADDRESS_MAX 256 /* so that no address has all of them */
#define HANDSHAKE_MS 10000
#define HANDSHAKE_COST 300 /* of a step that signs, about microseconds (turns.h) */

TAILQ_HEAD(handshakes, handshake);

/* The connections of one address. */
struct address {
	struct room_address room; /* first */
	size_t handshaking;
	struct handshake *turn;    /* the one that has the turn of the address */
	struct handshakes waiting; /* for it */
	UT_hash_handle hh;
};

struct listening {
	struct arrivals *arrivals;
	struct arrivals_listener settings;
	struct evconnlistener *listener;
};

struct arrivals {
	struct event_base *base;
	const struct config *config;
	struct turns *turns;
	const struct tls *tls;
	struct rooms rooms;
	size_t handshaking;
	struct networks balancers, local;
	struct listening listening[LISTENERS_MAX];
	size_t listening_n;
	const struct timeval *handshake_time; /* a common timeout */
	int is_closed;                        /* its listeners are */
	int is_stopped;
};

struct handshake {
	struct arrivals *arrivals;
	const struct listening *listening;
	struct arrival arrival;
	struct address *address; /* NULL: it is not counted */
	struct turn turn;
	TAILQ_ENTRY(handshake) next; /* of those that wait for the turn of their address */
	struct event *readable;
	struct event *timer;
	int is_waiting;
};

void arrivals_check(const struct config *config)
{
	networks_check("COUPON_CONNECTIONS_NETWORKS", config->connections_networks);
	networks_check("COUPON_PROXY_FROM", config->proxy_from);
}

void arrival_end(struct arrivals *arrivals, struct arrival *arrival)
{
	stream_close(&arrival->stream);
	if (arrival->room == ROOM_FREE)
		rooms_give(&arrivals->rooms, arrival->peer, arrival->is_counted);
}

const char *arrival_refused(enum room room)
{
	if (room == ROOM_FULL) {
		metrics_add(METRIC_CONNECTIONS_REFUSED, 1);
		return "too many connections";
	}
	metrics_add(METRIC_CONNECTIONS_REFUSED_ADDRESS, 1);
	return "too many connections of your address";
}

/* The next one of the address has its turn. */
static void turn_pass(struct handshake *handshake)
{
	struct address *address = handshake->address;
	struct handshake *next;

	turn_leave(&handshake->turn);
	if (!address || address->turn != handshake)
		return;
	next = TAILQ_FIRST(&address->waiting);
	address->turn = next;
	if (!next)
		return;
	TAILQ_REMOVE(&address->waiting, next, next);
	next->is_waiting = 0;
	turn_enter(&next->turn);
}

/* Frees everything but the connection itself. */
static void handshake_free(struct handshake *handshake)
{
	struct arrivals *arrivals = handshake->arrivals;

	if (handshake->is_waiting)
		TAILQ_REMOVE(&handshake->address->waiting, handshake, next);
	turn_pass(handshake);
	if (handshake->address)
		handshake->address->handshaking--;
	arrivals->handshaking--;
	metrics_set(METRIC_TLS_HANDSHAKING, (int64_t)arrivals->handshaking);
	event_free(handshake->readable);
	event_free(handshake->timer);
	free(handshake);
}

static void handshake_fail(struct handshake *handshake)
{
	struct arrivals *arrivals = handshake->arrivals;
	struct arrival arrival = handshake->arrival;

	metrics_add(METRIC_TLS_HANDSHAKES_FAILED, 1);
	handshake_free(handshake);
	arrival_end(arrivals, &arrival);
}

static int handshake_serve(struct turn *turn)
{
	struct handshake *handshake = turn->owner;
	const struct arrivals_listener *listener = &handshake->listening->settings;
	struct arrival arrival;
	int rc;

	if (!turn_affords(turn, HANDSHAKE_COST))
		return 1;
	turns_spend(turn->turns, HANDSHAKE_COST);
	rc = handshake->arrivals->is_stopped ? -1 : stream_handshake(&handshake->arrival.stream);
	if (rc < 0) {
		handshake_fail(handshake);
	} else if (rc == 0) {
		turn_pass(handshake);
		event_add(handshake->readable, NULL);
	} else {
		arrival = handshake->arrival;
		metrics_add(METRIC_TLS_HANDSHAKES, 1);
		if (SSL_session_reused(arrival.stream.session))
			metrics_add(METRIC_TLS_HANDSHAKES_RESUMED, 1);
		handshake_free(handshake);
		listener->take(listener->context, &arrival);
	}
	return 0;
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct handshake *handshake = data;
	struct address *address = handshake->address;

	(void)fd;
	(void)what;
	if (address && address->turn) {
		TAILQ_INSERT_TAIL(&address->waiting, handshake, next);
		handshake->is_waiting = 1;
		return;
	}
	if (address)
		address->turn = handshake;
	turn_enter(&handshake->turn);
}

static void on_late(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	handshake_fail(data);
}

static int is_crowded(const struct arrivals *arrivals, const struct address *address)
{
	return arrivals->handshaking >= HANDSHAKES_MAX ||
	       (address && address->handshaking >= HANDSHAKES_OF_ADDRESS_MAX);
}

/* A connection whose address is known. */
static void arrival_begin(const struct listening *listening, struct arrival *arrival,
			  const struct sockaddr *from)
{
	const struct arrivals_listener *settings = &listening->settings;
	struct arrivals *arrivals = listening->arrivals;
	struct address *address = NULL;
	struct handshake *handshake;

	arrival->peer = peer_of_address(from);
	network_of_address(&arrival->from, from);
	network_unmap(&arrival->from);
	arrival->is_local = from->sa_family == AF_UNIX ||
			    networks_have_address(&arrivals->local, from);
	arrival->room = rooms_take(&arrivals->rooms, from, &arrival->is_counted);
	if (arrival->room == ROOM_FULL_OF_ADDRESS)
		rooms_refused(&arrivals->rooms, arrival->room, from);
	if (!arrivals->tls || !settings->protocol) {
		settings->take(settings->context, arrival);
		return;
	}

	if (arrival->room != ROOM_FREE && !(arrival->room == ROOM_FULL && settings->has_reserve)) {
		arrival_refused(arrival->room);
		arrival_end(arrivals, arrival);
		return;
	}
	if (arrival->is_counted)
		address = (struct address *)rooms_address(&arrivals->rooms, arrival->peer);
	if (address && !address->waiting.tqh_last)
		TAILQ_INIT(&address->waiting);
	if (is_crowded(arrivals, address)) {
		metrics_add(METRIC_TLS_HANDSHAKES_REFUSED, 1);
		arrival_end(arrivals, arrival);
		return;
	}

	handshake = checked(calloc(1, sizeof(*handshake)));
	stream_secure(&arrival->stream, tls_session_new(arrivals->tls, settings->protocol));
	*handshake = (struct handshake){
		.arrivals = arrivals,
		.listening = listening,
		.arrival = *arrival,
		.address = address,
		.turn = { .turns = arrivals->turns, .serve = handshake_serve, .owner = handshake }
	};
	handshake->readable = checked(
		event_new(arrivals->base, arrival->stream.fd, EV_READ, on_readable, handshake));
	handshake->timer = checked(event_new(arrivals->base, -1, 0, on_late, handshake));
	stream_watch(&handshake->arrival.stream, handshake->readable, NULL);
	event_add(handshake->timer, arrivals->handshake_time);
	if (address)
		address->handshaking++;
	arrivals->handshaking++;
	metrics_set(METRIC_TLS_HANDSHAKING, (int64_t)arrivals->handshaking);
}

/* A connection of a balancer, which first tells whose it is. */
struct introduction {
	const struct listening *listening;
	struct stream stream;
	struct sockaddr_storage balancer;
	struct event *readable;
	struct event *timer; /* for all of it */
	size_t len;
	char bytes[PROXY_HEADER_MAX];
};

/* Ends what comes before the address is known. One that has failed is closed. */
static void introduction_end(struct introduction *introduction, int has_failed)
{
	if (has_failed) {
		metrics_add(METRIC_PROXY_FAILED, 1);
		stream_close(&introduction->stream);
	}
	introduction->listening->arrivals->handshaking--;
	event_free(introduction->readable);
	event_free(introduction->timer);
	free(introduction);
}

static void on_introduction(evutil_socket_t fd, short what, void *data)
{
	struct introduction *introduction = data;
	const struct listening *listening = introduction->listening;
	ssize_t n = recv(fd, introduction->bytes + introduction->len,
			 sizeof(introduction->bytes) - introduction->len, 0);
	enum proxy_result result = PROXY_MALFORMED; /* the balancer has ended it */
	struct arrival arrival = { .stream = introduction->stream };
	struct sockaddr_storage from = introduction->balancer;
	struct proxy_header header;

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		introduction->len += (size_t)n;
		result = proxy_parse(introduction->bytes, introduction->len, &header);
	}
	if (result == PROXY_MALFORMED)
		introduction_end(introduction, 1);
	if (result != PROXY_HEADER)
		return;

	if (header.from.ss_family != AF_UNSPEC)
		from = header.from;
	stream_put_back(&arrival.stream, introduction->bytes + header.len,
			introduction->len - header.len);
	introduction_end(introduction, 0);
	arrival_begin(listening, &arrival, (const struct sockaddr *)&from);
}

static void on_introduction_late(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	introduction_end(data, 1);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *data)
{
	const struct listening *listening = data;
	struct arrivals *arrivals = listening->arrivals;
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	struct introduction *introduction;
	struct arrival arrival = { .room = ROOM_FULL };
	int on = 1;

	listener_accepted(listener);
	if (arrivals->is_stopped) {
		close(fd);
		return;
	}
	memcpy(&from, address, (size_t)len);
	if (address->sa_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!networks_have_address(&arrivals->balancers, address)) {
		stream_init(&arrival.stream, fd);
		arrival_begin(listening, &arrival, (const struct sockaddr *)&from);
		return;
	}

	if (is_crowded(arrivals, NULL)) {
		metrics_add(METRIC_TLS_HANDSHAKES_REFUSED, 1);
		close(fd);
		return;
	}
	introduction = checked(calloc(1, sizeof(*introduction)));
	introduction->listening = listening;
	stream_init(&introduction->stream, fd);
	introduction->balancer = from;
	introduction->readable = checked(
		event_new(arrivals->base, fd, EV_READ | EV_PERSIST, on_introduction, introduction));
	introduction->timer = checked(
		event_new(arrivals->base, -1, 0, on_introduction_late, introduction));
	event_add(introduction->readable, NULL);
	event_add(introduction->timer, arrivals->handshake_time);
	arrivals->handshaking++;
}

struct arrivals *arrivals_new(struct event_base *base, const struct config *config,
			      struct turns *turns, const struct tls *tls)
{
	static const struct timeval handshake_time = { .tv_sec = HANDSHAKE_MS / 1000 };
	struct arrivals *arrivals = checked(calloc(1, sizeof(*arrivals)));
	char why[NETWORKS_WHY_SIZE];

	*arrivals = (struct arrivals){ .base = base, .config = config, .turns = turns, .tls = tls };
	arrivals->handshake_time = event_base_init_common_timeout(base, &handshake_time);
	check(arrivals->handshake_time != NULL);
	arrivals->rooms = (struct rooms){
		.most = (size_t)config->connections_max,
		.of_address_max = (size_t)config->connections_per_address_max,
		.address_size = sizeof(struct address),
	};
	check(networks_parse(&arrivals->rooms.unlimited, config->connections_networks, why) == 0);
	check(networks_parse(&arrivals->balancers, config->proxy_from, why) == 0);
	check(networks_parse(&arrivals->local, "127.0.0.0/8,::1", why) == 0);
	return arrivals;
}

void arrivals_listen(struct arrivals *arrivals, const struct arrivals_listener *settings)
{
	struct listening *listening = &arrivals->listening[arrivals->listening_n++];

	check(arrivals->listening_n <= LISTENERS_MAX);
	*listening = (struct listening){ .arrivals = arrivals, .settings = *settings };
	listening->listener = listener_new(arrivals->base, settings->fd, on_accept, listening);
}

void arrivals_close(struct arrivals *arrivals)
{
	if (arrivals->is_closed)
		return;
	arrivals->is_closed = 1;
	for (size_t i = 0; i < arrivals->listening_n; i++)
		listener_close(arrivals->listening[i].listener);
}

void arrivals_stop(struct arrivals *arrivals)
{
	arrivals->is_stopped = 1;
	arrivals_close(arrivals);
}

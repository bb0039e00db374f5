#include "gateway/listen/intake.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/serve/loop.h"
#include "common/serve/network.h"
#include "gateway/metrics.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

void turns_init(struct turns *turns, void (*wake)(void *context), void *context)
{
	*turns = (struct turns){ .wake = wake, .context = context };
	TAILQ_INIT(&turns->fresh);
	TAILQ_INIT(&turns->busy);
}

static int is_empty(const struct turns *turns)
{
	return TAILQ_EMPTY(&turns->fresh) && TAILQ_EMPTY(&turns->busy);
}

static void queue_add(struct turn_queue *queue, struct turn *turn)
{
	turn->queue = queue;
	TAILQ_INSERT_TAIL(queue, turn, next);
}

static void queue_remove(struct turn *turn)
{
	TAILQ_REMOVE(turn->queue, turn, next);
	turn->queue = NULL;
}

void turn_enter(struct turn *turn)
{
	struct turns *turns = turn->turns;
	int was_empty = is_empty(turns);

	if (turn->queue)
		return;
	queue_add(&turns->fresh, turn);
	if (was_empty && !turns->serving)
		turns->wake(turns->context);
}

void turn_leave(struct turn *turn)
{
	if (turn->queue)
		queue_remove(turn);
	if (turn->turns->serving == turn)
		turn->turns->serving = NULL;
}

void turns_spend(struct turns *turns, int64_t cost)
{
	turns->spent += cost;
	if (turns->serving)
		turns->serving->credit -= cost;
}

int turn_is_over(const struct turn *turn)
{
	return turn->credit <= 0 || turn->credit < turn->wanted;
}

int turn_affords(struct turn *turn, int64_t cost)
{
	turn->wanted = cost > TURN_COST && cost > turn->credit ? cost : 0;
	return turn->wanted == 0;
}

/* What was spent beyond the credit is owed: one that does dear things has fewer turns. */
static void turn_serve(struct turns *turns, struct turn *turn)
{
	int was_fresh = turn->queue == &turns->fresh, more = 1;
	int64_t credit_max = turn->wanted > TURN_COST ? turn->wanted : TURN_COST;

	queue_remove(turn);
	turn->credit += TURN_COST;
	if (turn->credit > credit_max)
		turn->credit = credit_max;
	turns->serving = turn;
	turns->spent += TURN_COST_LEAST;
	if (!turn_is_over(turn))
		more = turn->serve(turn);
	if (turns->serving != turn)
		return;
	turns->serving = NULL;
	if (turn->queue) { /* it entered while it was served */
		queue_remove(turn);
		more = 1;
	}
	if (more || (was_fresh && !TAILQ_EMPTY(&turns->busy)))
		queue_add(&turns->busy, turn);
}

int turns_run(struct turns *turns)
{
	int64_t until = turns->spent + TURNS_COST;

	check(!turns->serving);
	while (!is_empty(turns) && turns->spent < until)
		turn_serve(turns, TAILQ_EMPTY(&turns->fresh) ? TAILQ_FIRST(&turns->busy)
							     : TAILQ_FIRST(&turns->fresh));
	return !is_empty(turns);
}

#define NETWORK_BYTES 8 /* of an IPv6 address */

uint64_t peer_of_address(const struct sockaddr *address)
{
	struct network network;

	if (network_of_address(&network, address))
		return hash_keyed("", 0);
	network_unmap(&network);
	return hash_keyed(network.bytes, network.family == AF_INET ? 4 : NETWORK_BYTES);
}

/* The connections of one address. */
struct address {
	uint64_t peer;
	size_t connections;
	UT_hash_handle hh;
};

#define BYTES_OF_COST 64 /* that are parsed in about a microsecond */
#define COST_BAD 4       /* of a text that is no request */
#define LISTENERS_MAX 4
/*
 * From this part of inflight_max on, connections with more in flight than their share wait: what
 * one client has in flight is before what the others send next. Very few need no shares.
 */
#define SHARED_INFLIGHT_PART 16
#define SHARED_INFLIGHT_LEAST 64

struct listening {
	struct intake *intake;
	struct evconnlistener *listener;
	intake_accept_fn *accept;
	void *context;
};

struct intake {
	const struct config *config;
	struct json_arena *arena;
	size_t inflight;
	size_t inflight_max;
	size_t connections;
	struct address *addresses; /* those with connections that are counted */
	struct networks unlimited;
	intake_dispatch_fn *dispatch;
	void *context;
	struct turns turns;
	struct event *turn;          /* active while a connection waits for its turn */
	LIST_HEAD(, client) holding; /* those that hold something */
	size_t holding_n;
	size_t held_bytes;
	struct event_base *base;
	struct listening listening[LISTENERS_MAX];
	size_t listening_n;
	int is_stopped;
};

static void networks_check(const char *setting, const char *text)
{
	char why[NETWORKS_WHY_SIZE];
	struct networks networks;

	if (networks_parse(&networks, text, why))
		log_fatal("%s is \"%s\": %s", setting, text, why);
}

void intake_check(const struct config *config)
{
	networks_check("COUPON_CONNECTIONS_NETWORKS", config->connections_networks);
	networks_check("COUPON_PROXY_FROM", config->proxy_from);
}

/* After what else is active in this turn of the loop. */
static void turns_wake(void *context)
{
	struct intake *intake = context;

	event_active(intake->turn, EV_TIMEOUT, 1);
}

/* The others are served when the loop has looked at its sockets. */
static void on_turn(evutil_socket_t fd, short what, void *data)
{
	static const struct timeval at_once = { 0 };
	struct intake *intake = data;

	(void)fd;
	(void)what;
	if (turns_run(&intake->turns))
		event_add(intake->turn, &at_once);
}

struct intake *intake_new(struct event_base *base, const struct config *config,
			  intake_dispatch_fn *dispatch, void *context)
{
	struct intake *intake = checked(calloc(1, sizeof(*intake)));
	char why[NETWORKS_WHY_SIZE];

	intake->config = config;
	intake->arena = json_arena_new();
	intake->inflight_max = (size_t)config->inflight_max;
	check(networks_parse(&intake->unlimited, config->connections_networks, why) == 0);
	intake->dispatch = dispatch;
	intake->context = context;
	intake->base = base;
	turns_init(&intake->turns, turns_wake, intake);
	intake->turn = checked(event_new(base, -1, 0, on_turn, intake));
	return intake;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *data)
{
	const struct listening *listening = data;
	int on = 1;

	(void)len;
	listener_accepted(listener);
	if (listening->intake->is_stopped) {
		close(fd);
		return;
	}
	if (address->sa_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	listening->accept(listening->context, fd);
}

void intake_listen(struct intake *intake, int fd, intake_accept_fn *accept, void *context)
{
	struct listening *listening = &intake->listening[intake->listening_n++];

	check(intake->listening_n <= LISTENERS_MAX);
	*listening = (struct listening){ .intake = intake, .accept = accept, .context = context };
	listening->listener = listener_new(intake->base, fd, on_accept, listening);
}

void intake_stop(struct intake *intake)
{
	intake->is_stopped = 1;
	for (size_t i = 0; i < intake->listening_n; i++)
		evconnlistener_disable(intake->listening[i].listener);
}

int intake_is_stopped(const struct intake *intake)
{
	return intake->is_stopped;
}

static void request_enter(struct intake *intake)
{
	intake->inflight++;
	metrics_add(METRIC_REQUESTS, 1);
	metrics_set(METRIC_INFLIGHT, (int64_t)intake->inflight);
}

int64_t intake_text_cost(size_t len)
{
	return (int64_t)(len / BYTES_OF_COST);
}

void intake_request(struct intake *intake, const char *text, size_t len, enum request_op op,
		    struct responder *responder)
{
	int over = intake->inflight >= intake->inflight_max;
	struct request *request;

	request_enter(intake);
	request = request_parse(intake->arena, text, len, op, responder);
	turns_spend(&intake->turns,
		    intake_text_cost(len) +
			    (request ? request_operations[request->op].cost : COST_BAD));
	if (!request)
		return;
	if (over)
		request_fail(request, ANSWER_BUSY, NULL);
	else
		intake->dispatch(intake->context, request);
}

void intake_refuse(struct intake *intake, struct responder *responder, enum answer answer,
		   const char *message)
{
	request_enter(intake);
	turns_spend(&intake->turns, COST_BAD);
	responder_line(responder, answer, answer_message_line("", answer, message));
}

/* Whether the connections of this address are counted. */
static int is_limited(const struct intake *intake, const struct sockaddr *address)
{
	struct network one;

	if (intake->config->connections_per_address_max == 0 || network_of_address(&one, address))
		return 0;
	network_unmap(&one);
	return !networks_have(&intake->unlimited, &one);
}

static struct address *address_of(struct intake *intake, uint64_t peer)
{
	struct address *address;

	HASH_FIND(hh, intake->addresses, &peer, sizeof(peer), address);
	if (address)
		return address;
	address = checked(calloc(1, sizeof(*address)));
	address->peer = peer;
	HASH_ADD(hh, intake->addresses, peer, sizeof(peer), address);
	return address;
}

static void full_log(const struct sockaddr *from, socklen_t len)
{
	char text[NI_MAXHOST] = "";

	getnameinfo(from, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
	log_warn("connections_of_address", LOG_S("address", text),
		 LOG_S("reason", "COUPON_CONNECTIONS_PER_ADDRESS_MAX"));
}

static enum intake_room room_take(struct intake *intake, struct client *client, int fd)
{
	struct sockaddr_storage storage = { .ss_family = AF_UNSPEC };
	struct sockaddr *from = (struct sockaddr *)&storage;
	socklen_t len = sizeof(storage);
	struct address *address;

	getpeername(fd, from, &len);
	client->responder.peer = peer_of_address(from);
	if (intake->connections >= (size_t)intake->config->connections_max)
		return INTAKE_FULL;
	if (is_limited(intake, from)) {
		address = address_of(intake, client->responder.peer);
		if (address->connections >= (size_t)intake->config->connections_per_address_max) {
			full_log(from, len);
			return INTAKE_FULL_OF_ADDRESS;
		}
		address->connections++;
		client->is_counted = 1;
	}
	intake->connections++;
	return INTAKE_ROOM;
}

enum intake_room client_open(struct client *client, struct intake *intake, int fd)
{
	client->intake = intake;
	client->turn.turns = &intake->turns;
	client->room = room_take(intake, client, fd);
	return client->room;
}

void client_close(struct client *client)
{
	struct intake *intake = client->intake;
	struct address *address;

	client_hold(client, 0);
	turn_leave(&client->turn);
	if (client->room != INTAKE_ROOM)
		return;
	check(intake->connections > 0);
	intake->connections--;
	if (!client->is_counted)
		return;
	address = address_of(intake, client->responder.peer);
	check(address->connections > 0);
	if (--address->connections > 0)
		return;
	HASH_DEL(intake->addresses, address);
	free(address);
}

const char *client_refused(enum intake_room room)
{
	if (room == INTAKE_FULL) {
		metrics_add(METRIC_CONNECTIONS_REFUSED, 1);
		return "too many connections";
	}
	metrics_add(METRIC_CONNECTIONS_REFUSED_ADDRESS, 1);
	return "too many connections of your address";
}

void client_hold(struct client *client, size_t bytes)
{
	struct intake *intake = client->intake;

	if (client->held_bytes == 0 && bytes > 0) {
		LIST_INSERT_HEAD(&intake->holding, client, next);
		intake->holding_n++;
	} else if (client->held_bytes > 0 && bytes == 0) {
		LIST_REMOVE(client, next);
		intake->holding_n--;
	}
	intake->held_bytes += bytes - client->held_bytes;
	client->held_bytes = bytes;
	metrics_set(METRIC_CONNECTIONS_HELD, (int64_t)intake->held_bytes);
}

int client_is_over_share(const struct client *client, size_t bytes)
{
	const struct intake *intake = client->intake;
	size_t half = (size_t)intake->config->socket_buffer_bytes / 2;

	return intake->held_bytes > half && bytes > half / intake->holding_n;
}

void client_cut(struct client *client, const char *reason)
{
	log_warn("connection_cut", LOG_S("reason", reason));
	metrics_add(METRIC_CONNECTIONS_CUT, 1);
	client->cut(client);
}

void intake_relieve(struct intake *intake)
{
	while (intake->held_bytes > (size_t)intake->config->socket_buffer_bytes) {
		struct client *client, *most = LIST_FIRST(&intake->holding);

		LIST_FOREACH (client, &intake->holding, next)
			if (client->held_bytes > most->held_bytes)
				most = client;
		client_hold(most, 0);
		client_cut(most, "all connections hold more than COUPON_SOCKET_BUFFER_BYTES");
	}
}

void intake_answered(struct intake *intake, enum answer answer)
{
	check(intake->inflight > 0);
	intake->inflight--;
	metrics_set(METRIC_INFLIGHT, (int64_t)intake->inflight);
	metrics_add(METRIC_ANSWERS + answer, 1);
}

size_t intake_inflight(const struct intake *intake)
{
	return intake->inflight;
}

size_t intake_held_bytes(const struct intake *intake)
{
	return intake->held_bytes;
}

size_t intake_inflight_share(const struct intake *intake, size_t connections)
{
	size_t most = (size_t)intake->config->inflight_per_connection_max, shared, share;

	shared = intake->inflight_max / SHARED_INFLIGHT_PART;
	if (shared < SHARED_INFLIGHT_LEAST || intake->inflight < shared)
		return most;
	share = connections > 0 ? shared / connections : shared;
	return share < 1 ? 1 : share < most ? share : most;
}

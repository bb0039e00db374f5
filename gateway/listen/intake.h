/*
 * Takes in requests from the socket API and HTTP: parses and counts them, refuses them with busy
 * beyond the limit, and passes them on to `dispatch`. Counts the connections of both, together and
 * by address, lets them take turns, and bounds what they hold. The responder's reply function calls
 * intake_answered() for each reply.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/request.h"

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

/*
 * Who is served next: connections with input take turns, each for a small cost, so that one that
 * sends much keeps the others waiting for a moment only. One thread, no I/O.
 *
 * One that had nothing to do comes before those that have been served and have more (as in
 * FQ-CoDel, RFC 8290): it need not wait for the round of the busy ones. After its turn it is
 * behind them until the round has passed it, so that it cannot come first again and again.
 */

/* About microseconds; op_table.h has the cost of each operation. */
#define TURN_COST 16      /* of one connection, in one turn */
#define TURNS_COST 2000   /* of all, before the event loop looks at its sockets again */
#define TURN_COST_LEAST 1 /* of a turn in which there was nothing to do */

struct turn;

/* Serves until turn_is_over(); returns whether there is more to do. May leave or free the turn. */
typedef int turn_serve_fn(struct turn *turn);

/* Embedded by its owner. */
struct turn {
	TAILQ_ENTRY(turn) next;
	struct turns *turns;
	turn_serve_fn *serve;
	struct turn_queue *queue; /* NULL: it has nothing to do */
	int64_t credit;
	int64_t wanted; /* it is not served before it has so much */
	void *owner;
};

TAILQ_HEAD(turn_queue, turn);

struct turns {
	struct turn_queue fresh;
	struct turn_queue busy;
	struct turn *serving; /* NULL: none, or it has left */
	int64_t spent;        /* by all, ever */
	void (*wake)(void *context);
	void *context;
};

/* `wake` is called when there is something to do after there was nothing. */
void turns_init(struct turns *turns, void (*wake)(void *context), void *context);
/* Serves for TURNS_COST; returns whether there is more to do. */
int turns_run(struct turns *turns);

/* It has something to do. */
void turn_enter(struct turn *turn);
/* It is served no more, until it enters again. */
void turn_leave(struct turn *turn);
/* For who serves: something was done on behalf of the turn, and whether that was enough. */
void turns_spend(struct turns *turns, int64_t cost);
int turn_is_over(const struct turn *turn);
/*
 * Whether the turn is enough for what costs so much. If not, it is over, and the next one comes
 * after as many rounds as it costs: what is dear is paid for in advance, else the first of many
 * connections would keep the others waiting for the sum.
 */
int turn_affords(struct turn *turn, int64_t cost);

/*
 * Who sends, as far as a socket tells: the key for limits by client, the same in all processes of a
 * gateway. A keyed hash of the network: an IPv4 address, or the /64 of an IPv6 address, for who has
 * one address of it has all. All clients of Unix sockets have one.
 */
uint64_t peer_of_address(const struct sockaddr *address);

enum intake_room { INTAKE_ROOM, INTAKE_FULL, INTAKE_FULL_OF_ADDRESS };

struct intake;

typedef void intake_dispatch_fn(void *context, struct request *request);

/*
 * A connection, as intake knows it. Embedded by its owner, which sets the reply of its responder,
 * how it is served, and how it is cut.
 */
struct client {
	struct responder responder; /* first: a responder is its client */
	struct intake *intake;
	struct turn turn;
	LIST_ENTRY(client) next; /* while it holds something */
	size_t held_bytes;
	void (*cut)(struct client *client); /* closes the connection, now or soon */
	enum intake_room room;
	int is_counted; /* among those of its address */
};

/* Takes over the socket of a new connection. */
typedef void intake_accept_fn(void *context, int fd);

/* Ends the program if a setting is malformed. */
void intake_check(const struct config *config);

struct intake *intake_new(struct event_base *base, const struct config *config,
			  intake_dispatch_fn *dispatch, void *context);

/* Accepts on a bound socket, which the caller keeps. */
void intake_listen(struct intake *intake, int fd, intake_accept_fn *accept, void *context);
void intake_stop(struct intake *intake); /* accepts no more */
int intake_is_stopped(const struct intake *intake);

/* Of a request with so much text, before it is known which one it is (struct turns). */
int64_t intake_text_cost(size_t len);
/*
 * Takes one request's text; exactly one reply follows, now or later. `op` as request_parse.
 */
void intake_request(struct intake *intake, const char *text, size_t len, enum request_op op,
		    struct responder *responder);
/* The same for a request that was never parsed, for instance for its length. */
void intake_refuse(struct intake *intake, struct responder *responder, enum answer answer,
		   const char *message);

/*
 * Sets whose connection it is, and counts it while there is room: by connections_max, and for its
 * address. Returns `room`.
 */
enum intake_room client_open(struct client *client, struct intake *intake, int fd);
/* It is served no more, and holds nothing. */
void client_close(struct client *client);
/* Counts one that is refused, and returns the message for it. */
const char *client_refused(enum intake_room room);

/*
 * What connections hold in memory for their clients: input that is not served yet, and replies that
 * are not read. All together have a bound, COUPON_SOCKET_BUFFER_BYTES.
 */

/* From now on it holds so much. */
void client_hold(struct client *client, size_t bytes);
/*
 * Whether so many bytes are more than the share of one that holds anything. There are no shares
 * while all together hold less than half of what is allowed.
 */
int client_is_over_share(const struct client *client, size_t bytes);
/* Logs, counts and cuts. */
void client_cut(struct client *client, const char *reason);
/* Cuts those that hold most, while all together hold more than is allowed. */
void intake_relieve(struct intake *intake);

void intake_answered(struct intake *intake, enum answer answer);
size_t intake_inflight(const struct intake *intake);
/* What all connections hold; once they are stopped, replies that are not yet in the kernel. */
size_t intake_held_bytes(const struct intake *intake);
/* How many a connection may have in flight, while so many have some. At least 1. */
size_t intake_inflight_share(const struct intake *intake, size_t connections);

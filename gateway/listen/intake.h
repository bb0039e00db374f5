/*
 * Takes in requests from the socket API and HTTP: parses and counts them, refuses them with busy
 * beyond the limit, and passes them on to `dispatch`. Lets the connections of both take turns, and
 * bounds what they hold. The responder's reply function calls intake_answered() for each reply.
 */
#pragma once

#include "common/message/trace_context.h"
#include "common/program/config.h"
#include "gateway/auth/auth.h"
#include "gateway/listen/arrival.h"
#include "gateway/listen/request.h"
#include "gateway/listen/turns.h"

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

struct intake;

typedef void intake_dispatch_fn(void *context, struct request *request);

/*
 * A connection, of lines or of HTTP. Embedded by its owner, which frames what is received and sent,
 * and sets the reply of its responder, how it is served, and how it is cut.
 */
struct connection {
	struct responder responder; /* first: a responder is its connection */
	struct intake *intake;
	struct arrival arrival;
	struct turn turn;
	LIST_ENTRY(connection) open;
	int is_met;     /* it was read from */
	int is_serving; /* not to be freed */
	int is_closed;

	/* The bytes of the connection. */
	struct event *readable;  /* pending while it is read from */
	struct event *writable;  /* pending while the kernel takes no output */
	struct evbuffer *input;  /* was read, and is not served yet */
	struct evbuffer *output; /* the stream has not taken it yet */
	size_t held_bytes;
	LIST_ENTRY(connection) next;                /* while it holds something */
	void (*cut)(struct connection *connection); /* closes the connection, now or soon */

	/*
	 * The question to the stores for the key that it has presented; 0: none is open. Nothing
	 * more is taken from it meanwhile. `asked` is the request of the socket API; over HTTP it
	 * is NULL, and `again` takes the request from the beginning.
	 */
	uint64_t asking;
	LIST_ENTRY(connection) next_asking;
	struct request *asked;
	int is_asked; /* the stores have been asked, as auth_identify() takes it */
	void (*again)(struct connection *connection);

	/* The key that a certificate or a user id stands for, or "". */
	char proof[KEY_ID_LEN + 1];
	int64_t proof_ends_ms; /* by the wall clock: when a certificate has expired */
};

/* `auth` is NULL if whoever asks may do everything. TLS is by the settings. */
struct intake *intake_new(struct event_base *base, const struct config *config, struct auth *auth,
			  intake_dispatch_fn *dispatch, void *context);

/* A question to the stores for keys has ended: goes on with those who wait for it. */
void intake_keys_told(struct intake *intake);

/* Several times a second: looks at the files of certificates and keys. */
void intake_tick(struct intake *intake, int64_t now_ms);
void intake_reload(struct intake *intake); /* now */
/* Appends what is wrong with them. */
void intake_warnings(const struct intake *intake, cJSON *array);

struct arrivals *intake_arrivals(struct intake *intake); /* to listen */
void intake_drain(struct intake *intake); /* each connection of HTTP ends with its next reply */
int intake_is_draining(const struct intake *intake);
void intake_stop(struct intake *intake); /* accepts no more */
int intake_is_stopped(const struct intake *intake);

/* The cost of a request with so much text, before its operation is known (struct turns). */
int64_t intake_text_cost(size_t len);
/* Takes the text of a request; exactly one reply follows, now or later. `op` as request_parse(). */
void intake_request(struct intake *intake, const char *text, size_t len, enum request_op op,
		    struct responder *responder);
/*
 * Authenticates the next request of a connection of HTTP by the text that is presented with it;
 * NULL: nothing is, and the certificate or the Unix user of the connection counts. Returns 0; -1:
 * the request was refused; 1: the stores are asked for the key, and connection->again() is called
 * when they have answered.
 */
int intake_identify(struct intake *intake, struct connection *connection, const char *text,
		    size_t len);
/* The limits that have refused the last request as rate_limited, for headers. */
const struct auth_answer *intake_limited(const struct intake *intake);
/* Whether the client may see what operators see. */
enum answer intake_monitor(struct intake *intake, struct connection *connection);

/* Refuses a request that was never parsed, for instance for its length. */
void intake_refuse(struct intake *intake, struct responder *responder, enum answer answer,
		   const char *message);

/* Takes over the connection. The callbacks get its owner, and no event is pending. */
void connection_open(struct connection *connection, struct intake *intake,
		     const struct arrival *arrival, event_callback_fn on_readable,
		     event_callback_fn on_writable);
/* Closes it. It is served no more, and holds nothing; what refers to it may still be there. */
void connection_close(struct connection *connection);
/* Frees what a closed one has. */
void connection_fini(struct connection *connection);
/*
 * Reads at most `most` bytes, for which its turn pays. Returns how many that made, as
 * stream_read(); 0: the client sends no more.
 */
#define CONNECTION_LATER (-1) /* nothing is there yet */
#define CONNECTION_BROKEN (-2)
ssize_t connection_read(struct connection *connection, char bytes[STREAM_BYTES], size_t most);
/* Bytes of the output that are not in the kernel yet. */
size_t connection_unsent(const struct connection *connection);
/* Notices whether the client has left (struct responder), while nothing is read from it. */
void connection_look(struct connection *connection);
/* API keys have changed: cuts the connections whose keys were revoked. */
void intake_keys_changed(struct intake *intake);

/*
 * What connections hold in memory for their clients: input that is not served yet, and replies that
 * are not read. All together have a bound, COUPON_BUFFER_BYTES.
 */

/* From now on it holds so much. */
void connection_hold(struct connection *connection, size_t bytes);
/*
 * Whether so many bytes are more than the share of one that holds anything. There are no shares
 * while all together hold less than half of what is allowed.
 */
int connection_is_over_share(const struct connection *connection, size_t bytes);
/* Logs, counts and cuts. */
void connection_cut(struct connection *connection, const char *reason);
/* Cuts those that hold most, while all together hold more than is allowed. */
void intake_relieve(struct intake *intake);

/* Counts a reply. */
void intake_answered(struct intake *intake, enum answer answer);

/* Whether the next answer is logged: one of COUPON_LOG_ACCESS, by chance. */
int intake_logs(struct intake *intake);

/* An HTTP request, as far as the client and its path tell. */
struct access_http {
	const char *of; /* the operation or page; NULL: none */
	int status;
	char id[REQUEST_NAME_MAX + 1]; /* X-Request-Id */
	struct trace_context trace;    /* empty: none */
	const struct api_key *key;     /* NULL: none */
};

/*
 * The access log (COUPON_LOG_ACCESS): a line, event=request, for each answer that intake_logs() has
 * chosen. It has no secret: of who asks only the id of the key, and of what the client wrote only
 * the coupon and the names that it gives to its request. `request` is NULL where none was parsed,
 * `http` for the lines of the socket API.
 */
void access_log(const struct connection *connection, const struct request *request,
		enum answer answer, const struct access_http *http);

size_t intake_inflight(const struct intake *intake);
/* What all connections hold; once they are stopped, replies that are not yet in the kernel. */
size_t intake_held_bytes(const struct intake *intake);
/* How many requests a connection may have in flight while so many have some. At least 1. */
size_t intake_inflight_share(const struct intake *intake, size_t connections);

/*
 * A client of the gateway's servers over a real socket: bytes are sent cut at random places, and
 * the replies are kept. The requests end in the dispatch function, which answers with the request
 * itself, at once or later and out of order; claim is `busy` for the milliseconds that its code
 * is, or `unavailable`.
 */
#pragma once

#include "tests/fuzz/fuzz.h"

#include "common/program/config.h"
#include "common/log/log.h"
#include "gateway/listen/intake.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define WIRE_ORIGIN "https://shop.example" /* of the web pages that may read replies over HTTP */
#define WIRE_LIMIT_BYTES 256 /* of a line or body: small, so that the fuzzer exceeds it */
#define WIRE_TURNS_MAX 1000
#define WIRE_TURNS_QUIET 6 /* turns without a new byte after which the output is complete */

struct wire {
	struct event_base *base;
	struct intake *intake;
	struct config config;
	int fd; /* listens */
	struct sockaddr_in address;
	int later; /* requests are kept until wire_answer() */
	struct request_list kept;
	size_t dispatched;
};

/* The bytes that a client received. */
struct wire_text {
	char *bytes;
	size_t len;
	size_t room;
};

static inline void wire_answer_one(struct request *request)
{
	enum answer answer = ANSWER_OK;
	cJSON *object = cJSON_CreateObject();
	char id[ID_SIZE];
	int64_t ms;

	check(object != NULL);
	if (request->op == OP_CLAIM) {
		answer = ANSWER_UNAVAILABLE;
		if (id_parse(request_code(request), request->code_len, &ms) == 0) {
			answer = ANSWER_BUSY;
			cJSON_AddNumberToObject(object, "retry_after_ms", (double)(ms % 3600001));
		}
		cJSON_AddStringToObject(object, "message", "later");
	}
	if (request->op == OP_ISSUE) {
		id_format(request->coupon, id);
		cJSON_AddStringToObject(object, "coupon", id);
		cJSON_AddStringToObject(object, "user", request->user.text);
		cJSON_AddStringToObject(object, "key", request_key(request));
	}
	request_answer_object(request, answer, NULL, object);
}

static inline void wire_dispatch(void *context, struct request *request)
{
	struct wire *wire = context;

	wire->dispatched++;
	if (wire->later)
		STAILQ_INSERT_HEAD(&wire->kept, request, next);
	else
		wire_answer_one(request);
}

/* Answers what was kept, the newest first. */
static inline void wire_answer(struct wire *wire)
{
	struct request *request;

	while ((request = STAILQ_FIRST(&wire->kept))) {
		STAILQ_REMOVE_HEAD(&wire->kept, next);
		wire_answer_one(request);
	}
}

static inline void wire_init(struct wire *wire)
{
	socklen_t len = sizeof(wire->address);

	key_uses_init();
	log_init("fuzz", LOG_LEVEL_ERROR, 0);
	wire->base = event_base_new();
	STAILQ_INIT(&wire->kept);
	wire->config = (struct config){ .http_hosts = (char *)"shop",
					.http_origins = (char *)WIRE_ORIGIN,
					.connections_networks = (char *)"",
					.proxy_from = (char *)"",
					.tls_cert = (char *)"",
					.connections_max = 100,
					.inflight_per_connection_max = 4,
					.inflight_max = 1000000,
					.output_limit_bytes = 100000000,
					.buffer_bytes = 1 << 30,
					.idle_timeout_ms = 300000 };
	wire->intake = intake_new(wire->base, &wire->config, NULL, wire_dispatch, wire);
	wire->address.sin_family = AF_INET;
	wire->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	wire->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	check(wire->base && wire->fd >= 0 &&
	      bind(wire->fd, (const struct sockaddr *)&wire->address, len) == 0);
	check(listen(wire->fd, 128) == 0 &&
	      getsockname(wire->fd, (struct sockaddr *)&wire->address, &len) == 0);
}

static inline void wire_listen(struct wire *wire, arrival_fn *take, void *server)
{
	const struct arrivals_listener listener = { .fd = wire->fd,
						    .take = take,
						    .context = server };

	arrivals_listen(intake_arrivals(wire->intake), &listener);
}

/* Reads the available bytes; 0 at the end of the stream, else 1. */
static inline int wire_read(int fd, struct wire_text *text)
{
	for (;;) {
		ssize_t n;

		if (text->room - text->len < 65536) {
			text->room += 131072;
			text->bytes = realloc(text->bytes, text->room);
			check(text->bytes != NULL);
		}
		n = recv(fd, text->bytes + text->len, text->room - text->len, MSG_DONTWAIT);
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		text->len += (size_t)n;
	}
}

static inline void wire_turn(struct wire *wire)
{
	event_base_loop(wire->base, EVLOOP_NONBLOCK);
}

/* Runs until everything that can be answered is answered. */
static inline void wire_settle(struct wire *wire, int fd, struct wire_text *text)
{
	for (int quiet = 0; quiet < WIRE_TURNS_QUIET; quiet++) {
		size_t len = text->len;

		wire_turn(wire);
		if (!wire_read(fd, text))
			return;
		if (text->len > len)
			quiet = 0;
	}
}

/*
 * One connection: sends the bytes in pieces (`seed` 0: in one), then shuts down its sending side,
 * and reads until the server has closed it, which the server must do.
 */
static inline void wire_run(struct wire *wire, const uint8_t *data, size_t size, uint32_t seed,
			    struct wire_text *text)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 }; /* no port is left waiting */
	int fd = socket(AF_INET, SOCK_STREAM, 0), turns = 0, on = 1;
	/* Each from an address of its own: what the server closes keeps its port for a minute. */
	static uint32_t runs;
	struct sockaddr_in own = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK + runs++ % 0xffff00) };

	text->len = 0;
	wire->dispatched = 0;
	check(fd >= 0 && bind(fd, (const struct sockaddr *)&own, sizeof(own)) == 0 &&
	      connect(fd, (const struct sockaddr *)&wire->address, sizeof(wire->address)) == 0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* each piece is there at once */
	while (size > 0) {
		size_t piece = seed ? cut_next(&seed, size) : size;
		ssize_t n = send(fd, data, piece, MSG_NOSIGNAL);

		if (n <= 0)
			break; /* the server has closed the connection */
		data += n;
		size -= (size_t)n;
		wire_turn(wire);
		wire_turn(wire);
		wire_read(fd, text);
	}
	wire_settle(wire, fd, text);
	while (!STAILQ_EMPTY(&wire->kept)) { /* a paused connection goes on then */
		wire_answer(wire);
		wire_settle(wire, fd, text);
	}
	shutdown(fd, SHUT_WR);
	while (wire_read(fd, text)) {
		wire_turn(wire);
		wire_answer(wire); /* of the last input */
		check(++turns < WIRE_TURNS_MAX);
	}
	close(fd);
	wire_turn(wire);
	check(intake_inflight(wire->intake) == 0);
}

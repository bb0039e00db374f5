#include "gateway/listen/intake.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/serve/tls.h"
#include "gateway/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_OF_COST 64  /* that are parsed in about a microsecond */
#define BYTES_OF_READ 512 /* that are read in about a microsecond */
#define COST_BAD 4        /* of a text that is no request */
/*
 * From this part of inflight_max on, connections with more in flight than their share wait: what
 * one client has in flight delays what the others send next. Below SHARED_INFLIGHT_LEAST requests
 * no shares apply. Requests that only wait for replicas of Redis delay nobody, and with as few in
 * flight Redis is idle at times (measured: a fifth of the rate).
 */
#define SHARED_INFLIGHT_PART 16
#define SHARED_INFLIGHT_PART_REPLICAS 4
#define SHARED_INFLIGHT_LEAST 64

struct intake {
	struct event_base *base;
	const struct config *config;
	struct json_arena *arena;
	size_t inflight;
	size_t inflight_max;
	intake_dispatch_fn *dispatch;
	void *context;
	struct turns turns;
	struct event *turn;              /* active while a connection waits for its turn */
	LIST_HEAD(, connection) holding; /* those that hold something */
	size_t holding_n;
	size_t held_bytes;
	struct auth *auth; /* NULL: none */
	struct auth_answer limited;
	struct tls *tls; /* the same */
	LIST_HEAD(, connection) connections;
	LIST_HEAD(, connection) asking; /* those whose key is asked for */
	struct arrivals *arrivals;
	uint64_t logs_n; /* answers that might have been logged */
	int is_draining;
	int is_stopped;
};

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

struct intake *intake_new(struct event_base *base, const struct config *config, struct auth *auth,
			  intake_dispatch_fn *dispatch, void *context)
{
	struct intake *intake = checked(calloc(1, sizeof(*intake)));

	intake->base = base;
	intake->config = config;
	intake->arena = json_arena_new();
	intake->inflight_max = (size_t)config->inflight_max;
	intake->dispatch = dispatch;
	intake->context = context;
	intake->auth = auth;
	intake->tls = tls_new(config);
	turns_init(&intake->turns, turns_wake, intake);
	intake->arrivals = arrivals_new(base, config, &intake->turns, intake->tls);
	intake->turn = checked(event_new(base, -1, 0, on_turn, intake));
	return intake;
}

void intake_tick(struct intake *intake, int64_t now_ms)
{
	if (intake->auth)
		auth_tick(intake->auth, now_ms);
	if (!intake->tls)
		return;
	tls_tick(intake->tls, now_ms);
	metrics_set_all(METRIC_TLS_EXPIRES, tls_expires_s(intake->tls));
	metrics_set(METRIC_TLS_TROUBLE, tls_trouble(intake->tls) != NULL);
}

void intake_reload(struct intake *intake)
{
	if (intake->auth)
		auth_reload(intake->auth);
	if (intake->tls)
		tls_reload(intake->tls);
}

void intake_warnings(const struct intake *intake, cJSON *array)
{
	const char *const warnings[] = {
		intake->tls ? tls_trouble(intake->tls) : NULL,
		intake->auth ? auth_trouble(intake->auth, clock_monotonic_ms()) : NULL,
	};

	for (size_t i = 0; i < sizeof(warnings) / sizeof(warnings[0]); i++)
		if (warnings[i])
			cJSON_AddItemToArray(array, checked(cJSON_CreateString(warnings[i])));
}

struct arrivals *intake_arrivals(struct intake *intake)
{
	return intake->arrivals;
}

void intake_drain(struct intake *intake)
{
	intake->is_draining = 1;
}

int intake_is_draining(const struct intake *intake)
{
	return intake->is_draining;
}

void intake_stop(struct intake *intake)
{
	intake->is_stopped = 1;
	arrivals_stop(intake->arrivals);
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

/*
 * Answers a request that may not be done; NULL: one of HTTP that was not parsed. What was limited
 * is kept for its headers.
 */
static void refuse(struct intake *intake, struct responder *responder, struct request *request,
		   const struct auth_answer *refusal)
{
	const char *id = request ? request->text : "";
	enum answer answer = refusal->answer;
	const struct limit *of = refusal->verdict.of;
	cJSON *object;
	char *line;

	intake->limited = *refusal;
	if (answer == ANSWER_RATE_LIMITED) {
		if (of) /* in the copy */
			intake->limited.verdict.of = intake->limited.limits +
						     (of - refusal->limits);
		object = checked(cJSON_CreateObject());
		cJSON_AddNumberToObject(object, "retry_after_ms",
					(double)limit_retry_after_ms(&refusal->verdict));
		cJSON_AddStringToObject(object, "message", answer_text(answer));
		line = answer_line(id, answer, NULL, object);
	} else {
		line = answer_message_line(id, answer,
					   answer == ANSWER_UNAVAILABLE
						   ? "the key cannot be checked at present"
						   : answer_text(answer));
	}
	responder_line(responder, request, answer, line);
	free(request);
}

static void asking_begin(struct intake *intake, struct connection *connection,
			 struct request *request)
{
	connection->asking = key_watch_ask(auth_key_watch(intake->auth), 1);
	connection->asked = request;
	intake->inflight += request == NULL; /* which the gateway answers before it ends */
	LIST_INSERT_HEAD(&intake->asking, connection, next_asking);
}

static void asking_end(struct connection *connection)
{
	connection->intake->inflight -= connection->asked == NULL;
	connection->asking = 0;
	connection->asked = NULL;
	LIST_REMOVE(connection, next_asking);
}

/* Authenticates the connection. `is_asked` as of auth_identify(). */
static void identify(struct intake *intake, struct request *request, int is_asked)
{
	struct responder *responder = request->responder;
	struct auth_answer answer = { .answer = ANSWER_UNAUTHORIZED };
	cJSON *object;

	if (intake->auth)
		auth_identify(intake->auth, responder, request_code(request), request->code_len,
			      is_asked, &answer);
	if (answer.may_be_new) {
		asking_begin(intake, (struct connection *)responder, request);
		return;
	}
	/* The secret is not needed any more. */
	OPENSSL_cleanse((char *)(uintptr_t)request_code(request), request->code_len);
	request->by = responder->identity.grant.key;
	if (answer.answer != ANSWER_OK) {
		refuse(intake, responder, request, &answer);
		return;
	}
	object = checked(cJSON_CreateObject());
	if (responder->identity.token)
		cJSON_AddStringToObject(object, "user", responder->identity.token->user.text);
	else
		cJSON_AddStringToObject(object, "key", responder->identity.grant.key->id);
	request_answer_object(request, ANSWER_OK, NULL, object);
}

/* One that presents nothing is whom its connection stands for, until its certificate expires. */
static enum answer proof_apply(struct intake *intake, struct connection *connection)
{
	struct identity *identity = &connection->responder.identity;
	const struct api_key *key = identity->grant.key;

	if (!*connection->proof)
		return ANSWER_OK;
	if (clock_wall_ms() >= connection->proof_ends_ms) {
		if (key && strcmp(key->id, connection->proof) == 0)
			identity_forget(identity);
		connection->proof[0] = '\0';
		return ANSWER_OK;
	}
	return key || identity->token ? ANSWER_OK
				      : auth_identify_by_id(intake->auth, &connection->responder,
							    connection->proof);
}

/* Dispatches the request if it may be done; else answers it, now or when the stores have told. */
static void admit(struct intake *intake, struct request *request)
{
	struct connection *connection = (struct connection *)request->responder;
	const struct identity *identity = &request->responder->identity;
	struct auth_answer answer = { .answer = ANSWER_OK };

	if (intake->auth) {
		/* The key that the connection stands for may be in a store by now: asked once. */
		if (!connection->is_asked && *connection->proof && !identity->grant.key &&
		    !identity->token &&
		    !keys_get(auth_key_watch(intake->auth)->keys, connection->proof, KEY_ID_LEN)) {
			asking_begin(intake, connection, request);
			return;
		}
		answer.answer = proof_apply(intake, connection);
		request->by = identity->grant.key;
		if (answer.answer == ANSWER_OK)
			auth_admit(intake->auth, request, &answer);
	}
	if (answer.answer != ANSWER_OK)
		refuse(intake, request->responder, request, &answer);
	else if (intake->inflight > intake->inflight_max ||
		 request_is_abandoned(request, clock_monotonic_us()))
		request_fail(request, ANSWER_BUSY, NULL);
	else
		intake->dispatch(intake->context, request);
}

void intake_keys_told(struct intake *intake)
{
	struct connection *connection = LIST_FIRST(&intake->asking);

	while (connection) {
		struct request *request = connection->asked;
		int told = key_watch_told(auth_key_watch(intake->auth), connection->asking);

		if (told == 0) {
			connection = LIST_NEXT(connection, next_asking);
			continue;
		}
		asking_end(connection);
		connection->is_asked = told;
		if (!request)
			connection->again(connection);
		else if (request->op == OP_AUTH)
			identify(intake, request, connection->is_asked);
		else
			admit(intake, request);
		/* Any client may be gone by now. None has begun to ask: they are served later. */
		connection = LIST_FIRST(&intake->asking);
	}
}

int intake_identify(struct intake *intake, struct connection *connection, const char *text,
		    size_t len)
{
	struct auth_answer answer = { .answer = ANSWER_OK };

	if (!intake->auth)
		return 0;
	if (!text) {
		identity_forget(&connection->responder.identity);
		return 0;
	}
	auth_identify(intake->auth, &connection->responder, text, len, connection->is_asked,
		      &answer);
	connection->is_asked = 0;
	if (answer.answer == ANSWER_OK)
		return 0;
	if (answer.may_be_new) {
		asking_begin(intake, connection, NULL);
		return 1;
	}
	request_enter(intake);
	turns_spend(&intake->turns, COST_BAD);
	refuse(intake, &connection->responder, NULL, &answer);
	return -1;
}

const struct auth_answer *intake_limited(const struct intake *intake)
{
	return &intake->limited;
}

enum answer intake_monitor(struct intake *intake, struct connection *connection)
{
	enum answer answer;

	if (!intake->auth)
		return ANSWER_OK;
	answer = proof_apply(intake, connection);
	return answer == ANSWER_OK ? auth_monitor(intake->auth, &connection->responder) : answer;
}

#define OFFER_COST 2 /* of one in a page, with the slots of a user: see bench/offers.py */

static int64_t request_cost(const struct request *request)
{
	return request_operations[request->op].cost +
	       (request->op == OP_OFFERS ? OFFER_COST * request->page.limit : 0);
}

void intake_request(struct intake *intake, const char *text, size_t len, enum request_op op,
		    struct responder *responder)
{
	struct request *request;

	request_enter(intake);
	request = request_parse(intake->arena, text, len, op, responder);
	turns_spend(&intake->turns,
		    intake_text_cost(len) + (request ? request_cost(request) : COST_BAD));
	if (!request)
		return;
	if (request->op == OP_AUTH)
		identify(intake, request, 0);
	else
		admit(intake, request);
}

void intake_refuse(struct intake *intake, struct responder *responder, enum answer answer,
		   const char *message)
{
	request_enter(intake);
	turns_spend(&intake->turns, COST_BAD);
	responder_line(responder, NULL, answer,
		       answer_message_line("", answer, message ? message : answer_text(answer)));
}

void connection_open(struct connection *connection, struct intake *intake,
		     const struct arrival *arrival, event_callback_fn on_readable,
		     event_callback_fn on_writable)
{
	int fd = arrival->stream.fd;
	const SSL *session = arrival->stream.session;
	struct ucred peer = { .uid = (uid_t)-1 }; /* which TCP leaves */
	socklen_t peer_len = sizeof(peer);
	char name[KEY_ID_LEN + 2];
	X509 *certificate;
	const char *id;

	connection->intake = intake;
	connection->turn.turns = &intake->turns;
	connection->arrival = *arrival;
	connection->responder.peer = arrival->peer;
	connection->responder.is_local = arrival->is_local;
	connection->responder.identity.is_needed = intake->auth && auth_is_required(intake->auth);
	connection->proof_ends_ms = INT64_MAX;
	connection->readable = checked(
		event_new(intake->base, fd, EV_READ | EV_PERSIST, on_readable, connection));
	connection->writable = checked(
		event_new(intake->base, fd, EV_WRITE | EV_PERSIST, on_writable, connection));
	connection->input = checked(evbuffer_new());
	connection->output = checked(evbuffer_new());
	LIST_INSERT_HEAD(&intake->connections, connection, open);

	/* The common name of a verified client certificate is the id of a key. */
	certificate = session ? SSL_get1_peer_certificate(session) : NULL;
	if (certificate) {
		int len = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate),
						    NID_commonName, name, sizeof(name));

		if (len == KEY_ID_LEN && key_id_valid(name, KEY_ID_LEN))
			memcpy(connection->proof, name, KEY_ID_LEN + 1);
		X509_free(certificate);
	}
	if (session)
		connection->proof_ends_ms = clock_wall_ms() + 1000 * tls_client_expires_s(session);

	/* The user of the process on the other side of a Unix socket may have a key. */
	if (!session && intake->auth &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) == 0 &&
	    peer.uid != (uid_t)-1) {
		id = auth_key_of_uid(intake->auth, peer.uid);
		if (id)
			memcpy(connection->proof, id, KEY_ID_LEN + 1);
	}
}

void connection_close(struct connection *connection)
{
	connection_hold(connection, 0);
	turn_leave(&connection->turn);
	if (connection->asking && !connection->asked)
		asking_end(connection); /* a request that is left waits for its answer */
	LIST_REMOVE(connection, open);
	event_free(connection->readable);
	event_free(connection->writable);
	evbuffer_drain(connection->input, evbuffer_get_length(connection->input));
	evbuffer_drain(connection->output, evbuffer_get_length(connection->output));
	arrival_end(connection->intake->arrivals, &connection->arrival);
	connection->is_closed = 1;
}

void connection_fini(struct connection *connection)
{
	evbuffer_free(connection->input);
	evbuffer_free(connection->output);
	identity_forget(&connection->responder.identity);
}

ssize_t connection_read(struct connection *connection, char bytes[STREAM_BYTES], size_t most)
{
	struct stream *stream = &connection->arrival.stream;
	ssize_t n;

	if (!connection->is_met)
		connection_look(connection); /* it may have left before */
	connection->is_met = 1;
	n = stream_read(stream, bytes, most);
	if (n < 0)
		n = errno == EAGAIN || errno == EINTR ? CONNECTION_LATER : CONNECTION_BROKEN;
	turns_spend(connection->turn.turns,
		    1 + (n > 0 ? n / BYTES_OF_READ : 0) + stream->records_n);
	return n;
}

size_t connection_unsent(const struct connection *connection)
{
	return evbuffer_get_length(connection->output) + stream_unsent(&connection->arrival.stream);
}

void connection_look(struct connection *connection)
{
	struct responder *responder = &connection->responder;
	struct tcp_info info = { .tcpi_state = TCP_ESTABLISHED }; /* which a Unix socket leaves */
	socklen_t len = sizeof(info);

	(void)getsockopt(connection->arrival.stream.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	if (info.tcpi_state == TCP_ESTABLISHED || responder->has_left)
		return;
	responder->has_left = 1;
	if (!connection->is_met)
		responder->left_waited_ms = info.tcpi_last_data_recv;
}

void intake_keys_changed(struct intake *intake)
{
	struct connection *connection, *next;

	for (connection = LIST_FIRST(&intake->connections); connection; connection = next) {
		const struct api_key *key = connection->responder.identity.grant.key;

		if (!key && *connection->proof)
			key = keys_get(auth_key_watch(intake->auth)->keys, connection->proof,
				       KEY_ID_LEN);
		next = LIST_NEXT(connection, open);
		if (key && key->is_revoked)
			connection_cut(connection, "its key was revoked");
	}
}

void connection_hold(struct connection *connection, size_t bytes)
{
	struct intake *intake = connection->intake;

	if (connection->held_bytes == 0 && bytes > 0) {
		LIST_INSERT_HEAD(&intake->holding, connection, next);
		intake->holding_n++;
	} else if (connection->held_bytes > 0 && bytes == 0) {
		LIST_REMOVE(connection, next);
		intake->holding_n--;
	}
	intake->held_bytes += bytes - connection->held_bytes;
	connection->held_bytes = bytes;
	metrics_set(METRIC_CONNECTIONS_HELD, (int64_t)intake->held_bytes);
}

int connection_is_over_share(const struct connection *connection, size_t bytes)
{
	const struct intake *intake = connection->intake;
	size_t half = (size_t)intake->config->buffer_bytes / 2;

	return intake->held_bytes > half && bytes > half / intake->holding_n;
}

void connection_cut(struct connection *connection, const char *reason)
{
	log_warn("connection_cut", LOG_S("reason", reason));
	metrics_add(METRIC_CONNECTIONS_CUT, 1);
	connection->cut(connection);
}

void intake_relieve(struct intake *intake)
{
	while (intake->held_bytes > (size_t)intake->config->buffer_bytes) {
		struct connection *connection, *most = LIST_FIRST(&intake->holding);

		LIST_FOREACH (connection, &intake->holding, next)
			if (connection->held_bytes > most->held_bytes)
				most = connection;
		connection_hold(most, 0);
		connection_cut(most, "all connections hold more than COUPON_BUFFER_BYTES");
	}
}

void intake_answered(struct intake *intake, enum answer answer)
{
	check(intake->inflight > 0);
	intake->inflight--;
	metrics_set(METRIC_INFLIGHT, (int64_t)intake->inflight);
	metrics_add(METRIC_ANSWERS + answer, 1);
}

int intake_logs(struct intake *intake)
{
	uint64_t one_of = (uint64_t)intake->config->log_access;

	if (one_of == 0)
		return 0;
	intake->logs_n++;
	return hash_keyed(&intake->logs_n, sizeof(intake->logs_n)) % one_of == 0;
}

void access_log(const struct connection *connection, const struct request *request,
		enum answer answer, const struct access_http *http)
{
	const struct network *from = &connection->arrival.from;
	char address[INET6_ADDRSTRLEN];
	const char *shown = inet_ntop(from->family, from->bytes, address, sizeof(address));
	struct access_http line = { .key = connection->responder.identity.grant.key };
	int is_http = http != NULL;

	if (!http && request) {
		/* The id as it is in JSON: a number, or a string without its quotation marks. */
		size_t marks = *request->text == '"', len = request->id_len - 2 * marks;

		snprintf(line.id, sizeof(line.id), "%.*s", (int)len, request->text + marks);
		line.of = request_operations[request->op].name;
		line.key = request->by; /* the connection may be another one's by now */
		if (request->trace_len > 0)
			trace_context_parse(request_trace(request), TRACE_PARENT_LEN, &line.trace);
	}
	http = http ? http : &line;
	log_each(LOG_LEVEL_INFO, "request",
		 (const struct log_field[]){
			 LOG_S("over", is_http ? "http" : "lines"),
			 LOG_S("op", http->of),
			 LOG_I("coupon", request ? request->coupon : 0),
			 LOG_S("answer", answer_status(answer)),
			 LOG_I("http", http->status),
			 LOG_US_AS_MS("ms", request ? clock_monotonic_us() - request->begun_us : 0),
			 LOG_S("key", http->key ? http->key->id : ""),
			 LOG_S("address", shown ? shown : "unix"),
			 LOG_S("request_id", http->id),
			 LOG_S("trace", http->trace.trace_id),
			 LOG_S("span", http->trace.span_id),
			 { 0 },
		 });
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

	shared = intake->inflight_max / (intake->config->redis_replicas > 0
						 ? SHARED_INFLIGHT_PART_REPLICAS
						 : SHARED_INFLIGHT_PART);
	if (shared < SHARED_INFLIGHT_LEAST || intake->inflight < shared)
		return most;
	share = connections > 0 ? shared / connections : shared;
	return share < 1 ? 1 : share < most ? share : most;
}

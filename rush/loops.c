/*
 * Both loops are one thread, which waits for the connections and for what is due next.
 *
 *	          ┌─ request lines, as many as the pipeline allows ─▶ ┐
 *	requests ─┤                                                   ├── the client's connections
 *	          └─ answers ◀─ JSON ◀─ lines ◀───────────────────────┘
 *
 * A connection of a closed loop is filled again when half of its pipeline is answered, so that one
 * send carries many requests. With a rate, one connection after the other is filled with the
 * requests that are due.
 *
 *	crowd ─ start ─▶ open ─▶ request ─▶ answer ─▶ crowd
 *	   ▲  └ expire ─▶ end ──┐    │
 *	   └────────────────────┴────┴ refused, lost
 */
#include "rush/loops.h"

#include "common/check.h"
#include "common/log/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define CONNECT_TIMEOUT_US 5000000 /* for all connections to be open at the start */
#define PROGRESS_US 100000

/* How far a rush is, on a terminal, at most ten times a second. `*next_us` is 0 at first. */
static void progress_print(const struct rush_requests *requests, int64_t now_us, int64_t *next_us)
{
	static const char full[] = "##############################";
	static const char empty[] = "..............................";
	uint32_t ended = requests->next - requests->ends[RUSH_OPEN],
		 all = requests->plan->requests_n;
	int width = sizeof(full) - 1, part = (int)((uint64_t)ended * (uint64_t)width / all);

	if (now_us < *next_us)
		return;
	fprintf(stderr, "\r[%.*s%.*s] %u of %u, %.1f s ", part, full, width - part, empty, ended,
		all, (double)now_us / 1e6);
	*next_us = now_us + PROGRESS_US;
}

/* The end of a loop: what is the same in both. Frees the client. */
static void figures_end(struct rush_figures *figures, const struct rush_requests *requests,
			struct client *client, int progress, clock_t cpu_before)
{
	client_stop_watch(0);
	if (progress)
		fputs("\r\033[K", stderr);
	figures->begin_us = client->begin_us;
	figures->cpu_us = (clock() - cpu_before) * 1000000LL / CLOCKS_PER_SEC;
	figures->duration_us = client->now_us;
	figures->disconnections = client->disconnections;
	figures->stopped = client_stop_asked() && requests->next < requests->plan->requests_n;
	snprintf(figures->error, sizeof(figures->error), "%s", client->error);
	client_fini(client);
}

/* ---- the closed loop */

#define SEND_GAP_US 200 /* with a rate: requests due within it are sent together */

struct closed_loop {
	struct client client;
	struct rush_requests *requests;
	const struct rush_plan *plan;
	int may_send;  /* before, connections are only opened */
	uint32_t turn; /* with a rate: the connection that is next */
	int64_t sent_last_us;
	int64_t alive_us; /* when a connection was last open */
};

/* Sends requests before number `stop` on connection `i`, as many as its pipeline allows. */
static void connection_fill(struct closed_loop *loop, uint32_t i, uint32_t stop)
{
	struct client_connection *c = &loop->client.list[i];
	const struct rush_plan *plan = loop->plan;
	int64_t now_us = loop->client.now_us;

	if (c->state != CLIENT_CONNECTED || c->out_len > 0)
		return;
	while (c->open < plan->pipeline && loop->requests->next < stop) {
		int64_t due_us = plan->rate ? rush_plan_due_us(plan, loop->requests->next) : now_us;
		uint32_t request = rush_requests_send(loop->requests, (uint16_t)i, due_us, now_us);

		c->out_len += rush_plan_line(plan, request, c->out + c->out_len);
		c->open++;
	}
	if (c->out_len > 0)
		client_send(&loop->client, i);
}

/* Without a rate: fills all connections. */
static void closed_fill_all(struct closed_loop *loop)
{
	for (uint32_t i = 0; loop->may_send && !loop->plan->rate && i < loop->client.n; i++)
		connection_fill(loop, i, loop->plan->requests_n);
}

/* With a rate: sends the requests that are due. */
static void closed_send_due(struct closed_loop *loop)
{
	const struct rush_plan *plan = loop->plan;
	int64_t now_us = loop->client.now_us, due = now_us * plan->rate / 1000000 + 1;
	uint32_t stop = due < plan->requests_n ? (uint32_t)due : plan->requests_n;

	if (loop->requests->next >= stop || now_us < loop->sent_last_us + SEND_GAP_US)
		return;
	for (uint32_t i = 0; i < plan->connections_n && loop->requests->next < stop; i++)
		connection_fill(loop, loop->turn++ % plan->connections_n, stop);
	loop->sent_last_us = now_us;
}

static void closed_fill(void *context, uint32_t i)
{
	struct closed_loop *loop = context;

	if (loop->may_send && !loop->plan->rate &&
	    loop->client.list[i].open <= loop->plan->pipeline / 2)
		connection_fill(loop, i, loop->plan->requests_n);
}

static void closed_reply(void *context, uint32_t i, const struct client_reply *reply,
			 const char *line, size_t len)
{
	struct closed_loop *loop = context;
	int of = reply ? rush_requests_answer(loop->requests, reply, loop->client.now_us)
		       : RUSH_WRONG;

	(void)i;
	if (of >= 0)
		loop->client.list[of].open--;
	else if (of == RUSH_WRONG)
		rush_requests_strange(loop->requests, line, len);
}

static void closed_lost(void *context, uint32_t i)
{
	struct closed_loop *loop = context;

	rush_requests_lost(loop->requests, (uint16_t)i);
}

/* Waits for the connections and the next time that counts, and does what is due then. */
static void closed_turn(struct closed_loop *loop)
{
	const struct rush_plan *plan = loop->plan;
	struct client *client = &loop->client;
	int64_t wake_us = client->now_us + PROGRESS_US,
		retry_us = client->now_us + 1000 * BACKOFF_FIRST_MS / 2,
		due_us = rush_requests_deadline_us(loop->requests);
	int expired = 0, of;

	if (due_us < wake_us)
		wake_us = due_us;
	if (client->closed_n > 0 && retry_us < wake_us)
		wake_us = retry_us;
	if (plan->rate && loop->may_send && loop->requests->next < plan->requests_n) {
		due_us = rush_plan_due_us(plan, loop->requests->next);
		if (due_us < loop->sent_last_us + SEND_GAP_US)
			due_us = loop->sent_last_us + SEND_GAP_US;
		/* An overdue request waits for a full pipeline: an answer wakes the loop. */
		if (due_us > client->now_us && due_us < wake_us)
			wake_us = due_us;
	}
	if (client_stop_asked())
		loop->may_send = 0;
	client_wait(client, wake_us > client->now_us ? wake_us - client->now_us : 0);
	if (client->open_n > 0)
		loop->alive_us = client->now_us;

	/* The requests that had no answer in time. */
	while ((of = rush_requests_expire(loop->requests, client->now_us)) >= 0) {
		client->list[of].open--;
		expired = 1;
	}
	if (expired)
		closed_fill_all(loop);
	if (plan->rate && loop->may_send)
		closed_send_due(loop);
}

void rush_closed_loop_run(struct rush_requests *requests, const struct gateway_address *address,
			  int progress, struct rush_figures *figures)
{
	const struct rush_plan *plan = requests->plan;
	struct closed_loop loop = { .requests = requests, .plan = plan };
	const struct client_owner owner = {
		.context = &loop, .fill = closed_fill, .reply = closed_reply, .lost = closed_lost
	};
	const struct client_form form = { .address = address,
					  .n = plan->connections_n,
					  .out_bytes = (size_t)plan->pipeline * RUSH_LINE_MAX };
	struct client *client = &loop.client;
	int64_t progress_us = 0;
	clock_t cpu_before;

	/* The kernel may wake a thread 50 us late otherwise, which would count as latency. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	client_init(client, &owner, &form);
	cpu_before = clock();
	while (client->open_n < plan->connections_n && client->now_us < CONNECT_TIMEOUT_US &&
	       client->error_number != EACCES)
		closed_turn(&loop);
	*figures = (struct rush_figures){ .connected = client->open_n };

	/* The connections are open: now the clock starts, and the requests. */
	client_stop_watch(1);
	client_start(client);
	loop.may_send = 1;
	loop.alive_us = 0;
	loop.sent_last_us = -SEND_GAP_US;
	closed_fill_all(&loop);
	if (plan->rate)
		closed_send_due(&loop);

	/* Until all are sent and have ended, or a signal came, or nobody listens any more. */
	while (figures->connected > 0 &&
	       (requests->ends[RUSH_OPEN] > 0 ||
		(requests->next < plan->requests_n && !client_stop_asked() &&
		 client->now_us - loop.alive_us <= plan->timeout_us))) {
		closed_turn(&loop);
		if (progress)
			progress_print(requests, client->now_us, &progress_us);
	}
	figures_end(figures, requests, client, progress, cpu_before);
	if (rush_requests_answered(requests) == requests->next)
		figures->duration_us = requests->answered_last_us;
}

/* ---- the open loop */

#define DESCRIPTORS 64 /* beside those of the connections */
#define STARTS_MAX 64  /* in one turn, so that answers do not wait for the starts of thousands */
#define WAIT_MOST_US 100000
#define FIELDS_SIZE (sizeof("Host: []\r\nAuthorization: Bearer \r\n") + 255 + GATEWAY_KEY_MAX)
#define PORTS_RANGE "/proc/sys/net/ipv4/ip_local_port_range"
#define PORTS_REUSE "/proc/sys/net/ipv4/tcp_tw_reuse"

enum phase { PHASE_PROBE, PHASE_RUN, PHASE_PING, PHASE_OVER };

struct open_loop {
	struct client client;
	struct rush_crowd *crowd; /* NULL: of a ping alone */
	const struct rush_plan *plan;
	char fields[FIELDS_SIZE]; /* of the head of each request over HTTP */
	enum phase phase;
	int is_sent; /* the ping */
	int64_t answered_us;
};

/* Reads the numbers in a file of the kernel. Returns how many there are. */
static int numbers_read(const char *path, long long *first, long long *second)
{
	FILE *file = fopen(path, "r");
	int n = 0;

	*first = *second = 0;
	if (file) {
		n = fscanf(file, "%lld %lld", first, second);
		fclose(file);
	}
	return n;
}

void rush_open_loop_check(const struct rush_plan *plan, const struct gateway_address *address)
{
	uint64_t descriptors = (uint64_t)plan->connections_n + DESCRIPTORS;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&address->address;
	int family = address->address.ss_family,
	    is_loopback = family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	long long low, high, reuse, none, kept_s, needed, there, sources = plan->open.sources;
	struct rlimit limit;

	if (plan->open.sources && !is_loopback)
		args_fail("--sources is %u: it is for a gateway at an address of 127.0.0.0/8",
			  plan->open.sources);

	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < descriptors)
		log_fatal("--connections is %u, and this process may have %llu descriptors "
			  "(RLIMIT_NOFILE): raise the limit, or give fewer connections",
			  plan->connections_n, (unsigned long long)limit.rlim_max);
	if (limit.rlim_cur < descriptors) {
		limit.rlim_cur = descriptors;
		check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}

	/*
	 * The client closes, so the kernel keeps its ports: for a minute, or for a second where it
	 * may use them again, which is the default for connections on loopback.
	 */
	if ((family != AF_INET && family != AF_INET6) ||
	    numbers_read(PORTS_RANGE, &low, &high) != 2)
		return;
	numbers_read(PORTS_REUSE, &reuse, &none);
	kept_s = reuse == 1 || (reuse == 2 && is_loopback) ? 1 : 60;
	needed = plan->connections_n + plan->rate * kept_s;
	there = high - low + 1;
	if (needed > there * (sources ? sources : 1))
		log_fatal(
			"%lld local ports are needed: for %u connections, and for those of %lld s "
			"that have ended, at %lld a second; net.ipv4.ip_local_port_range has %lld "
			"for each address: %s --sources %lld, or widen the range",
			needed, plan->connections_n, kept_s, (long long)plan->rate, there,
			is_loopback ? "give" : "connect over 127.0.0.1 with",
			(needed + there - 1) / there);
}

static void open_fill(void *context, uint32_t i)
{
	struct open_loop *loop = context;
	struct client_connection *c = &loop->client.list[i];
	int is_http = loop->plan->open.is_http;

	if (loop->phase == PHASE_RUN && !loop->crowd->slots[i].is_sent) {
		uint32_t user = loop->crowd->slots[i].user;

		c->out_len = is_http ? rush_plan_http(loop->plan, user, loop->fields, c->out)
				     : rush_plan_line(loop->plan, user, c->out);
		loop->crowd->slots[i].is_sent = 1;
		client_send(&loop->client, i);
	} else if (loop->phase == PHASE_PING && !loop->is_sent) {
		c->out_len = is_http ? (size_t)sprintf(c->out, "GET /v1/ping HTTP/1.1\r\n%s\r\n",
						       loop->fields)
				     : (size_t)sprintf(c->out, "{\"op\":\"ping\"}\n");
		loop->is_sent = 1;
		client_send(&loop->client, i);
	}
}

static void open_reply(void *context, uint32_t i, const struct client_reply *reply,
		       const char *line, size_t len)
{
	struct open_loop *loop = context;
	int64_t now_us = loop->client.now_us;

	if (loop->phase == PHASE_PING && reply && reply->code == 0)
		loop->answered_us = now_us;
	if (loop->phase != PHASE_RUN)
		return;
	if (reply && rush_crowd_answer(loop->crowd, i, reply, now_us) != RUSH_WRONG) {
		client_end(&loop->client, i);
		return;
	}
	rush_requests_strange(loop->crowd->requests, line, len);
	client_close(&loop->client, i, "it does not send valid answers");
}

static void open_lost(void *context, uint32_t i)
{
	struct open_loop *loop = context;

	if (loop->phase == PHASE_RUN)
		rush_crowd_lost(loop->crowd, i, loop->client.error_number, loop->client.now_us);
	else
		loop->phase = PHASE_OVER;
}

static void open_loop_init(struct open_loop *loop, const struct rush_plan *plan,
			   struct rush_crowd *crowd, const struct gateway_address *address)
{
	const struct client_owner owner = { .context = loop,
					    .fill = open_fill,
					    .reply = open_reply,
					    .lost = open_lost,
					    .refused = open_lost };
	struct client_form form = {
		.address = address,
		.n = crowd ? plan->connections_n : 1,
		.on_demand = 1,
		.sources = plan->open.sources,
	};
	int is_ipv6 = strchr(address->host, ':') != NULL, len;

	*loop = (struct open_loop){ .plan = plan, .crowd = crowd };
	len = snprintf(loop->fields, FIELDS_SIZE, "Host: %s%s%s\r\n", is_ipv6 ? "[" : "",
		       address->host, is_ipv6 ? "]" : "");
	if (*address->key)
		snprintf(loop->fields + len, FIELDS_SIZE - (size_t)len,
			 "Authorization: Bearer %s\r\n", address->key);
	form.out_bytes = RUSH_HTTP_MAX + strlen(loop->fields);
	client_init(&loop->client, &owner, &form);
	/* The kernel may wake a thread 50 us late otherwise, which would count as latency. */
	prctl(PR_SET_TIMERSLACK, 1UL);
}

void rush_open_loop_run(struct rush_crowd *crowd, const struct gateway_address *address,
			int progress, struct rush_figures *figures)
{
	struct open_loop loop;
	struct client *client = &loop.client;
	int64_t progress_us = 0, wait_us;
	clock_t cpu_before;
	int slot;

	/* Whether the gateway takes a connection, before the users come. */
	open_loop_init(&loop, crowd->plan, crowd, address);
	client_connect(client, 0);
	while (loop.phase == PHASE_PROBE && client->list[0].state != CLIENT_CONNECTED &&
	       client->now_us < CONNECT_TIMEOUT_US)
		client_wait(client, CONNECT_TIMEOUT_US - client->now_us);
	*figures = (struct rush_figures){ .connected = client->list[0].state == CLIENT_CONNECTED };
	client_end(client, 0);

	loop.phase = PHASE_RUN;
	client_stop_watch(1);
	cpu_before = clock();
	client_start(client);
	while (figures->connected > 0 && !rush_crowd_is_over(crowd)) {
		if (client_stop_asked() && !crowd->is_stopped)
			rush_crowd_stop(crowd);
		wait_us = rush_crowd_wake_us(crowd) - client->now_us;
		wait_us = wait_us < 0 ? 0 : wait_us > WAIT_MOST_US ? WAIT_MOST_US : wait_us;
		client_wait(client, wait_us);

		while ((slot = rush_crowd_expire(crowd, client->now_us)) >= 0)
			client_end(client, (uint32_t)slot);
		for (int i = 0;
		     i < STARTS_MAX && (slot = rush_crowd_start(crowd, client->now_us)) >= 0; i++)
			client_connect(client, (uint32_t)slot);
		if (progress)
			progress_print(crowd->requests, client->now_us, &progress_us);
	}
	figures_end(figures, crowd->requests, client, progress, cpu_before);
}

int64_t rush_open_loop_calm(const struct rush_plan *plan, const struct gateway_address *address)
{
	const struct timespec pause = { .tv_sec = RUSH_CALM_S };
	struct open_loop loop;
	struct client *client = &loop.client;

	nanosleep(&pause, NULL);
	open_loop_init(&loop, plan, NULL, address);
	loop.phase = PHASE_PING;
	loop.answered_us = -1;
	client_start(client);
	client_connect(client, 0);
	while (loop.phase == PHASE_PING && loop.answered_us < 0 &&
	       client->now_us < plan->open.give_up_us)
		client_wait(client, plan->open.give_up_us - client->now_us);
	client_fini(client);
	return loop.answered_us;
}

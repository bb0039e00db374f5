/*
 * One thread waits for the connections, until the next user is due or gives up.
 *
 *	crowd ─ start ─▶ open ─▶ request ─▶ answer ─▶ crowd
 *	   ▲  └ expire ─▶ end ──┐    │
 *	   └────────────────────┴────┴ refused, lost
 */
#include "rush/open_loop.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define DESCRIPTORS 64 /* beside those of the connections */
#define STARTS_MAX 64  /* in one turn, so that answers do not wait for the starts of thousands */
#define WAIT_MOST_US 100000
#define CONNECT_TIMEOUT_US 5000000
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

/* The limits of this machine. */

static void descriptors_check(uint32_t connections)
{
	uint64_t needed = (uint64_t)connections + DESCRIPTORS;
	struct rlimit limit;

	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < needed)
		log_fatal("--connections is %u, and this process may have %llu descriptors "
			  "(RLIMIT_NOFILE): raise the limit, or give fewer connections",
			  connections, (unsigned long long)limit.rlim_max);
	if (limit.rlim_cur < needed) {
		limit.rlim_cur = needed;
		check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
}

/* The numbers in a file of the kernel. Returns how many. */
static int numbers_read(const char *path, int64_t *first, int64_t *second)
{
	FILE *file = fopen(path, "r");
	long long one = 0, two = 0;
	int n = 0;

	if (file) {
		n = fscanf(file, "%lld %lld", &one, &two);
		fclose(file);
	}
	*first = one;
	*second = two;
	return n;
}

/*
 * The client closes, so the kernel keeps its ports: for a minute, or for a second where it may use
 * them again, which is the default for connections on loopback.
 */
static void ports_check(const struct rush_plan *plan, const struct gateway_address *address)
{
	int is_loopback = gateway_address_is_loopback(address);
	int64_t low, high, reuse, none, kept_s, needed, there, sources = plan->open.sources;

	if (numbers_read(PORTS_RANGE, &low, &high) != 2)
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
			(long long)needed, plan->connections_n, (long long)kept_s,
			(long long)plan->rate, (long long)there,
			is_loopback ? "give" : "connect over 127.0.0.1 with",
			(long long)((needed + there - 1) / there));
}

void rush_open_loop_check(const struct rush_plan *plan, const struct gateway_address *address)
{
	int family = address->address.ss_family;

	if (plan->open.sources && !gateway_address_is_loopback(address))
		args_fail("--sources is %u: it is for a gateway at an address of 127.0.0.0/8",
			  plan->open.sources);
	descriptors_check(plan->connections_n);
	if (family == AF_INET || family == AF_INET6)
		ports_check(plan, address);
}

/* What the client calls. */

static void request_send(struct open_loop *loop, uint32_t i)
{
	struct client_connection *c = &loop->client.list[i];
	uint32_t user = loop->crowd->slots[i].user;

	c->out_len = loop->plan->open.is_http
			     ? rush_plan_http(loop->plan, user, loop->fields, c->out)
			     : rush_plan_line(loop->plan, user, c->out);
	rush_crowd_sent(loop->crowd, i);
	client_send(&loop->client, i);
}

static void ping_send(struct open_loop *loop)
{
	struct client_connection *c = &loop->client.list[0];

	if (loop->plan->open.is_http)
		c->out_len = (size_t)sprintf(c->out, "GET /v1/ping HTTP/1.1\r\n%s\r\n",
					     loop->fields);
	else
		c->out_len = (size_t)sprintf(c->out, "{\"op\":\"ping\"}\n");
	loop->is_sent = 1;
	client_send(&loop->client, 0);
}

static void fill(void *context, uint32_t i)
{
	struct open_loop *loop = context;

	if (loop->phase == PHASE_RUN && !loop->crowd->slots[i].is_sent)
		request_send(loop, i);
	else if (loop->phase == PHASE_PING && !loop->is_sent)
		ping_send(loop);
}

static void reply_take(void *context, uint32_t i, const struct client_reply *reply,
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

static void lost(void *context, uint32_t i)
{
	struct open_loop *loop = context;

	if (loop->phase == PHASE_RUN)
		rush_crowd_lost(loop->crowd, i, loop->client.error_number, loop->client.now_us);
	else
		loop->phase = PHASE_OVER;
}

/* The loop. */

static void fields_write(struct open_loop *loop, const struct gateway_address *address)
{
	int is_ipv6 = strchr(address->host, ':') != NULL;
	int len = snprintf(loop->fields, FIELDS_SIZE, "Host: %s%s%s\r\n", is_ipv6 ? "[" : "",
			   address->host, is_ipv6 ? "]" : "");

	if (*address->key)
		snprintf(loop->fields + len, FIELDS_SIZE - (size_t)len,
			 "Authorization: Bearer %s\r\n", address->key);
}

static void loop_init(struct open_loop *loop, const struct rush_plan *plan,
		      struct rush_crowd *crowd, const struct gateway_address *address)
{
	const struct client_owner owner = {
		.context = loop, .fill = fill, .reply = reply_take, .lost = lost, .refused = lost
	};
	struct client_form form = {
		.address = address,
		.n = crowd ? plan->connections_n : 1,
		.on_demand = 1,
		.sources = plan->open.sources,
	};

	*loop = (struct open_loop){ .plan = plan, .crowd = crowd };
	fields_write(loop, address);
	form.out_bytes = RUSH_HTTP_MAX + strlen(loop->fields);
	client_init(&loop->client, &owner, &form);
	/* The kernel may wake a thread 50 us late otherwise, which would count as latency. */
	prctl(PR_SET_TIMERSLACK, 1UL);
}

/* Whether the gateway takes a connection, before the users come. */
static int probe(struct open_loop *loop)
{
	struct client *client = &loop->client;
	int is_open;

	client_connect(client, 0);
	while (loop->phase == PHASE_PROBE && client->list[0].state != CLIENT_CONNECTED &&
	       client->now_us < CONNECT_TIMEOUT_US)
		client_wait(client, CONNECT_TIMEOUT_US - client->now_us);
	is_open = client->list[0].state == CLIENT_CONNECTED;
	client_end(client, 0);
	return is_open;
}

static void turn(struct open_loop *loop)
{
	struct rush_crowd *crowd = loop->crowd;
	struct client *client = &loop->client;
	int64_t wait_us;
	int slot;

	if (client_stop_asked() && !crowd->is_stopped)
		rush_crowd_stop(crowd);
	wait_us = rush_crowd_wake_us(crowd) - client->now_us;
	wait_us = wait_us < 0 ? 0 : wait_us > WAIT_MOST_US ? WAIT_MOST_US : wait_us;
	client_wait(client, wait_us);
	while ((slot = rush_crowd_expire(crowd, client->now_us)) >= 0)
		client_end(client, (uint32_t)slot);
	for (int i = 0; i < STARTS_MAX && (slot = rush_crowd_start(crowd, client->now_us)) >= 0;
	     i++)
		client_connect(client, (uint32_t)slot);
}

void rush_open_loop_run(struct rush_crowd *crowd, const struct gateway_address *address,
			int progress, struct rush_figures *figures)
{
	struct rush_requests *requests = crowd->requests;
	struct open_loop loop;
	struct client *client = &loop.client;
	int64_t progress_us = 0;
	clock_t cpu_before;

	loop_init(&loop, crowd->plan, crowd, address);
	*figures = (struct rush_figures){ .connected = (uint32_t)probe(&loop) };
	loop.phase = PHASE_RUN;
	client_stop_watch(1);
	cpu_before = clock();
	client_start(client);
	figures->begin_us = client->begin_us;
	while (figures->connected > 0 && !rush_crowd_is_over(crowd)) {
		turn(&loop);
		if (progress)
			rush_progress_print(requests, client->now_us, &progress_us);
	}
	client_stop_watch(0);
	if (progress)
		fputs("\r\033[K", stderr);
	figures->cpu_us = (clock() - cpu_before) * 1000000LL / CLOCKS_PER_SEC;
	figures->duration_us = client->now_us;
	figures->disconnections = client->disconnections;
	figures->stopped = client_stop_asked() && requests->next < crowd->plan->requests_n;
	snprintf(figures->error, sizeof(figures->error), "%s", client->error);
	client_fini(client);
}

int64_t rush_open_loop_calm(const struct rush_plan *plan, const struct gateway_address *address)
{
	const struct timespec pause = { .tv_sec = RUSH_CALM_S };
	struct open_loop loop;
	struct client *client = &loop.client;

	nanosleep(&pause, NULL);
	loop_init(&loop, plan, NULL, address);
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

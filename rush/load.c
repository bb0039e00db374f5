/*
 * One thread waits for the connections, and with a rate until the next request is due.
 *
 *	          ┌─ request lines, as many as the pipeline allows ─▶ ┐
 *	requests ─┤                                                   ├── the client's connections
 *	          └─ answers ◀─ JSON ◀─ lines ◀───────────────────────┘
 *
 * A connection is filled again when half of its pipeline is answered, so that one send carries many
 * requests. With a rate, one connection after the other is filled with the requests that are due.
 */
#include "rush/load.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <sys/prctl.h>

#define CONNECT_TIMEOUT_US 5000000 /* for all connections to be open at the start */
#define SEND_GAP_US 200            /* with a rate: requests due within it are sent together */
#define PROGRESS_US 100000

struct load {
	struct client client;
	struct rush_requests *requests;
	const struct rush_plan *plan;
	int may_send;  /* before, connections are only opened */
	uint32_t turn; /* with a rate: the connection that is next */
	int64_t sent_last_us;
	int64_t alive_us; /* when a connection was last open */
};

/* Sends requests before number `stop` on connection `i`, as many as its pipeline allows. */
static void connection_fill(struct load *load, uint32_t i, uint32_t stop)
{
	struct client_connection *c = &load->client.list[i];
	const struct rush_plan *plan = load->plan;
	int64_t now_us = load->client.now_us;

	if (c->state != CLIENT_CONNECTED || c->out_len > 0)
		return;
	while (c->open < plan->pipeline && load->requests->next < stop) {
		int64_t due_us = plan->rate ? rush_plan_due_us(plan, load->requests->next) : now_us;
		uint32_t request = rush_requests_send(load->requests, (uint16_t)i, due_us, now_us);

		c->out_len += rush_plan_line(plan, request, c->out + c->out_len);
		c->open++;
	}
	if (c->out_len > 0)
		client_send(&load->client, i);
}

static void fill(void *context, uint32_t i)
{
	struct load *load = context;

	if (load->may_send && !load->plan->rate &&
	    load->client.list[i].open <= load->plan->pipeline / 2)
		connection_fill(load, i, load->plan->requests_n);
}

/* Without a rate: fills all connections. */
static void fill_all(struct load *load)
{
	for (uint32_t i = 0; load->may_send && !load->plan->rate && i < load->client.n; i++)
		connection_fill(load, i, load->plan->requests_n);
}

static void reply_take(void *context, uint32_t i, const struct client_reply *reply,
		       const char *line, size_t len)
{
	struct load *load = context;
	int of = reply ? rush_requests_answer(load->requests, reply, load->client.now_us)
		       : RUSH_WRONG;

	(void)i;
	if (of >= 0)
		load->client.list[of].open--;
	else if (of == RUSH_WRONG)
		rush_requests_strange(load->requests, line, len);
}

static void lost(void *context, uint32_t i)
{
	struct load *load = context;

	rush_requests_lost(load->requests, (uint16_t)i);
}

/* Ends the requests that had no answer in time. */
static void expire(struct load *load)
{
	int expired = 0, of;

	while ((of = rush_requests_expire(load->requests, load->client.now_us)) >= 0) {
		load->client.list[of].open--;
		expired = 1;
	}
	if (expired)
		fill_all(load);
}

/* With a rate: sends the requests that are due. */
static void send_due(struct load *load)
{
	const struct rush_plan *plan = load->plan;
	int64_t now_us = load->client.now_us, due = now_us * plan->rate / 1000000 + 1;
	uint32_t stop = due < plan->requests_n ? (uint32_t)due : plan->requests_n;

	if (load->requests->next >= stop || now_us < load->sent_last_us + SEND_GAP_US)
		return;
	for (uint32_t i = 0; i < plan->connections_n && load->requests->next < stop; i++)
		connection_fill(load, load->turn++ % plan->connections_n, stop);
	load->sent_last_us = now_us;
}

/* When to wake up without an event. */
static int64_t wake_us(struct load *load)
{
	const struct rush_plan *plan = load->plan;
	int64_t now_us = load->client.now_us, wake = now_us + PROGRESS_US,
		other = rush_requests_deadline_us(load->requests);

	if (other < wake)
		wake = other;
	if (load->client.closed_n > 0 && now_us + 1000 * BACKOFF_FIRST_MS / 2 < wake)
		wake = now_us + 1000 * BACKOFF_FIRST_MS / 2;
	if (plan->rate && load->may_send && load->requests->next < plan->requests_n) {
		other = rush_plan_due_us(plan, load->requests->next);
		if (other < load->sent_last_us + SEND_GAP_US)
			other = load->sent_last_us + SEND_GAP_US;
		/* An overdue request waits for a full pipeline: an answer wakes the loop. */
		if (other > now_us && other < wake)
			wake = other;
	}
	return wake;
}

static void turn(struct load *load)
{
	int64_t wait_us = wake_us(load) - load->client.now_us;

	if (client_stop_asked())
		load->may_send = 0;
	client_wait(&load->client, wait_us > 0 ? wait_us : 0);
	if (load->client.open_n > 0)
		load->alive_us = load->client.now_us;
	expire(load);
	if (load->plan->rate && load->may_send)
		send_due(load);
}

void rush_progress_print(const struct rush_requests *requests, int64_t now_us, int64_t *next_us)
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

/* Opens the connections, then starts the clock and the requests. Returns how many are open. */
static uint32_t begin(struct load *load)
{
	uint32_t connected;

	while (load->client.open_n < load->plan->connections_n &&
	       load->client.now_us < CONNECT_TIMEOUT_US && load->client.error_number != EACCES)
		turn(load);
	connected = load->client.open_n;
	client_stop_watch(1);
	client_start(&load->client);
	load->may_send = 1;
	load->alive_us = 0;
	load->sent_last_us = -SEND_GAP_US;
	fill_all(load);
	if (load->plan->rate)
		send_due(load);
	return connected;
}

/* No request is open, and all are sent, or no more will be: a signal came, or nobody listens. */
static int is_over(const struct load *load)
{
	if (load->requests->ends[RUSH_OPEN] > 0)
		return 0;
	return load->requests->next == load->plan->requests_n || client_stop_asked() ||
	       load->client.now_us - load->alive_us > load->plan->timeout_us;
}

void rush_load_run(struct rush_requests *requests, const struct gateway_address *address,
		   int progress, struct rush_figures *figures)
{
	const struct rush_plan *plan = requests->plan;
	struct load load = { .requests = requests, .plan = plan };
	const struct client_owner owner = {
		.context = &load, .fill = fill, .reply = reply_take, .lost = lost
	};
	const struct client_form form = { .address = address,
					  .n = plan->connections_n,
					  .out_bytes = (size_t)plan->pipeline * RUSH_LINE_MAX };
	clock_t cpu_before;
	int64_t progress_us = 0;

	/* The kernel may wake a thread 50 us late otherwise, which would count as latency. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	client_init(&load.client, &owner, &form);
	cpu_before = clock();
	*figures = (struct rush_figures){ .connected = begin(&load) };
	figures->begin_us = load.client.begin_us;
	while (figures->connected > 0 && !is_over(&load)) {
		turn(&load);
		if (progress)
			rush_progress_print(requests, load.client.now_us, &progress_us);
	}
	client_stop_watch(0);
	if (progress)
		fputs("\r\033[K", stderr);
	figures->cpu_us = (clock() - cpu_before) * 1000000LL / CLOCKS_PER_SEC;
	figures->duration_us = rush_requests_answered(requests) == requests->next
				       ? requests->answered_last_us
				       : load.client.now_us;
	figures->disconnections = load.client.disconnections;
	figures->stopped = client_stop_asked() && requests->next < plan->requests_n;
	snprintf(figures->error, sizeof(figures->error), "%s", load.client.error);
	client_fini(&load.client);
}

/*
 * One thread, which waits for the connections in one epoll set:
 *
 *	list ─▶ request, while window, pace and hold allow it ─▶ a connection ─▶ gateway
 *	  ▲                                                                        │
 *	  └── end, or again ◀── verdict of the answer ◀────────────────────────────┘
 *
 * A request in flight has a number, which is its id on the wire, and belongs to one connection:
 * when that ends, the request is sent again. What is to be sent again goes before what was not sent
 * yet: `next` moves back to it.
 *
 * Requests ask for ack=issued: an answer is final when the user coupon is committed, or rejected.
 * After an answer that decides nothing, everything holds for a while, which doubles until a request
 * ends again.
 */
#include "ctl/distribute/distribute.h"

#include "common/check.h"
#include "ctl/distribute/window.h"
#include "ctl/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS_MAX 16384
#define LINE_MAX_BYTES 512         /* of a request: its id, user, key and words */
#define OPEN_MAX 2048              /* of one connection: COUPON_INFLIGHT_PER_CONNECTION_MAX */
#define ANSWER_TIMEOUT_US 30000000 /* longer than the gateway's own deadlines */
#define WAIT_MS 50                 /* without an event */
#define TROUBLE_SHOWN_US 1000000   /* after so long without an end the operator is told why */

/* A request in flight. */
struct flight {
	uint32_t user; /* its index in the list */
	uint32_t connection;
	int64_t sent_us; /* -1: this number is free */
};

struct run {
	const struct run_plan *plan;
	struct list *list;
	uint32_t next; /* all users before have ended or are in flight */
	uint32_t ended_n;
	struct flight flights[FLIGHTS_MAX]; /* by number */
	uint32_t free[FLIGHTS_MAX], free_n; /* numbers */
	struct client client;
	struct window window;
	struct pace pace;
	struct progress progress;
	struct backoff backoff;  /* of the hold */
	int64_t hold_us;         /* nothing is sent before */
	int64_t trouble_us;      /* the last trouble */
	int64_t ended_us;        /* when a request ended last */
	uint32_t disconnections; /* that were noticed */
	enum run_end stop;       /* why nothing new is sent; RUN_DONE: it is */
	int failed;
	char trouble[300], shown[300]; /* why nothing ends; what the operator was told */
};

static uint32_t inflight(const struct run *run)
{
	return FLIGHTS_MAX - run->free_n;
}

/* Whether a user is to be sent: then it is `next`. */
static int next_find(struct run *run)
{
	while (run->next < run->list->n && run->list->users[run->next].end != END_WAITING)
		run->next++;
	return run->next < run->list->n;
}

static uint32_t flight_begin(struct run *run, uint32_t connection)
{
	uint32_t number;

	check(run->free_n > 0);
	number = run->free[--run->free_n];
	run->flights[number] = (struct flight){
		.user = run->next,
		.connection = connection,
		.sent_us = run->client.now_us,
	};
	run->list->users[run->next].end = END_SENT;
	return number;
}

/* END_WAITING: it is to be sent again. */
static void flight_end(struct run *run, uint32_t number, enum end end)
{
	struct flight *flight = &run->flights[number];

	check(flight->sent_us >= 0);
	run->list->users[flight->user].end = end;
	if (end != END_WAITING)
		run->ended_n++;
	else if (flight->user < run->next)
		run->next = flight->user;
	flight->sent_us = -1;
	run->free[run->free_n++] = number;
}

/* Writes the request line; returns its end. */
static char *line_put(const struct run *run, uint32_t number, char *at)
{
	uint32_t i = run->flights[number].user;
	const struct listed *user = &run->list->users[i];

	at += sprintf(at, "{\"id\":%u,\"op\":\"issue\",\"coupon\":\"%lld\",\"user\":\"", number,
		      (long long)run->plan->coupon);
	at = escaped_append(at, list_text(run->list, i), user->len);
	return at + sprintf(at, "\",\"key\":\"%s%u\",\"ack\":\"issued\"}\n", run->plan->prefix,
			    user->repeat);
}

/* How many requests may be sent now. */
static uint32_t room(struct run *run)
{
	int64_t now_us = run->client.now_us;
	uint32_t n;

	if (run->stop != RUN_DONE || now_us < run->hold_us)
		return 0;
	n = window_room(&run->window, inflight(run));
	return n ? pace_room(&run->pace, now_us, n) : 0;
}

/* How many requests a connection may have open: its part of the window. */
static uint32_t share(const struct run *run)
{
	uint32_t part = (uint32_t)run->window.limit / run->client.n + 1;

	return part < OPEN_MAX ? part : OPEN_MAX;
}

static void fill(void *context, uint32_t i)
{
	struct run *run = context;
	struct client_connection *c = &run->client.list[i];
	uint32_t n = room(run), sent = 0;

	if (c->out_len > 0)
		return;
	while (sent < n && c->open < share(run) && next_find(run)) {
		uint32_t number = flight_begin(run, i);

		c->out_len = (size_t)(line_put(run, number, c->out + c->out_len) - c->out);
		c->open++;
		sent++;
	}
	pace_sent(&run->pace, sent);
	if (sent > 0)
		client_send(&run->client, i);
}

/* Each connection in turn gets a part of what may be sent. */
static void fill_all(struct run *run)
{
	for (uint32_t i = 0; i < run->client.n && room(run) > 0; i++)
		if (run->client.list[i].state == CLIENT_CONNECTED)
			fill(run, i);
}

/* Nothing is decided: `text` says why. Requests that were sent before say nothing new. */
static void trouble(struct run *run, int is_busy, int64_t sent_us, const char *text)
{
	if (sent_us < run->trouble_us || run->failed)
		return;
	snprintf(run->trouble, sizeof(run->trouble), "%s", text);
	run->trouble_us = run->client.now_us;
	run->hold_us = run->client.now_us + backoff_ms(&run->backoff) * 1000;
	if (is_busy)
		window_busy(&run->window, sent_us, run->client.now_us);
	else
		window_restart(&run->window, run->client.now_us);
}

/* As long as the gateway asks to wait, also in answers to requests that were sent before. */
static void hold(struct run *run, int64_t wait_ms)
{
	int64_t until_us = run->client.now_us + wait_ms * 1000;

	if (until_us > run->hold_us)
		run->hold_us = until_us;
}

/* No repetition would change what `text` says. */
static void fail(struct run *run, const char *text)
{
	if (!run->failed)
		snprintf(run->trouble, sizeof(run->trouble), "%s", text);
	run->failed = 1;
}

static void reply_take(struct run *run, const struct client_reply *reply, uint32_t number)
{
	enum answer answer = answer_from_code(reply->code);
	int64_t sent_us = run->flights[number].sent_us;
	enum end end = end_of_reply(reply);
	char text[200];

	flight_end(run, number, end == ENDS_N ? END_WAITING : end);
	if (end_is_final(end) && end != ENDS_N) {
		window_answer(&run->window, sent_us, run->client.now_us);
		run->ended_us = run->client.now_us;
		backoff_reset(&run->backoff);
		return;
	}
	if (answer == ANSWER_COUNT)
		snprintf(text, sizeof(text), "the gateway answers with code %d, which is not known",
			 reply->code);
	else
		snprintf(text, sizeof(text), "the gateway answers %s: %s", answer_status(answer),
			 answer_text(answer));
	if (end == ENDS_N)
		fail(run, text);
	else
		trouble(run, answer == ANSWER_BUSY || answer == ANSWER_RATE_LIMITED, sent_us, text);
	hold(run, reply->retry_after_ms);
}

static void answer_take(void *context, uint32_t i, const struct client_reply *reply,
			const char *line, size_t len)
{
	struct run *run = context;
	int64_t number = reply ? reply->request : -1;
	char text[200];

	if (number < 0 || number >= FLIGHTS_MAX || run->flights[number].sent_us < 0 ||
	    run->flights[number].connection != i) {
		snprintf(text, sizeof(text), "the gateway sends what is no answer: %.*s",
			 len < 100 ? (int)len : 100, line);
		fail(run, text);
		client_close(&run->client, i, "it is no gateway");
		return;
	}
	run->client.list[i].open--;
	reply_take(run, reply, (uint32_t)number);
}

static void lost(void *context, uint32_t i)
{
	struct run *run = context;

	for (uint32_t number = 0; number < FLIGHTS_MAX; number++)
		if (run->flights[number].sent_us >= 0 && run->flights[number].connection == i)
			flight_end(run, number, END_WAITING);
}

/* Connections that end, or cannot be opened. */
static void connections_watch(struct run *run)
{
	char text[300];

	if (run->client.disconnections == run->disconnections && run->client.open_n > 0)
		return;
	if (!run->client.error[0] || run->client.now_us < run->hold_us)
		return;
	run->disconnections = run->client.disconnections;
	snprintf(text, sizeof(text), "the gateway cannot be reached: %s", run->client.error);
	if (run->client.error_number == EACCES)
		fail(run, text);
	else if (run->client.open_n == 0)
		trouble(run, 0, run->client.now_us, text);
	else
		window_restart(&run->window, run->client.now_us);
}

/*
 * Requests that a gateway that hangs does not answer are sent again over a new connection. A
 * connection that does not open in time begins anew, too.
 */
static void overdue_close(struct run *run)
{
	int64_t before_us = run->client.now_us - ANSWER_TIMEOUT_US;

	for (uint32_t number = 0; number < FLIGHTS_MAX && before_us > 0; number++)
		if (run->flights[number].sent_us >= 0 && run->flights[number].sent_us < before_us)
			client_close(&run->client, run->flights[number].connection,
				     "no answer in time");
	client_close_unopened(&run->client, before_us);
}

static void show(struct run *run)
{
	int is_waiting = run->client.now_us - run->ended_us > TROUBLE_SHOWN_US && run->trouble[0];

	if (is_waiting && strcmp(run->trouble, run->shown) != 0) {
		progress_hide(&run->progress);
		fprintf(stderr, "couponctl: waiting: %s\n", run->trouble);
		memcpy(run->shown, run->trouble, sizeof(run->shown));
	}
	if (!is_waiting)
		run->shown[0] = '\0';
	progress_show(&run->progress, "distributing", run->ended_n, run->list->n);
}

static int wait_ms(const struct run *run)
{
	int64_t until_us = run->hold_us > run->client.now_us
				   ? run->hold_us - run->client.now_us
				   : pace_wait_us(&run->pace, run->client.now_us);

	if (until_us == 0 || until_us > WAIT_MS * 1000 || run->stop != RUN_DONE)
		return WAIT_MS;
	return (int)(until_us / 1000 + 1);
}

/* Why nothing more is to be sent; RUN_DONE: there is no reason. */
static enum run_end stop_reason(const struct run *run)
{
	if (run->failed)
		return RUN_FAILED;
	if (client_stop_asked())
		return RUN_INTERRUPTED;
	if (run->client.now_us - run->ended_us > run->plan->patience_us)
		return RUN_IMPATIENT;
	return RUN_DONE;
}

static struct run *run_new(struct list *list, const struct run_plan *plan)
{
	struct run *run = checked(calloc(1, sizeof(*run)));
	struct client_owner owner = {
		.context = run, .fill = fill, .reply = answer_take, .lost = lost
	};
	const struct client_form form = {
		.address = &plan->address,
		.n = plan->connections_n,
		.out_bytes = (size_t)OPEN_MAX * LINE_MAX_BYTES,
	};

	run->plan = plan;
	run->list = list;
	for (uint32_t i = 0; i < list->n; i++)
		if (end_is_final(list->users[i].end))
			run->ended_n++;
	for (uint32_t number = FLIGHTS_MAX; number-- > 0;) {
		run->flights[number].sent_us = -1;
		run->free[run->free_n++] = number;
	}
	window_init(&run->window, plan->target_us, FLIGHTS_MAX);
	pace_init(&run->pace, plan->rate);
	client_init(&run->client, &owner, &form);
	return run;
}

void run(struct list *list, const struct run_plan *plan, struct run_report *report)
{
	struct run *run = run_new(list, plan);
	uint32_t ended_before = run->ended_n;

	client_stop_watch(1);
	while (run->ended_n < list->n) {
		if (run->stop == RUN_DONE)
			run->stop = stop_reason(run);
		if (run->stop != RUN_DONE && inflight(run) == 0)
			break;
		client_wait(&run->client, wait_ms(run) * 1000);
		connections_watch(run);
		overdue_close(run);
		fill_all(run);
		show(run);
	}
	client_stop_watch(0);
	progress_end(&run->progress);
	report->end = run->ended_n < list->n ? run->stop : RUN_DONE;
	report->answered_n = run->ended_n - ended_before;
	report->duration_us = run->client.now_us;
	snprintf(report->why, sizeof(report->why), "%s", run->trouble);
	client_fini(&run->client);
	free(run);
}

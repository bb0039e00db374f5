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
#include "ctl/say.h"

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

struct run {
	const struct run_plan *plan;
	struct list *list;
	uint32_t next; /* all users before have ended or are in flight */
	uint32_t ended_n;
	struct run_request {
		uint32_t user; /* its index in the list */
		uint32_t connection;
		int64_t sent_us;            /* -1: this number is free */
	} flights[FLIGHTS_MAX];             /* by number */
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

/* END_WAITING: it is to be sent again. */
static void flight_end(struct run *run, uint32_t number, enum end end)
{
	struct run_request *flight = &run->flights[number];

	check(flight->sent_us >= 0);
	run->list->users[flight->user].end = end;
	if (end != END_WAITING)
		run->ended_n++;
	else if (flight->user < run->next)
		run->next = flight->user;
	flight->sent_us = -1;
	run->free[run->free_n++] = number;
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

/* Gives a connection its part of what the window allows, if it has nothing to write. */
static void fill(void *context, uint32_t i)
{
	struct run *run = context;
	struct client_connection *c = &run->client.list[i];
	struct list *list = run->list;
	uint32_t part = (uint32_t)run->window.limit / run->client.n + 1;
	uint32_t n = room(run), sent = 0;

	if (c->out_len > 0)
		return;
	if (part > OPEN_MAX)
		part = OPEN_MAX;
	while (sent < n && c->open < part) {
		char *at = c->out + c->out_len;
		uint32_t number;

		while (run->next < list->n && list->users[run->next].end != END_WAITING)
			run->next++;
		if (run->next == list->n)
			break;
		check(run->free_n > 0);
		number = run->free[--run->free_n];
		run->flights[number] = (struct run_request){
			.user = run->next,
			.connection = i,
			.sent_us = run->client.now_us,
		};
		list->users[run->next].end = END_SENT;

		at += sprintf(at, "{\"id\":%u,\"op\":\"issue\",\"coupon\":\"%lld\",\"user\":\"",
			      number, (long long)run->plan->coupon);
		at = escaped_append(at, list_text(list, run->next), list->users[run->next].len);
		at += sprintf(at, "\",\"key\":\"%s%u\",\"ack\":\"issued\"}\n", run->plan->prefix,
			      list->users[run->next].repeat);
		c->out_len = (size_t)(at - c->out);
		c->open++;
		sent++;
	}
	pace_sent(&run->pace, sent);
	if (sent > 0)
		client_send(&run->client, i);
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

/* No repetition would change what `text` says. */
static void fail(struct run *run, const char *text)
{
	if (!run->failed)
		snprintf(run->trouble, sizeof(run->trouble), "%s", text);
	run->failed = 1;
}

/*
 * What an answer means for the request. END_WAITING: it is not decided, or not known, and is sent
 * again with the same key. ENDS_N: no further request can be answered otherwise.
 */
static enum end end_of_reply(const struct client_reply *reply)
{
	enum answer answer = answer_from_code(reply->code);
	enum reason reason;

	switch (answer) {
	case ANSWER_OK:
	case ANSWER_OUT_OF_STOCK:
	case ANSWER_ENDED:
	case ANSWER_LIMIT_REACHED:
		return (enum end)(END_ANSWERED + (int)answer);
	case ANSWER_REJECTED:
		reason = reply->reason ? reason_find(reply->reason) : REASON_NONE;
		/* Redis had lost the key: the user has its coupon, by an earlier request. */
		return reason == REASON_KEY_TAKEN ? END_ISSUED
						  : (enum end)(END_REJECTED + (int)reason);
	case ANSWER_NOT_STARTED:
	case ANSWER_PAUSED:
	case ANSWER_BUSY:
	case ANSWER_UNAVAILABLE:
	case ANSWER_UNKNOWN:
	case ANSWER_RATE_LIMITED:
		return END_WAITING;
	case ANSWER_NOT_FOUND:
	case ANSWER_CODE_INVALID:
	case ANSWER_CODE_USED:
	case ANSWER_CODE_EXPIRED:
	case ANSWER_HELD_BY_OTHER: /* of uses, as the next ones */
	case ANSWER_ALREADY_USED:
	case ANSWER_EXPIRED:
	case ANSWER_NOT_VALID_YET:
	case ANSWER_VOIDED:
	case ANSWER_BUDGET_SPENT:
	case ANSWER_BELOW_THRESHOLD:
	case ANSWER_AMOUNT_EXCEEDED:
	case ANSWER_BAD_REQUEST:
	case ANSWER_UNAUTHORIZED:
	case ANSWER_FORBIDDEN:
	case ANSWER_TOO_LARGE:
	case ANSWER_KEY_REUSED:
	case ANSWER_COUNT:
		break;
	}
	return ENDS_N;
}

static void answer_take(void *context, uint32_t i, const struct client_reply *reply,
			const char *line, size_t len)
{
	struct run *run = context;
	int64_t number = reply ? reply->request : -1, sent_us;
	char text[200];
	enum answer answer;
	enum end end;

	if (number < 0 || number >= FLIGHTS_MAX || run->flights[number].sent_us < 0 ||
	    run->flights[number].connection != i) {
		snprintf(text, sizeof(text), "the gateway sends what is no answer: %.*s",
			 len < 100 ? (int)len : 100, line);
		fail(run, text);
		client_close(&run->client, i, "it is no gateway");
		return;
	}
	run->client.list[i].open--;
	answer = answer_from_code(reply->code);
	end = end_of_reply(reply);
	sent_us = run->flights[number].sent_us;
	flight_end(run, (uint32_t)number, end == ENDS_N ? END_WAITING : end);
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
	/*
	 * Nothing is sent for as long as the gateway asks to wait, also in answers to earlier
	 * requests.
	 */
	if (run->client.now_us + reply->retry_after_ms * 1000 > run->hold_us)
		run->hold_us = run->client.now_us + reply->retry_after_ms * 1000;
}

static void lost(void *context, uint32_t i)
{
	struct run *run = context;

	for (uint32_t number = 0; number < FLIGHTS_MAX; number++)
		if (run->flights[number].sent_us >= 0 && run->flights[number].connection == i)
			flight_end(run, number, END_WAITING);
}

/* Notes connections that have ended or cannot be opened. */
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

static int wait_ms(const struct run *run)
{
	int64_t until_us = run->hold_us > run->client.now_us
				   ? run->hold_us - run->client.now_us
				   : pace_wait_us(&run->pace, run->client.now_us);

	if (until_us == 0 || until_us > WAIT_MS * 1000 || run->stop != RUN_DONE)
		return WAIT_MS;
	return (int)(until_us / 1000 + 1);
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
	struct client *client = &run->client;
	uint32_t ended_before = run->ended_n;

	client_stop_watch(1);
	while (run->ended_n < list->n) {
		int64_t before_us;
		int is_waiting;

		/* Whether no more is to be sent. Nothing in flight: then it ends. */
		if (run->stop == RUN_DONE && run->failed)
			run->stop = RUN_FAILED;
		else if (run->stop == RUN_DONE && client_stop_asked())
			run->stop = RUN_INTERRUPTED;
		else if (run->stop == RUN_DONE &&
			 client->now_us - run->ended_us > plan->patience_us)
			run->stop = RUN_IMPATIENT;
		if (run->stop != RUN_DONE && inflight(run) == 0)
			break;

		client_wait(client, wait_ms(run) * 1000);
		connections_watch(run);

		/*
		 * Requests that a gateway that hangs does not answer are sent again over a new
		 * connection. A connection that does not open in time begins anew, too.
		 */
		before_us = client->now_us - ANSWER_TIMEOUT_US;
		for (uint32_t number = 0; number < FLIGHTS_MAX && before_us > 0; number++)
			if (run->flights[number].sent_us >= 0 &&
			    run->flights[number].sent_us < before_us)
				client_close(client, run->flights[number].connection,
					     "no answer in time");
		client_close_unopened(client, before_us);

		/* Each connection in turn gets a part of what may be sent. */
		for (uint32_t i = 0; i < client->n && room(run) > 0; i++)
			if (client->list[i].state == CLIENT_CONNECTED)
				fill(run, i);

		is_waiting = client->now_us - run->ended_us > TROUBLE_SHOWN_US && run->trouble[0];
		if (is_waiting && strcmp(run->trouble, run->shown) != 0) {
			progress_hide(&run->progress);
			say("waiting: %s", run->trouble);
			memcpy(run->shown, run->trouble, sizeof(run->shown));
		}
		if (!is_waiting)
			run->shown[0] = '\0';
		progress_show(&run->progress, "distributing", run->ended_n, list->n);
	}
	client_stop_watch(0);
	progress_end(&run->progress);
	report->end = run->ended_n < list->n ? run->stop : RUN_DONE;
	report->answered_n = run->ended_n - ended_before;
	report->duration_us = client->now_us;
	snprintf(report->why, sizeof(report->why), "%s", run->trouble);
	client_fini(client);
	free(run);
}

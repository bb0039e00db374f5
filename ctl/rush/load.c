/*
 * One thread, one epoll set:
 *
 *	          ┌─ fill: request lines, as many as fit ─▶ out ─▶ send ─┐
 *	book ─────┤                                                      ├── a connection
 *	          └─ answers ◀─ scan ◀─ in ◀─ recv ──────────────────────┘
 *
 * A connection is filled again when half of its pipeline is answered, so that one send carries many
 * requests. With a rate, the requests that are due go to one connection after the other.
 */
#include "ctl/rush/load.h"

#include "common/check.h"
#include "common/clock.h"
#include "ctl/rush/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define CONNECT_TIMEOUT_US 5000000 /* for the connections to be there at the beginning */
#define SEND_GAP_US 200            /* with a rate: what comes due in between goes out together */
#define PROGRESS_US 100000

struct load {
	struct rush_book *book;
	const struct rush_plan *plan;
	const struct gateway_address *address;
	struct rush_figures *figures;
	struct json_arena *arena;
	struct rush_connection *connections;
	uint32_t turn;   /* with a rate: the connection that is next */
	uint32_t open_n; /* connections that are open */
	uint32_t closed_n;
	int epoll, timer;
	int running; /* the clock runs */
	int64_t begin_us;
	int64_t now_us; /* since the beginning */
	int64_t sent_last_us;
	int64_t alive_us; /* when a connection was last open */
	int64_t timer_us; /* what the timer is set to */
};

static void now_read(struct load *load)
{
	load->now_us = clock_monotonic_us() - load->begin_us;
}

static void watch(struct load *load, struct rush_connection *c, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events,
				     .data.u32 = (uint32_t)(c - load->connections) };

	check(epoll_ctl(load->epoll, operation, c->fd, &event) == 0);
}

static void connection_closed(struct load *load, struct rush_connection *c, const char *why)
{
	if (c->state == RUSH_CONNECTED) {
		load->open_n--;
		load->figures->disconnections++;
		rush_book_lost(load->book, (uint16_t)(c - load->connections));
	}
	if (c->state != RUSH_CLOSED)
		load->closed_n++;
	snprintf(load->figures->error, sizeof(load->figures->error), "%s", why);
	rush_connection_clear(c);
	c->retry_us = load->now_us + backoff_ms(&c->backoff) * 1000;
}

static void connection_open(struct load *load, struct rush_connection *c)
{
	c->fd = gateway_connect(load->address);
	if (c->fd < 0) {
		connection_closed(load, c, strerror(errno));
		return;
	}
	c->state = RUSH_CONNECTING;
	load->closed_n--;
	watch(load, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void connection_opened(struct load *load, struct rush_connection *c)
{
	int error = gateway_connect_error(c->fd);

	if (error) {
		connection_closed(load, c, strerror(error));
		return;
	}
	c->state = RUSH_CONNECTED;
	load->open_n++;
	backoff_reset(&c->backoff);
	watch(load, c, EPOLL_CTL_MOD, EPOLLIN);
}

static void connection_send(struct load *load, struct rush_connection *c)
{
	const char *error = rush_connection_send(c);

	if (error) {
		connection_closed(load, c, error);
		return;
	}
	if (c->want_write != (c->out_len > 0)) {
		c->want_write = c->out_len > 0;
		watch(load, c, EPOLL_CTL_MOD, c->want_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

/* Requests up to number `stop` go out on this connection, as many as its pipeline has room for. */
static void connection_fill(struct load *load, struct rush_connection *c, uint32_t stop)
{
	struct rush_book *book = load->book;
	const struct rush_plan *plan = load->plan;

	if (c->state != RUSH_CONNECTED || c->out_len > 0)
		return;
	while (c->open < plan->pipeline && book->next < stop) {
		int64_t due_us = plan->rate ? rush_plan_due_us(plan, book->next) : load->now_us;
		uint32_t request = rush_book_send(book, (uint16_t)(c - load->connections), due_us,
						  load->now_us);

		c->out_len += rush_plan_line(plan, request, c->out + c->out_len);
		c->open++;
	}
	if (c->out_len > 0)
		connection_send(load, c);
}

static void line_take(struct load *load, const char *line, size_t len)
{
	struct rush_reply reply;
	int of;

	if (rush_scan(line, len, &reply) && rush_scan_strict(load->arena, line, len, &reply)) {
		rush_book_strange(load->book, line, len);
		return;
	}
	of = rush_book_answer(load->book, &reply, load->now_us);
	if (of >= 0)
		load->connections[of].open--;
	else if (of == RUSH_WRONG)
		rush_book_strange(load->book, line, len);
}

static void connection_receive(struct load *load, struct rush_connection *c)
{
	const char *error = rush_connection_receive(c), *line;
	size_t len;

	if (error) {
		connection_closed(load, c, error);
		return;
	}
	now_read(load);
	while ((line = rush_connection_line(c, &len)))
		line_take(load, line, len);
	if (!load->plan->rate && c->open <= load->plan->pipeline / 2)
		connection_fill(load, c, load->plan->requests_n);
}

static void connection_event(struct load *load, struct rush_connection *c, uint32_t events)
{
	if (c->state == RUSH_CONNECTING) {
		connection_opened(load, c);
		if (c->state == RUSH_CONNECTED && load->running && !load->plan->rate)
			connection_fill(load, c, load->plan->requests_n);
		return;
	}
	if (c->state == RUSH_CONNECTED && (events & EPOLLOUT)) {
		connection_send(load, c);
		if (c->state == RUSH_CONNECTED && !load->plan->rate)
			connection_fill(load, c, load->plan->requests_n);
	}
	if (c->state == RUSH_CONNECTED && (events & ~(uint32_t)EPOLLOUT))
		connection_receive(load, c);
}

static void expire(struct load *load)
{
	int expired = 0, of;

	while ((of = rush_book_expire(load->book, load->now_us)) >= 0) {
		load->connections[of].open--;
		expired = 1;
	}
	if (expired && !load->plan->rate)
		for (uint32_t i = 0; i < load->plan->connections_n; i++)
			connection_fill(load, &load->connections[i], load->plan->requests_n);
}

static void reconnect(struct load *load)
{
	for (uint32_t i = 0; load->closed_n > 0 && i < load->plan->connections_n; i++) {
		struct rush_connection *c = &load->connections[i];

		if (c->state == RUSH_CLOSED && c->retry_us <= load->now_us)
			connection_open(load, c);
	}
}

/* With a rate: what is due goes out. */
static void send_due(struct load *load)
{
	const struct rush_plan *plan = load->plan;
	int64_t due = load->now_us * plan->rate / 1000000 + 1;
	uint32_t stop = due < plan->requests_n ? (uint32_t)due : plan->requests_n;

	if (load->book->next >= stop || load->now_us < load->sent_last_us + SEND_GAP_US)
		return;
	for (uint32_t i = 0; i < plan->connections_n && load->book->next < stop; i++)
		connection_fill(load, &load->connections[load->turn++ % plan->connections_n], stop);
	load->sent_last_us = load->now_us;
}

/* When something is to be done though nothing comes in; at most a while from now. */
static int64_t wake_us(struct load *load)
{
	const struct rush_plan *plan = load->plan;
	int64_t wake = load->now_us + PROGRESS_US, other = rush_book_deadline_us(load->book);

	if (other < wake)
		wake = other;
	if (load->closed_n > 0 && load->now_us + 1000 * BACKOFF_FIRST_MS / 2 < wake)
		wake = load->now_us + 1000 * BACKOFF_FIRST_MS / 2;
	if (plan->rate && load->running && load->book->next < plan->requests_n) {
		other = rush_plan_due_us(plan, load->book->next);
		if (other < load->sent_last_us + SEND_GAP_US)
			other = load->sent_last_us + SEND_GAP_US;
		/* Overdue: every pipeline is full, and an answer will wake us. */
		if (other > load->now_us && other < wake)
			wake = other;
	}
	return wake;
}

/*
 * epoll counts in milliseconds, and requests come due between them: a timer in the set wakes at the
 * microsecond.
 */
static void timer_set(struct load *load, int64_t wake)
{
	int64_t at_us = load->begin_us + wake;
	struct itimerspec spec = { .it_value = { .tv_sec = at_us / 1000000,
						 .tv_nsec = at_us % 1000000 * 1000 } };

	if (wake != load->timer_us)
		check(timerfd_settime(load->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
	load->timer_us = wake;
}

static void turn(struct load *load)
{
	struct epoll_event events[EVENTS_MAX];
	int64_t wake = wake_us(load), wait_us = wake - load->now_us;
	int timeout_ms = wait_us <= 0 ? 0 : (int)((wait_us + 999) / 1000);
	int n;

	if (load->plan->rate && load->running)
		timer_set(load, wake);
	n = epoll_wait(load->epoll, events, EVENTS_MAX, timeout_ms);
	now_read(load);
	for (int i = 0; i < n; i++) {
		if (events[i].data.u32 < load->plan->connections_n)
			connection_event(load, &load->connections[events[i].data.u32],
					 events[i].events);
	}
	now_read(load);
	if (load->open_n > 0)
		load->alive_us = load->now_us;
	expire(load);
	reconnect(load);
	if (load->plan->rate && load->running)
		send_due(load);
}

static void progress_print(const struct load *load, int64_t *next_us)
{
	char bar[31];
	uint32_t ended = load->book->next - rush_book_open(load->book),
		 all = load->plan->requests_n;
	int full = (int)((uint64_t)ended * 30 / all);

	if (load->now_us < *next_us)
		return;
	for (int i = 0; i < 30; i++)
		bar[i] = i < full ? '#' : '.';
	bar[30] = '\0';
	fprintf(stderr, "\r[%s] %u of %u, %.1f s ", bar, ended, all, (double)load->now_us / 1e6);
	*next_us = load->now_us + PROGRESS_US;
}

static int64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
	       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void load_init(struct load *load, struct rush_book *book,
		      const struct gateway_address *address, struct rush_figures *figures)
{
	/* Edge-triggered: nobody reads the timer. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = UINT32_MAX };

	memset(load, 0, sizeof(*load));
	load->book = book;
	load->plan = book->plan;
	load->address = address;
	load->figures = figures;
	load->arena = json_arena_new();
	load->begin_us = clock_monotonic_us();
	load->epoll = epoll_create1(EPOLL_CLOEXEC);
	load->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	check(load->epoll >= 0 && load->timer >= 0);
	check(epoll_ctl(load->epoll, EPOLL_CTL_ADD, load->timer, &event) == 0);
	load->connections = calloc(load->plan->connections_n, sizeof(*load->connections));
	check(load->connections != NULL);
	load->closed_n = load->plan->connections_n;
	for (uint32_t i = 0; i < load->plan->connections_n; i++)
		rush_connection_init(&load->connections[i],
				     (size_t)load->plan->pipeline * RUSH_LINE_MAX);
}

static void load_fini(struct load *load)
{
	for (uint32_t i = 0; i < load->plan->connections_n; i++)
		rush_connection_fini(&load->connections[i]);
	free(load->connections);
	close(load->epoll);
	close(load->timer);
	json_arena_free(load->arena);
}

static void begin(struct load *load)
{
	reconnect(load);
	while (load->open_n < load->plan->connections_n && load->now_us < CONNECT_TIMEOUT_US)
		turn(load);
	load->figures->connected = load->open_n;
	load->begin_us = clock_monotonic_us();
	/* What was measured from the former beginning. */
	for (uint32_t i = 0; i < load->plan->connections_n; i++)
		load->connections[i].retry_us = 0;
	load->now_us = load->alive_us = 0;
	load->sent_last_us = -SEND_GAP_US;
	load->timer_us = -1;
	load->running = 1;
	load->figures->begin_us = load->begin_us;
	if (load->plan->rate)
		send_due(load);
	for (uint32_t i = 0; !load->plan->rate && i < load->plan->connections_n; i++)
		connection_fill(load, &load->connections[i], load->plan->requests_n);
}

/* Nothing open, and either all is sent or for too long there was nobody to send to. */
static int is_over(const struct load *load)
{
	if (rush_book_open(load->book) > 0)
		return 0;
	return load->book->next == load->plan->requests_n ||
	       load->now_us - load->alive_us > load->plan->timeout_us;
}

int rush_load_run(struct rush_book *book, const struct gateway_address *address, int progress,
		  struct rush_figures *figures)
{
	struct load load;
	int64_t progress_us = 0, cpu_before_us;

	memset(figures, 0, sizeof(*figures));
	load_init(&load, book, address, figures);
	cpu_before_us = cpu_us();
	begin(&load);
	while (figures->connected > 0 && !is_over(&load)) {
		turn(&load);
		if (progress)
			progress_print(&load, &progress_us);
	}
	if (progress)
		fputs("\r\033[K", stderr);
	figures->cpu_us = cpu_us() - cpu_before_us;
	figures->duration_us = rush_book_answered(book) == book->next ? book->answered_last_us
								      : load.now_us;
	load_fini(&load);
	return figures->connected > 0 ? 0 : -1;
}

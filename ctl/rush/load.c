/*
 * One thread waits for the connections in one epoll set. With a rate, a timer in the same set wakes
 * it when the next request is due.
 */
#include "ctl/rush/load.h"

#include "common/check.h"
#include "common/clock.h"
#include "ctl/rush/clients.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_US 5000000 /* for all connections to be open at the start */
#define SEND_GAP_US 200            /* with a rate: requests due within it are sent together */
#define PROGRESS_US 100000

static volatile sig_atomic_t stop_asked;

/* From now on a signal ends the process. */
static void signals_reset(void)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
}

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
	signals_reset();
}

static void signals_take(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

struct load {
	struct clients clients;
	uint32_t turn; /* with a rate: the connection that is next */
	int timer;
	int64_t sent_last_us;
	int64_t alive_us; /* when a connection was last open */
	int64_t timer_us; /* what the timer is set to */
};

/* With a rate: sends the requests that are due. */
static void send_due(struct load *load)
{
	const struct rush_plan *plan = load->clients.plan;
	int64_t due = load->clients.set.now_us * plan->rate / 1000000 + 1;
	uint32_t stop = due < plan->requests_n ? (uint32_t)due : plan->requests_n;

	if (load->clients.book->next >= stop ||
	    load->clients.set.now_us < load->sent_last_us + SEND_GAP_US)
		return;
	for (uint32_t i = 0; i < plan->connections_n && load->clients.book->next < stop; i++)
		clients_fill(&load->clients, load->turn++ % plan->connections_n, stop);
	load->sent_last_us = load->clients.set.now_us;
}

/* When to wake up without an event. */
static int64_t wake_us(struct load *load)
{
	const struct rush_plan *plan = load->clients.plan;
	int64_t wake = load->clients.set.now_us + PROGRESS_US,
		other = rush_book_deadline_us(load->clients.book);

	if (other < wake)
		wake = other;
	if (load->clients.set.closed_n > 0 &&
	    load->clients.set.now_us + 1000 * BACKOFF_FIRST_MS / 2 < wake)
		wake = load->clients.set.now_us + 1000 * BACKOFF_FIRST_MS / 2;
	if (plan->rate && load->clients.may_send && load->clients.book->next < plan->requests_n) {
		other = rush_plan_due_us(plan, load->clients.book->next);
		if (other < load->sent_last_us + SEND_GAP_US)
			other = load->sent_last_us + SEND_GAP_US;
		/* An overdue request waits for a full pipeline: an answer wakes the loop. */
		if (other > load->clients.set.now_us && other < wake)
			wake = other;
	}
	return wake;
}

/* epoll waits in milliseconds; the timer wakes at the microsecond. */
static void timer_set(struct load *load, int64_t wake)
{
	int64_t at_us = load->clients.set.begin_us + wake;
	struct itimerspec spec = { .it_value = { .tv_sec = at_us / 1000000,
						 .tv_nsec = at_us % 1000000 * 1000 } };

	if (wake != load->timer_us)
		check(timerfd_settime(load->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
	load->timer_us = wake;
}

static void turn(struct load *load)
{
	struct clients *clients = &load->clients;
	int64_t wake = wake_us(load), wait_us = wake - clients->set.now_us;
	int timeout_ms = wait_us <= 0 ? 0 : (int)((wait_us + 999) / 1000);
	int is_paced;

	if (stop_asked)
		clients->may_send = 0;
	is_paced = clients->plan->rate && clients->may_send;
	if (is_paced)
		timer_set(load, wake);
	client_set_wait(&clients->set, timeout_ms);
	if (clients->set.open_n > 0)
		load->alive_us = clients->set.now_us;
	clients_expire(clients);
	client_set_connect(&clients->set);
	if (is_paced)
		send_due(load);
}

static void progress_print(const struct load *load, int64_t *next_us)
{
	char bar[31];
	uint32_t ended = load->clients.book->next - rush_book_open(load->clients.book),
		 all = load->clients.plan->requests_n;
	int full = (int)((uint64_t)ended * 30 / all);

	if (load->clients.set.now_us < *next_us)
		return;
	for (int i = 0; i < 30; i++)
		bar[i] = i < full ? '#' : '.';
	bar[30] = '\0';
	fprintf(stderr, "\r[%s] %u of %u, %.1f s ", bar, ended, all,
		(double)load->clients.set.now_us / 1e6);
	*next_us = load->clients.set.now_us + PROGRESS_US;
}

static int64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
	       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void load_init(struct load *load, struct rush_book *book,
		      const struct gateway_address *address)
{
	/* Edge-triggered: the timer is never read. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = UINT32_MAX };

	memset(load, 0, sizeof(*load));
	clients_init(&load->clients, book, address);
	load->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	check(load->timer >= 0);
	check(epoll_ctl(load->clients.set.epoll, EPOLL_CTL_ADD, load->timer, &event) == 0);
}

/* Opens the connections, then starts the clock and the requests. Returns how many are open. */
static uint32_t begin(struct load *load)
{
	struct clients *clients = &load->clients;
	uint32_t connected;

	client_set_connect(&clients->set);
	while (clients->set.open_n < clients->plan->connections_n &&
	       clients->set.now_us < CONNECT_TIMEOUT_US)
		turn(load);
	connected = clients->set.open_n;
	signals_take();
	clients_start(clients);
	load->alive_us = 0;
	load->sent_last_us = -SEND_GAP_US;
	load->timer_us = -1;
	if (clients->plan->rate)
		send_due(load);
	return connected;
}

/* No request is open, and all are sent, or no more will be: a signal came, or nobody listens. */
static int is_over(const struct load *load)
{
	const struct clients *clients = &load->clients;

	if (rush_book_open(clients->book) > 0)
		return 0;
	return clients->book->next == clients->plan->requests_n || stop_asked ||
	       clients->set.now_us - load->alive_us > clients->plan->timeout_us;
}

int rush_load_run(struct rush_book *book, const struct gateway_address *address, int progress,
		  struct rush_figures *figures)
{
	struct load load;
	int64_t progress_us = 0, cpu_before_us;

	memset(figures, 0, sizeof(*figures));
	load_init(&load, book, address);
	cpu_before_us = cpu_us();
	figures->connected = begin(&load);
	figures->begin_us = load.clients.set.begin_us;
	while (figures->connected > 0 && !is_over(&load)) {
		turn(&load);
		if (progress)
			progress_print(&load, &progress_us);
	}
	signals_reset();
	if (progress)
		fputs("\r\033[K", stderr);
	figures->cpu_us = cpu_us() - cpu_before_us;
	figures->duration_us = rush_book_answered(book) == book->next ? book->answered_last_us
								      : load.clients.set.now_us;
	figures->disconnections = load.clients.set.disconnections;
	figures->stopped = stop_asked && book->next < book->plan->requests_n;
	snprintf(figures->error, sizeof(figures->error), "%s", load.clients.set.error);
	close(load.timer);
	clients_fini(&load.clients);
	return figures->connected > 0 ? 0 : -1;
}

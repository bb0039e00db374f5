#include "common/postgres/query.h"

#include "common/check.h"
#include "common/clock.h"

#include <poll.h>
#include <stddef.h>

#define WAITING_EVERY_MS 250

/* Waits until the socket is ready, the deadline has passed, or `waiting` is to be called again. */
static void socket_wait(struct postgres *postgres)
{
	struct pollfd pollfd = { .fd = postgres_fd(postgres),
				 .events = postgres_poll_events(postgres) };
	int64_t left_ms = postgres_deadline_ms(postgres) - clock_monotonic_ms();

	if (left_ms > 0)
		poll(&pollfd, 1, (int)(left_ms < WAITING_EVERY_MS ? left_ms : WAITING_EVERY_MS));
}

int postgres_open(struct postgres *postgres)
{
	if (postgres_up(postgres))
		return 0;
	if (postgres_connect(postgres, NULL, clock_monotonic_ms()))
		return -1;
	for (;;) {
		switch (postgres_step(postgres, clock_monotonic_ms())) {
		case POSTGRES_NOTHING:
		case POSTGRES_ENDED:
			socket_wait(postgres);
			break;
		case POSTGRES_CONNECTED:
			return 0;
		case POSTGRES_LOST:
			return -1;
		}
	}
}

/* 0 when the statement has ended, -1 when the connection is lost. */
static int end_wait(struct postgres *postgres, const struct postgres_patience *patience)
{
	for (;;) {
		switch (postgres_step(postgres, clock_monotonic_ms())) {
		case POSTGRES_NOTHING:
		case POSTGRES_CONNECTED:
			break;
		case POSTGRES_ENDED:
			return 0;
		case POSTGRES_LOST:
			return -1;
		}
		if (patience->waiting && patience->waiting(patience->context)) {
			postgres_drop(postgres, "the wait was ended");
			return -1;
		}
		socket_wait(postgres);
	}
}

static int64_t deadline_ms(const struct postgres_patience *patience)
{
	return patience->timeout_ms ? clock_monotonic_ms() + patience->timeout_ms : INT64_MAX;
}

PGresult *postgres_query_take(struct postgres *postgres, const struct postgres_patience *patience)
{
	if (end_wait(postgres, patience) || postgres_failure(postgres) != POSTGRES_OK)
		return NULL;
	return postgres_result_take(postgres);
}

void postgres_query_send(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience)
{
	postgres_send(postgres, sql, n, arguments, deadline_ms(patience));
}

PGresult *postgres_query(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience)
{
	postgres_query_send(postgres, sql, n, arguments, patience);
	return postgres_query_take(postgres, patience);
}

PGresult *postgres_query_binary(struct postgres *postgres, const char *sql, int n,
				const struct postgres_argument *arguments,
				const struct postgres_patience *patience)
{
	postgres_send_binary(postgres, sql, n, arguments, deadline_ms(patience));
	return postgres_query_take(postgres, patience);
}

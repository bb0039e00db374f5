#include "common/ticker.h"

#include "common/check.h"

#include <stdlib.h>

struct ticker {
	struct event *event;
	struct timeval every;
	ticker_fn *tick;
	void *context;
	int runs;
};

static void on_timeout(evutil_socket_t fd, short what, void *data)
{
	struct ticker *ticker = data;

	(void)fd;
	(void)what;
	ticker->runs = 0;
	if (ticker->tick(ticker->context))
		ticker_start(ticker);
}

struct ticker *ticker_new(struct event_base *base, int64_t every_ms, ticker_fn *tick, void *context)
{
	struct ticker *ticker = calloc(1, sizeof(*ticker));

	check(ticker != NULL);
	ticker->every.tv_sec = every_ms / 1000;
	ticker->every.tv_usec = every_ms % 1000 * 1000;
	ticker->tick = tick;
	ticker->context = context;
	ticker->event = evtimer_new(base, on_timeout, ticker);
	check(ticker->event != NULL);
	return ticker;
}

void ticker_free(struct ticker *ticker)
{
	event_free(ticker->event);
	free(ticker);
}

void ticker_start(struct ticker *ticker)
{
	if (ticker->runs)
		return;
	ticker->runs = 1;
	event_add(ticker->event, &ticker->every);
}

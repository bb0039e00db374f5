/* A periodic timer of an event loop that runs only while something waits. Its thread only. */
#ifndef COMMON_TICKER_H
#define COMMON_TICKER_H

#include <event2/event.h>
#include <stdint.h>

struct ticker;

/* Returns whether something still waits; 0 stops the timer. */
typedef int ticker_fn(void *context);

/* It does not run yet. */
struct ticker *ticker_new(struct event_base *base, int64_t every_ms, ticker_fn *tick,
			  void *context);
void ticker_free(struct ticker *ticker);

/* Something waits from now on: the first tick is a period later, or earlier if it runs already. */
void ticker_start(struct ticker *ticker);

#endif

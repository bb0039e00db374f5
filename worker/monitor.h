/*
 * GET /metrics, /healthz and /readyz over HTTP, in a thread of its own, so that it also answers
 * while the loop or the keeper waits for a service.
 */
#pragma once

#include "common/program/config.h"

struct monitor;

/* Takes over the bound socket `fd`; with -1 nothing is started and NULL is returned. */
struct monitor *monitor_start(int fd, const struct config *config);
void monitor_stop(struct monitor *monitor);

/*
 * Records a turn of the worker's loop. `/healthz` is 503 after MONITOR_SILENCE_MS without one. Any
 * thread.
 */
#define MONITOR_SILENCE_MS 30000
void monitor_beat(void);

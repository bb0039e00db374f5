/*
 * GET /metrics, /healthz and /readyz over HTTP, in a thread of its own: it answers also while the
 * loop or the keeper waits for a service.
 */
#ifndef WORKER_MONITOR_H
#define WORKER_MONITOR_H

struct monitor;

/* `fd` is a bound socket and is taken over; -1: nothing is started, and NULL returned. */
struct monitor *monitor_start(int fd);
void monitor_stop(struct monitor *monitor);

/* The worker's loop turns. `/healthz` is 503 when it has not for MONITOR_SILENCE_MS. Any thread. */
#define MONITOR_SILENCE_MS 30000
void monitor_beat(void);

#endif

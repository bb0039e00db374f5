/*
 * What the worker tells operators, in two threads of its own.
 *
 * The server answers GET /metrics, /healthz and /readyz over HTTP, also while the loop or the
 * keeper waits for a service. With COUPON_RABBITMQ_API another thread asks the management API of
 * RabbitMQ on which nodes the queues have members, and tells it by metrics, in the log and in the
 * warnings of /readyz.
 */
#pragma once

#include "common/program/config.h"
#include "common/program/service_manager.h"

struct monitor;

/*
 * Takes over the bound socket `fd`; with -1 there is no server. The settings are lent. At SIGHUP
 * the server loads the files of certificates at once. Before any other thread starts: it blocks the
 * signal.
 */
struct monitor *monitor_start(int fd, const struct config *config);
void monitor_stop(struct monitor *monitor);

/* Whether /readyz says so, and in a line what does not work, for systemd. Any thread. */
int monitor_status(char status[SERVICE_STATUS_SIZE]);

/*
 * Records a turn of the worker's loop. `/healthz` is 503 after MONITOR_SILENCE_MS without one. Any
 * thread.
 */
#define MONITOR_SILENCE_MS 30000
void monitor_beat(void);

/*
 * Publishes messages of events to RabbitMQ, in order on one channel, and waits for their confirms.
 * A message that no queue takes is dropped by the broker. One thread.
 */
#pragma once

#include "events/event.h"

#include <stdatomic.h>

struct outlet;

/* The first three are lent; `*stop` other than 0 ends every wait. */
struct outlet *outlet_new(const char *url, const char *source, const atomic_int *stop, int stop_fd);
void outlet_free(struct outlet *outlet);

/* Connects when that is due, and reads. 1: it can publish; 0: not at present. Does not wait. */
int outlet_ready(struct outlet *outlet);
/* Waits for `wait_ms`, or until the thread is to stop; keeps the connection alive meanwhile. */
void outlet_pause(struct outlet *outlet, int64_t wait_ms);

/* Each NULL, or why it has failed, until the next call. */
const char *outlet_send(struct outlet *outlet, const struct packet *packet);
/* Waits until all that was sent is confirmed. */
const char *outlet_confirm(struct outlet *outlet);

/* After a failure: what was sent is forgotten, over a new connection. */
void outlet_reset(struct outlet *outlet);

/*
 * Publishes messages of events to RabbitMQ, in order on one channel, and waits for their confirms.
 * A message that no queue takes is dropped by the broker. One thread.
 */
#pragma once

#include "common/thread.h"
#include "events/event.h"

struct outlet;

/* All is lent; the stop of the thread ends every wait. */
struct outlet *outlet_new(const char *url, const char *source, struct thread *thread);
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

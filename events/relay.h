/*
 * The relay of events: a thread that publishes what is in the event log to RabbitMQ, and then
 * removes it. One worker does so, the holder of the lock of the log; the threads of the others
 * wait for it. Nothing waits for this thread.
 */
#pragma once

#include "common/program/config.h"

#include <cjson/cJSON.h>

struct relay;

/* Ends the process when a setting of events is wrong. */
void relay_check(const struct config *config);
/* Starts the thread. `config` must outlive it. */
struct relay *relay_start(const struct config *config);
/* Stops the thread, and waits for its end. What it has not removed is published again. */
void relay_stop(struct relay *relay);

/* Adds a sentence when more events wait than the setting says. Any thread. */
void relay_warnings(cJSON *array);

/*
 * The counters and gauges of a program, each at a place of its own, and how they are written: text
 * exposition format 0.0.4 of Prometheus. A gateway has one page of them per process, in memory
 * shared by all its processes, so that any of them can report the sum. Any thread.
 */
#pragma once

#include <event2/buffer.h>
#include <inttypes.h>
#include <stddef.h>

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The first places of a program are those of its table, the next ones of values with a label. */
#define METRICS_MAX 160
#define METRICS_KEEPER 112 /* in the worker: the places from here on are the keeper's */

struct metric_row {
	const char *name; /* is written with the prefix couponmq_ */
	const char *type;
	const char *help;
};

/* Makes the pages of `processes` processes; before the fork. This one counts on the first. */
void metrics_share(size_t processes);
/* From now on this process counts on page `process`. */
void metrics_page(size_t process);

void metrics_add(unsigned place, int64_t amount);
void metrics_set(unsigned place, int64_t value); /* a gauge */
/* Sets a value of all processes together, which is not to be summed. */
void metrics_set_all(unsigned place, int64_t value);
int64_t metrics_get(unsigned place); /* the sum over all pages */

/* The lines before the values of a metric. */
void exposition_head(struct evbuffer *out, const char *name, const char *type, const char *help);
/* One of several values, distinguished by a label; the second is that at a place. */
void exposition_value(struct evbuffer *out, const char *name, const char *label, const char *text,
		      int64_t value);
void exposition_labelled(struct evbuffer *out, const char *name, const char *label,
			 const char *text, unsigned place);
/* The `n` metrics of a table, whose places are from `first` on. */
void exposition_table(struct evbuffer *out, const struct metric_row *rows, unsigned n,
		      unsigned first);

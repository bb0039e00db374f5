/* Metrics in Prometheus' text format 0.0.4. Every name is written with the prefix couponmq_. */
#ifndef COMMON_SERVE_EXPOSITION_H
#define COMMON_SERVE_EXPOSITION_H

#include <stdint.h>

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct evbuffer;

/* The lines before the values of a metric. */
void exposition_head(struct evbuffer *out, const char *name, const char *type, const char *help);
void exposition_value(struct evbuffer *out, const char *name, int64_t value);
/* One of several values, distinguished by a label. */
void exposition_labelled(struct evbuffer *out, const char *name, const char *label,
			 const char *text, int64_t value);

#endif

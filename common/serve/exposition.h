/* Metrics in Prometheus' text format 0.0.4. Every name is written with the prefix couponmq_. */
#pragma once

#include <event2/buffer.h>
#include <inttypes.h>

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The lines before the values of a metric. */
static inline void exposition_head(struct evbuffer *out, const char *name, const char *type,
				   const char *help)
{
	evbuffer_add_printf(out, "# HELP couponmq_%s %s\n# TYPE couponmq_%s %s\n", name, help, name,
			    type);
}

static inline void exposition_value(struct evbuffer *out, const char *name, int64_t value)
{
	evbuffer_add_printf(out, "couponmq_%s %" PRId64 "\n", name, value);
}

/* One of several values, distinguished by a label. */
static inline void exposition_labelled(struct evbuffer *out, const char *name, const char *label,
				       const char *text, int64_t value)
{
	evbuffer_add_printf(out, "couponmq_%s{%s=\"%s\"} %" PRId64 "\n", name, label, text, value);
}

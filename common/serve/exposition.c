#include "common/serve/exposition.h"

#include <event2/buffer.h>
#include <inttypes.h>

void exposition_head(struct evbuffer *out, const char *name, const char *type, const char *help)
{
	evbuffer_add_printf(out, "# HELP couponmq_%s %s\n# TYPE couponmq_%s %s\n", name, help, name,
			    type);
}

void exposition_value(struct evbuffer *out, const char *name, int64_t value)
{
	evbuffer_add_printf(out, "couponmq_%s %" PRId64 "\n", name, value);
}

void exposition_labelled(struct evbuffer *out, const char *name, const char *label,
			 const char *text, int64_t value)
{
	evbuffer_add_printf(out, "couponmq_%s{%s=\"%s\"} %" PRId64 "\n", name, label, text, value);
}

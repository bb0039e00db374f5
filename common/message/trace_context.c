#include "common/message/trace_context.h"

#include "common/log/log.h"

#include <stdio.h>
#include <string.h>

/* Whether `len` hexadecimal digits in lower case are not all 0; -1: they are no such digits. */
static int hex_read(const char *text, size_t len)
{
	int is_set = 0;

	for (size_t i = 0; i < len; i++) {
		if (!text[i] || !strchr("0123456789abcdef", text[i]))
			return -1;
		is_set |= text[i] != '0';
	}
	return is_set;
}

int trace_context_parse(const char *text, size_t len, struct trace_context *context)
{
	const char *trace, *span, *flags;
	int version;

	if (len < TRACE_PARENT_LEN)
		return -1;
	trace = text + 3;
	span = trace + TRACE_ID_LEN + 1;
	flags = span + TRACE_SPAN_LEN + 1;
	if (trace[-1] != '-' || span[-1] != '-' || flags[-1] != '-')
		return -1;
	version = hex_read(text, 2);
	if (version < 0 || memcmp(text, "ff", 2) == 0 || hex_read(trace, TRACE_ID_LEN) < 1 ||
	    hex_read(span, TRACE_SPAN_LEN) < 1 || hex_read(flags, 2) < 0)
		return -1;
	/* A later version may have more. */
	if (len > TRACE_PARENT_LEN && (version == 0 || flags[2] != '-'))
		return -1;
	memcpy(context->trace_id, trace, TRACE_ID_LEN);
	memcpy(context->span_id, span, TRACE_SPAN_LEN);
	context->trace_id[TRACE_ID_LEN] = context->span_id[TRACE_SPAN_LEN] = '\0';
	context->is_sampled = strchr("13579bdf", flags[1]) != NULL;
	return 0;
}

int request_name_valid(const char *text, size_t len)
{
	return len > 0 && len <= REQUEST_NAME_MAX && user_id_valid_length(text, len) == len;
}

void trace_context_format(const struct trace_context *context, const char *name,
			  char out[TRACE_SIZE])
{
	snprintf(out, TRACE_SIZE, "00-%s-%s-%02x%s%s", context->trace_id, context->span_id,
		 context->is_sampled, name ? " " : "", name ? name : "");
}

int trace_context_valid(const char *text, size_t len)
{
	struct trace_context context;

	if (len < TRACE_PARENT_LEN || memcmp(text, "00", 2) != 0 ||
	    memcmp(text + TRACE_PARENT_LEN - 2, "01", 2) != 0 ||
	    trace_context_parse(text, TRACE_PARENT_LEN, &context))
		return 0;
	return len == TRACE_PARENT_LEN ||
	       (text[TRACE_PARENT_LEN] == ' ' &&
		request_name_valid(text + TRACE_PARENT_LEN + 1, len - TRACE_PARENT_LEN - 1));
}

const char *trace_context_name(const char *trace)
{
	return trace[TRACE_PARENT_LEN] ? trace + TRACE_PARENT_LEN + 1 : "";
}

void trace_context_log(const char *trace, const struct receive *receive, const char *outcome)
{
	struct trace_context context;
	char text[RECEIVE_SIZE];

	if (trace_context_parse(trace, TRACE_PARENT_LEN, &context))
		return;
	receive_format(receive, text);
	log_info("receive_traced", LOG_S("receive", text), LOG_S("outcome", outcome),
		 LOG_S("request_id", trace_context_name(trace)), LOG_S("trace", context.trace_id),
		 LOG_S("span", context.span_id));
}

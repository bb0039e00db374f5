#include "gateway/listen/access.h"

#include "common/clock.h"
#include "common/log/log.h"

#include <arpa/inet.h>
#include <string.h>

/* The address of the client, or "unix". */
static const char *address_text(const struct client *client, char text[INET6_ADDRSTRLEN])
{
	const struct network *from = &client->arrival.from;
	const char *shown = inet_ntop(from->family, from->bytes, text, INET6_ADDRSTRLEN);

	return shown ? shown : "unix";
}

static void line_write(const struct client *client, const struct request *request,
		       enum answer answer, const char *over, const struct access_http *of)
{
	char address[INET6_ADDRSTRLEN];
	const struct log_field fields[] = {
		LOG_S("over", over),
		LOG_S("op", of->of),
		LOG_I("coupon", request ? request->coupon : 0),
		LOG_S("answer", answer_status(answer)),
		LOG_I("http", of->status),
		LOG_US_AS_MS("ms", request ? clock_monotonic_us() - request->begun_us : 0),
		LOG_S("key", of->key ? of->key->id : ""),
		LOG_S("address", address_text(client, address)),
		LOG_S("request_id", of->id),
		LOG_S("trace", of->trace.trace_id),
		LOG_S("span", of->trace.span_id),
		{ 0 },
	};

	log_each(LOG_LEVEL_INFO, "request", fields);
}

/* The id of a request as it is in JSON: a number, or a string without its quotation marks. */
static void id_read(const struct request *request, char id[REQUEST_NAME_MAX + 1])
{
	size_t marks = *request->text == '"', len = request->id_len - 2 * marks;

	if (len > REQUEST_NAME_MAX)
		len = REQUEST_NAME_MAX;
	memcpy(id, request->text + marks, len);
	id[len] = '\0';
}

void access_log_line(const struct client *client, const struct request *request, enum answer answer)
{
	struct access_http line = { .key = client->responder.identity.grant.key };

	if (request) {
		line.of = request_operations[request->op].name;
		line.key = request->by; /* the connection may be another one's by now */
		id_read(request, line.id);
		if (request->trace_len > 0)
			trace_context_parse(request_trace(request), TRACE_PARENT_LEN, &line.trace);
	}
	line_write(client, request, answer, "lines", &line);
}

void access_log_http(const struct client *client, const struct request *request, enum answer answer,
		     const struct access_http *http)
{
	line_write(client, request, answer, "http", http);
}

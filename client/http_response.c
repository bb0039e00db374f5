#include "client/http_response.h"

#include "common/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 512 /* at first */

void http_response_reset(struct http_response *reply)
{
	http_parser_init(&reply->parser, HTTP_RESPONSE);
	reply->parser.data = reply;
	reply->len = 0;
	reply->is_complete = 0;
}

/* A result other than 0 ends the parser; 1 and 2 would mean that the body is absent. */
static int on_head(http_parser *parser)
{
	const struct http_response *reply = parser->data;
	int is_wrong = parser->http_major != 1 || parser->http_minor != 1 ||
		       parser->status_code < 200 || parser->flags & F_CHUNKED ||
		       parser->content_length == UINT64_MAX || /* it has none */
		       parser->content_length > reply->most;

	return is_wrong ? -1 : 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct http_response *reply = parser->data;

	if (reply->room - reply->len < len) {
		size_t room = reply->room ? 2 * reply->room : ROOM;

		reply->room = room > reply->len + len ? room : reply->len + len;
		reply->body = checked(realloc(reply->body, reply->room));
	}
	memcpy(reply->body + reply->len, at, len);
	reply->len += len;
	return 0;
}

static int on_complete(http_parser *parser)
{
	struct http_response *reply = parser->data;

	reply->is_complete = 1;
	http_parser_pause(parser, 1);
	return 0;
}

long http_response_feed(struct http_response *reply, const char *bytes, size_t len)
{
	static const http_parser_settings settings = { .on_headers_complete = on_head,
						       .on_body = on_body,
						       .on_message_complete = on_complete };
	size_t taken = http_parser_execute(&reply->parser, &settings, bytes, len);
	enum http_errno error = HTTP_PARSER_ERRNO(&reply->parser);

	return error == HPE_OK || (error == HPE_PAUSED && reply->is_complete) ? (long)taken : -1;
}

size_t http_response_text_len(const struct http_response *reply)
{
	size_t len = reply->len;

	while (len > 0 && strchr("\r\n", reply->body[len - 1]))
		len--;
	return len;
}

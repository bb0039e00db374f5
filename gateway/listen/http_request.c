#include "gateway/listen/http_request.h"

#include "common/check.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADERS_MAX 100
#define METHODS_KNOWN "the method is unknown"
#define BODY_BEFORE (-1) /* after the data of a chunk only the end of a line can follow */
#define TEXT_ROOM 64     /* at first */
#define TAG_SIZE 32

static void text_add(struct http_text *text, const char *bytes, size_t len)
{
	if (text->room - text->len <= len) {
		size_t room = text->room ? 2 * text->room : TEXT_ROOM;
		char *larger;

		text->room = room > text->len + len ? room : text->len + len + 1;
		larger = checked(malloc(text->room));
		/* Nothing of what was there is left elsewhere: it may be a secret. */
		if (text->bytes) {
			memcpy(larger, text->bytes, text->len);
			OPENSSL_cleanse(text->bytes, text->len);
			free(text->bytes);
		}
		text->bytes = larger;
	}
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	text->bytes[text->len] = '\0';
}

static void text_empty(struct http_text *text)
{
	text->len = 0;
	if (text->bytes)
		*text->bytes = '\0';
}

static int text_is(const struct http_text *text, const char *word)
{
	return text->len == strlen(word) && strncasecmp(text->bytes, word, text->len) == 0;
}

/* Always -1, which ends the parser. */
static int refuse(struct http_request *request, int status, const char *text)
{
	request->refusal = status;
	request->refusal_text = text;
	return -1;
}

/*
 * Checks the bytes before `end` that are no body: the head, and the lines around chunks. The parser
 * takes a bare LF for the end of a line, joins folded lines, and does not read what ends the data
 * of a chunk. -1: the request is refused.
 */
static int lines_check(struct http_request *request, const char *end)
{
	const char *p = request->unchecked;
	int before = request->before;

	while (p < end) {
		const char *stop, *at, *wrong = NULL;
		if ((*p == '\n') != (before == '\r') || (before == BODY_BEFORE && *p != '\r'))
			wrong = "a line does not end with CR LF";
		else if (before == '\n' && (*p == ' ' || *p == '\t'))
			wrong = "a line begins with a space";
		/* The parser is behind it, how far depends on the pieces: no version is known. */
		if (wrong) {
			request->parser.http_major = 0;
			return refuse(request, 400, wrong);
		}
		/* Nothing is wrong up to the next CR or LF. */
		if (*p != '\r' && *p != '\n') {
			at = p + 1;
			stop = memchr(at, '\r', (size_t)(end - at));
			stop = stop ? stop : end;
			p = memchr(at, '\n', (size_t)(stop - at));
			p = (p ? p : stop) - 1;
		}
		before = (unsigned char)*p++;
	}
	request->unchecked = p;
	request->before = before;
	return 0;
}

/* Refuses what is wrong at `at`, unless something before it is wrong. */
static int refuse_at(struct http_request *request, const char *at, int status, const char *text)
{
	if (lines_check(request, at))
		return -1;
	request->unchecked = NULL;
	return refuse(request, status, text);
}

static int on_target(http_parser *parser, const char *at, size_t len)
{
	struct http_request *request = parser->data;

	text_add(&request->texts[TEXT_TARGET], at, len);
	return 0;
}

static int on_name(http_parser *parser, const char *at, size_t len)
{
	struct http_request *request = parser->data;
	const char *space;

	if (request->in_value || request->headers_n == 0) {
		request->in_value = 0;
		text_empty(&request->texts[TEXT_NAME]);
		if (++request->headers_n > HEADERS_MAX)
			return refuse_at(request, at, 431, "the request has more than 100 headers");
	}
	/* The parser ignores a space before the colon. Proxies may not: RFC 9112, 5.1. */
	space = memchr(at, ' ', len);
	if (space)
		return refuse_at(request, space + 1, 400,
				 http_errno_description(HPE_INVALID_HEADER_TOKEN));
	text_add(&request->texts[TEXT_NAME], at, len);
	return 0;
}

/* The headers that are kept. */
#define HEADER(name)                       \
	{                                  \
		(name), sizeof((name)) - 1 \
	}
static const struct {
	const char *name;
	size_t len;
} headers[TEXTS_N] = {
	[TEXT_HOST] = HEADER("host"),
	[TEXT_ORIGIN] = HEADER("origin"),
	[TEXT_CONTENT_TYPE] = HEADER("content-type"),
	[TEXT_CONTENT_ENCODING] = HEADER("content-encoding"),
	[TEXT_TRANSFER_ENCODING] = HEADER("transfer-encoding"),
	[TEXT_EXPECT] = HEADER("expect"),
	[TEXT_NONE_MATCH] = HEADER("if-none-match"),
	[TEXT_ACCEPT] = HEADER("accept"),
	[TEXT_KEY] = HEADER("idempotency-key"),
	[TEXT_REQUEST_ID] = HEADER("x-request-id"),
	[TEXT_TRACEPARENT] = HEADER("traceparent"),
	[TEXT_AUTHORIZATION] = HEADER("authorization"),
};

static int on_value(http_parser *parser, const char *at, size_t len)
{
	struct http_request *request = parser->data;
	const struct http_text *name = &request->texts[TEXT_NAME];
	/* A trailer changes nothing of what the head said: RFC 9110, 6.5.1. */
	int of = request->has_head ? TEXTS_N : TEXT_HOST;
	unsigned bit;

	while (of < TEXTS_N && (headers[of].len != name->len ||
				strncasecmp(headers[of].name, name->bytes, name->len) != 0))
		of++;
	if (of < TEXTS_N) {
		bit = 1u << of;
		/* A list may be in several headers: RFC 9110, 5.3. */
		if (!request->in_value && of == TEXT_ACCEPT && request->seen & bit)
			text_add(&request->texts[of], ", ", 2);
		if (!request->in_value)
			request->twice |= request->seen & bit;
		request->seen |= bit;
		text_add(&request->texts[of], at, len);
	}
	request->hosts_n += of == TEXT_HOST && !request->in_value;
	request->in_value = 1;
	return 0;
}

/* Refuses a head that is not that of one HTTP request. */
static int on_head(http_parser *parser)
{
	struct http_request *request = parser->data;
	int is_chunked = (parser->flags & F_CHUNKED) != 0;
	uint64_t length = parser->content_length; /* UINT64_MAX: not given */
	int has_body = is_chunked || (length > 0 && length != UINT64_MAX);

	request->has_head = 1;
	parser->upgrade = 0; /* no other protocol is spoken: the request is answered as HTTP/1.1 */
	/* The parser leaves the white space after a value. */
	for (unsigned left = request->seen; left; left &= left - 1) {
		struct http_text *text = &request->texts[__builtin_ctz(left)];

		while (text->len > 0 &&
		       (text->bytes[text->len - 1] == ' ' || text->bytes[text->len - 1] == '\t'))
			text->bytes[--text->len] = '\0';
	}

	if (parser->http_major != 1)
		return refuse(request, 400, "only HTTP/1.0 and HTTP/1.1 are supported");
	if (parser->http_minor == 0 && parser->uses_transfer_encoding)
		return refuse(request, 400, "HTTP/1.0 has no Transfer-Encoding");
	if (request->hosts_n > 1 || (request->hosts_n == 0 && parser->http_minor > 0))
		return refuse(request, 400, "a request must have exactly one Host header");
	if (parser->method == HTTP_CONNECT)
		return refuse(request, 501, METHODS_KNOWN);
	/* The parser takes other codings before the last one, and leaves them in the body. */
	if (parser->flags & F_CHUNKED &&
	    (request->twice & 1u << TEXT_TRANSFER_ENCODING ||
	     !text_is(&request->texts[TEXT_TRANSFER_ENCODING], "chunked")))
		return refuse(request, 501, "the only supported Transfer-Encoding is chunked");
	if (has_body && !is_chunked && length > request->body_limit)
		return refuse(request, 413, "the body is too long");

	if (!has_body || parser->http_minor == 0 || request->texts[TEXT_EXPECT].len == 0)
		return 0;
	if (!text_is(&request->texts[TEXT_EXPECT], "100-continue"))
		return refuse(request, 417, "the only supported Expect is 100-continue");
	request->wants_continue = 1;
	return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct http_request *request = parser->data;

	if (lines_check(request, at))
		return -1;
	if (len > request->body_limit - request->texts[TEXT_BODY].len)
		return refuse_at(request, at, 413, "the body is too long");
	request->unchecked = at + len;
	request->before = BODY_BEFORE;
	request->wants_continue = 0;
	text_add(&request->texts[TEXT_BODY], at, len);
	return 0;
}

static int on_complete(http_parser *parser)
{
	struct http_request *request = parser->data;

	request->complete = 1;
	http_parser_pause(parser, 1);
	return 0;
}

void http_request_init(struct http_request *request, size_t body_limit)
{
	*request = (struct http_request){ .body_limit = body_limit };
	http_request_reset(request);
}

/* Also of a request that was refused before anybody looked at it. */
static void secret_wipe(struct http_request *request)
{
	struct http_text *secret = &request->texts[TEXT_AUTHORIZATION];

	if (request->seen & 1u << TEXT_AUTHORIZATION && secret->bytes)
		OPENSSL_cleanse(secret->bytes, secret->len);
}

void http_request_free(struct http_request *request, size_t kept)
{
	secret_wipe(request);
	for (int i = 0; i < TEXTS_N; i++) {
		if (request->texts[i].room <= kept)
			continue;
		free(request->texts[i].bytes);
		request->texts[i] = (struct http_text){ 0 };
	}
}

void http_request_reset(struct http_request *request)
{
	http_parser_init(&request->parser, HTTP_REQUEST);
	request->parser.data = request;
	secret_wipe(request);
	for (int i = 0; i < TEXT_HOST; i++)
		text_empty(&request->texts[i]);
	for (unsigned left = request->seen; left; left &= left - 1)
		text_empty(&request->texts[__builtin_ctz(left)]);
	request->before = '\n';
	request->hosts_n = request->headers_n = request->in_value = request->has_head = 0;
	request->seen = request->twice = 0;
	request->reply = (struct http_manner){ 0 };
	request->target = (struct http_target){ 0 };
	request->complete = request->is_identified = request->wants_continue = 0;
}

size_t http_request_feed(struct http_request *request, const char *bytes, size_t len)
{
	static const http_parser_settings settings = { .on_url = on_target,
						       .on_header_field = on_name,
						       .on_header_value = on_value,
						       .on_headers_complete = on_head,
						       .on_body = on_body,
						       .on_message_complete = on_complete };
	enum http_errno error;
	size_t n;

	request->unchecked = bytes;
	n = http_parser_execute(&request->parser, &settings, bytes, len);
	/* Also of a head that was refused: what is wrong first does not depend on the pieces. */
	if (request->unchecked && lines_check(request, bytes + n)) {
		request->complete = 0;
		return n;
	}
	error = HTTP_PARSER_ERRNO(&request->parser);
	if (request->complete || request->refusal || error == HPE_OK)
		return n;

	/* The parser stopped at the byte `n`. */
	if (error == HPE_HEADER_OVERFLOW && request->parser.http_major == 0)
		refuse(request, 414, "the request line has more than 16384 bytes");
	else if (error == HPE_HEADER_OVERFLOW)
		refuse(request, 431, "the headers have more than 16384 bytes");
	else if (error == HPE_INVALID_METHOD && n < len && isalpha((unsigned char)bytes[n]))
		refuse(request, 501, METHODS_KNOWN);
	else
		refuse(request, 400, http_errno_description(error));
	return n;
}

const char *http_request_one(const struct http_request *request, enum http_text_of of)
{
	unsigned bit = 1u << of;

	return request->seen & bit && !(request->twice & bit) ? request->texts[of].bytes : NULL;
}

int http_request_is_json(const struct http_request *request)
{
	const size_t len = strlen(HTTP_JSON);
	const struct http_text *type = &request->texts[TEXT_CONTENT_TYPE];

	return type->len >= len && strncasecmp(type->bytes, HTTP_JSON, len) == 0 &&
	       (type->len == len || strchr("; \t", type->bytes[len]));
}

int http_request_is_plain(const struct http_request *request)
{
	const struct http_text *coding = &request->texts[TEXT_CONTENT_ENCODING];

	return coding->len == 0 || text_is(coding, "identity");
}

int http_request_has_tag(const struct http_request *request, const char *tag)
{
	const struct http_text *given = &request->texts[TEXT_NONE_MATCH];
	char weak[TAG_SIZE];
	int len = snprintf(weak, sizeof(weak), "W/\"%s\"", tag); /* of a proxy that compressed it */

	check(len > 0 && (size_t)len < sizeof(weak));
	return text_is(given, weak) || text_is(given, weak + 2) || text_is(given, "*");
}

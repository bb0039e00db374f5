#include "gateway/listen/http_value.h"

#include "common/check.h"
#include "common/message/json.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEX_ANY "0123456789abcdefABCDEF"
#define API_PREFIX "/v1/"
#define USER_PREFIX "/v1/users/" /* and an id, and this: */
#define USER_SUFFIX "/coupons"
#define CODE_PREFIX "/v1/codes/" /* and an exchange code */

int http_key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1])
{
	const char *at = text, *end = text + len;
	int is_quoted = len > 0 && *text == '"';
	size_t n = 0;

	for (at += is_quoted; at < end && !(is_quoted && *at == '"'); at++) {
		if (is_quoted && *at == '\\' && (++at == end || (*at != '"' && *at != '\\')))
			return -1;
		if (n == RECEIVE_KEY_MAX)
			return -1;
		key[n++] = *at;
	}
	if (is_quoted && at++ == end) /* without the quotation mark at its end */
		return -1;
	key[n] = '\0';
	return at == end && receive_key_valid(key, n) ? 0 : -1;
}

static int is_space(char byte)
{
	return byte == ' ' || byte == '\t';
}

static int is_media_type(const char *text, size_t len, const char *type)
{
	return len == strlen(type) && strncasecmp(text, type, len) == 0;
}

enum http_accept http_accept_parse(const char *text, size_t len)
{
	const char *end = text + len, *next, *stop, *parameters;
	int types_n = 0, has_json = 0;

	for (; text < end; text = next) {
		stop = memchr(text, ',', (size_t)(end - text));
		next = stop ? stop + 1 : end;
		if (!stop)
			stop = end;
		while (text < stop && is_space(*text))
			text++;
		if (text == stop)
			continue;

		/* Parameters, including q, are ignored. */
		types_n++;
		parameters = memchr(text, ';', (size_t)(stop - text));
		if (parameters)
			stop = parameters;
		while (text < stop && is_space(stop[-1]))
			stop--;
		len = (size_t)(stop - text);
		if (is_media_type(text, len, "application/problem+json"))
			return ACCEPT_PROBLEM;
		has_json |= is_media_type(text, len, "application/json") ||
			    is_media_type(text, len, "application/*") ||
			    is_media_type(text, len, "*/*");
	}
	return has_json || types_n == 0 ? ACCEPT_JSON : ACCEPT_NEITHER;
}

static int digit(char byte)
{
	const char *at = byte ? strchr(HEX_ANY, byte) : NULL;
	int value = at ? (int)(at - HEX_ANY) : -1;

	return value < 16 ? value : value - 6;
}

int http_segment_decode(const char *text, size_t len, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char byte = text[i];

		if (byte == '%') {
			int high = i + 2 < len ? digit(text[i + 1]) : -1;
			int low = i + 2 < len ? digit(text[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -1;
			byte = (char)(16 * high + low);
			i += 2;
		}
		if (byte == '\0' || n + 1 >= room)
			return -1;
		out[n++] = byte;
	}
	out[n] = '\0';
	return (int)n;
}

/* The target. */

/* Ends the part with a NUL; "" where there is none. */
static const char *part_end(char *text, const struct http_parser_url *url,
			    enum http_parser_url_fields part)
{
	if (!(url->field_set & 1u << part))
		return "";
	text += url->field_data[part].off;
	text[url->field_data[part].len] = '\0';
	return text;
}

int http_target_parse(struct http_request *request, struct http_target *target)
{
	const struct http_text *text = &request->texts[TEXT_TARGET];
	struct http_text *host = &request->texts[TEXT_HOST];
	struct http_parser_url url;
	size_t at, end;

	*target = request->target;
	if (target->path)
		return 0;
	target->has_fragment = memchr(text->bytes, '#', text->len) != NULL; /* an empty one, too */
	http_parser_url_init(&url);
	if (http_parser_parse_url(text->bytes, text->len, 0, &url))
		return -1;

	/* The host of a URL, with its port, replaces that of the header: RFC 9112, 3.2.2. */
	if (url.field_set & 1u << UF_HOST) {
		at = url.field_data[UF_HOST].off;
		end = at + url.field_data[UF_HOST].len;
		if (text->bytes[at - 1] == '[') {
			at--;
			end++;
		}
		if (url.field_set & 1u << UF_PORT)
			end = (size_t)url.field_data[UF_PORT].off + url.field_data[UF_PORT].len;
		free(host->bytes);
		*host = (struct http_text){ .bytes = checked(strndup(text->bytes + at, end - at)),
					    .len = end - at,
					    .room = end - at + 1 };
		request->hosts_n = 1;
		request->seen |= 1u << TEXT_HOST;
	}
	target->path = part_end(text->bytes, &url, UF_PATH);
	target->query = part_end(text->bytes, &url, UF_QUERY);
	request->target = *target;
	return 0;
}

enum request_op http_target_op(struct http_target *target)
{
	const char *path = target->path;
	enum request_op op;
	size_t len;

	if (strncmp(path, API_PREFIX, strlen(API_PREFIX)) != 0)
		return OP_COUNT;
	op = request_op_find(path + strlen(API_PREFIX));
	if (op == OP_COUNT && strncmp(path, CODE_PREFIX, strlen(CODE_PREFIX)) == 0) {
		target->code = path + strlen(CODE_PREFIX);
		target->code_len = strlen(target->code);
		return target->code_len > 0 && !strchr(target->code, '/') ? OP_CODE : OP_COUNT;
	}
	if (op != OP_COUNT || strncmp(path, USER_PREFIX, strlen(USER_PREFIX)) != 0)
		return op;
	len = strcspn(path + strlen(USER_PREFIX), "/");
	if (strcmp(path + strlen(USER_PREFIX) + len, USER_SUFFIX) != 0)
		return OP_COUNT;
	target->user = path + strlen(USER_PREFIX);
	target->user_len = len;
	return OP_COUPONS;
}

/*
 * `/` is allowed as %2F, because the path was split before. `.` and `..` are not: clients and
 * proxies shorten a path with such a segment, so it may be what is left of another one.
 */
int http_target_user(const struct http_target *target, struct user_id *user,
		     char why[USER_ID_WHY_SIZE])
{
	char text[2 * USER_ID_SIZE];
	int len = http_segment_decode(target->user, target->user_len, text, sizeof(text));

	if (len < 0)
		strcpy(why, "must be percent-encoded " USER_ID_ALLOWED);
	else if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
		strcpy(why, "cannot be a segment of a path: send it in the query of /v1/coupons");
	else if (user_id_parse(user, text, (size_t)len))
		user_id_why(text, (size_t)len, why);
	else
		return 0;
	return -1;
}

/* libevent would leave such a % as it is, and it would end the value at a NUL: `1%00x` as 1. */
const char *http_query_fault(const char *query)
{
	while ((query = strchr(query, '%'))) {
		if (!isxdigit((unsigned char)query[1]) || !isxdigit((unsigned char)query[2]) ||
		    (query[1] == '0' && query[2] == '0'))
			return query;
		query += 3;
	}
	return NULL;
}

char *http_query_object(const char *query, const char *member, const char *value)
{
	struct evkeyvalq params;
	struct evkeyval *param;
	cJSON *object;
	char *text;

	if (evhttp_parse_query_str(query, &params))
		return NULL;
	object = checked(cJSON_CreateObject());
	if (member)
		cJSON_AddStringToObject(object, member, value);
	TAILQ_FOREACH (param, &params, next)
		cJSON_AddStringToObject(object, param->key, param->value);
	text = checked(json_write(object));
	cJSON_Delete(object);
	evhttp_clear_headers(&params);
	return text;
}

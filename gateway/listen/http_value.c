#include "gateway/listen/http_value.h"

#include "common/check.h"
#include "common/message/json.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEX_ANY "0123456789abcdefABCDEF"
#define ALPHANUMERIC "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TOKEN_BYTES ALPHANUMERIC "!#$%&'*+-.^_`|~" /* RFC 9110, 5.6.2 */
#define SPACES " \t"
#define WEIGHT_MAX 1000
#define API_PREFIX "/v1/"
#define USER_PREFIX "/v1/users/" /* and an id, and this: */
#define USER_SUFFIX "/coupons"

/* What is still to be read of a text. */
struct header_rest {
	const char *at;
	const char *end;
};

static int rest_is(const struct header_rest *rest, char byte)
{
	return rest->at < rest->end && *rest->at == byte;
}

/* Skips the byte, if it is the next one. */
static int rest_take(struct header_rest *rest, char byte)
{
	int is = rest_is(rest, byte);

	rest->at += is;
	return is;
}

/* Skips bytes of the set, at most `most`; returns how many. */
static size_t rest_skip(struct header_rest *rest, const char *set, size_t most)
{
	const char *from = rest->at;

	while (rest->at < rest->end && (size_t)(rest->at - from) < most && *rest->at &&
	       strchr(set, *rest->at))
		rest->at++;
	return (size_t)(rest->at - from);
}

int http_key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1])
{
	struct header_rest rest = { text, text + len };
	size_t n = 0;
	int is_quoted = rest_take(&rest, '"');

	while (rest.at < rest.end && !(is_quoted && *rest.at == '"')) {
		if (is_quoted && rest_take(&rest, '\\') && !rest_is(&rest, '"') &&
		    !rest_is(&rest, '\\'))
			return -1;
		if (n == RECEIVE_KEY_MAX)
			return -1;
		key[n++] = *rest.at++;
	}
	if (is_quoted && !rest_take(&rest, '"'))
		return -1;
	key[n] = '\0';
	return rest.at == rest.end && receive_key_valid(key, n) ? 0 : -1;
}

/* A type that the gateway has, and the media range that fits it best. */
struct media_offer {
	const char *subtype; /* of application */
	int fit;             /* 0: none; 1: any type; 2: any of application; 3: itself */
	int weight;
};

static int is_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

/* A quoted string, from its quote on. -1: it has no end. */
static int quoted_skip(struct header_rest *rest)
{
	rest->at++;
	while (rest->at < rest->end && *rest->at != '"') {
		rest->at += *rest->at == '\\';
		if (rest->at < rest->end)
			rest->at++;
	}
	return rest_take(rest, '"') ? 0 : -1;
}

/* What is behind `;`, which may be nothing. A weight is in thousandths. -1: it is malformed. */
static int parameter_read(struct header_rest *rest, int *weight)
{
	int unit = WEIGHT_MAX / 10;
	const char *name;
	size_t len;

	rest_skip(rest, SPACES, SIZE_MAX);
	name = rest->at;
	len = rest_skip(rest, TOKEN_BYTES, SIZE_MAX);
	if (len == 0)
		return 0;
	if (!rest_take(rest, '='))
		return -1;
	if (!is_word(name, len, "q")) {
		if (rest_is(rest, '"'))
			return quoted_skip(rest);
		return rest_skip(rest, TOKEN_BYTES, SIZE_MAX) > 0 ? 0 : -1;
	}

	*weight = 0;
	if (rest_take(rest, '1'))
		*weight = WEIGHT_MAX;
	else if (!rest_take(rest, '0'))
		return -1;
	if (!rest_take(rest, '.'))
		return 0;
	for (; unit > 0 && rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9'; unit /= 10)
		*weight += unit * (*rest->at++ - '0');
	return *weight <= WEIGHT_MAX ? 0 : -1;
}

/* One media range. -1: it is malformed. */
static int range_read(struct header_rest *rest, struct media_offer *offers, size_t n)
{
	const char *type = rest->at, *subtype;
	size_t type_len = rest_skip(rest, TOKEN_BYTES, SIZE_MAX), subtype_len;
	int weight = WEIGHT_MAX, is_application = is_word(type, type_len, "application"), is_any;

	if (type_len == 0 || !rest_take(rest, '/'))
		return -1;
	subtype = rest->at;
	subtype_len = rest_skip(rest, TOKEN_BYTES, SIZE_MAX);
	if (subtype_len == 0)
		return -1;
	for (rest_skip(rest, SPACES, SIZE_MAX); rest_take(rest, ';');
	     rest_skip(rest, SPACES, SIZE_MAX))
		if (parameter_read(rest, &weight))
			return -1;
	if (rest->at < rest->end && *rest->at != ',')
		return -1;
	is_any = is_word(subtype, subtype_len, "*");
	for (size_t i = 0; i < n; i++) {
		int fit = 0;

		if (is_any && is_word(type, type_len, "*"))
			fit = 1;
		else if (is_any && is_application)
			fit = 2;
		else if (is_application && is_word(subtype, subtype_len, offers[i].subtype))
			fit = 3;
		/* The closest range decides, of several the one with the greatest weight. */
		if (fit > offers[i].fit ||
		    (fit > 0 && fit == offers[i].fit && weight > offers[i].weight)) {
			offers[i].fit = fit;
			offers[i].weight = weight;
		}
	}
	return 0;
}

enum http_accept http_accept_parse(const char *text, size_t len)
{
	struct media_offer offers[] = { { .subtype = "json" }, { .subtype = "problem+json" } };
	const struct media_offer *json = &offers[0], *problem = &offers[1];
	struct header_rest rest = { text, text + len };
	int ranges_n = 0;

	while (rest_skip(&rest, SPACES ",", SIZE_MAX), rest.at < rest.end) {
		ranges_n++;
		if (range_read(&rest, offers, 2) == 0)
			continue;
		/* What is left of a malformed range, up to the next comma outside of quotes. */
		while (rest.at < rest.end && *rest.at != ',') {
			if (*rest.at != '"')
				rest.at++;
			else if (quoted_skip(&rest))
				break;
		}
	}
	if (ranges_n == 0)
		return ACCEPT_JSON;
	if (json->weight == 0 && problem->weight == 0)
		return ACCEPT_NEITHER;
	return problem->weight > json->weight ||
			       (problem->weight == json->weight && problem->fit == 3)
		       ? ACCEPT_PROBLEM
		       : ACCEPT_JSON;
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

	*target = (struct http_target){ 0 };
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

char *http_query_object(const char *query, const struct user_id *user)
{
	struct evkeyvalq params;
	struct evkeyval *param;
	cJSON *object;
	char *text;

	if (evhttp_parse_query_str(query, &params))
		return NULL;
	object = checked(cJSON_CreateObject());
	if (user)
		cJSON_AddStringToObject(object, "user", user->text);
	TAILQ_FOREACH (param, &params, next)
		cJSON_AddStringToObject(object, param->key, param->value);
	text = checked(json_write(object));
	cJSON_Delete(object);
	evhttp_clear_headers(&params);
	return text;
}

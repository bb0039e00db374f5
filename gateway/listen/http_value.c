#include "gateway/listen/http_value.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define HEX_ANY "0123456789abcdefABCDEF"
#define ALPHANUMERIC "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TOKEN_BYTES ALPHANUMERIC "!#$%&'*+-.^_`|~" /* RFC 9110, 5.6.2 */
#define SPACES " \t"
#define WEIGHT_MAX 1000

/* What is still to be read of a text. */
struct rest {
	const char *at;
	const char *end;
};

static int rest_is(const struct rest *rest, char byte)
{
	return rest->at < rest->end && *rest->at == byte;
}

/* Skips the byte, if it is the next one. */
static int rest_take(struct rest *rest, char byte)
{
	int is = rest_is(rest, byte);

	rest->at += is;
	return is;
}

/* Skips bytes of the set, at most `most`; returns how many. */
static size_t rest_skip(struct rest *rest, const char *set, size_t most)
{
	const char *from = rest->at;

	while (rest->at < rest->end && (size_t)(rest->at - from) < most && *rest->at &&
	       strchr(set, *rest->at))
		rest->at++;
	return (size_t)(rest->at - from);
}

int http_key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1])
{
	struct rest rest = { text, text + len };
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
struct offer {
	const char *subtype; /* of application */
	int fit;             /* 0: none; 1: any type; 2: any of application; 3: itself */
	int weight;
};

static void offer_weigh(struct offer *offer, int fit, int weight)
{
	if (fit < offer->fit || (fit == offer->fit && weight <= offer->weight))
		return;
	offer->fit = fit;
	offer->weight = weight;
}

static int is_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

/* In thousandths; -1: it is none. */
static int weight_read(struct rest *rest)
{
	int weight = 0, unit = WEIGHT_MAX / 10;

	if (rest_take(rest, '1'))
		weight = WEIGHT_MAX;
	else if (!rest_take(rest, '0'))
		return -1;
	if (!rest_take(rest, '.'))
		return weight;
	for (; unit > 0 && rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9'; unit /= 10)
		weight += unit * (*rest->at++ - '0');
	return weight <= WEIGHT_MAX ? weight : -1;
}

/* A quoted string, from its quote on. -1: it has no end. */
static int quoted_skip(struct rest *rest)
{
	rest->at++;
	while (rest->at < rest->end && *rest->at != '"') {
		rest->at += *rest->at == '\\';
		if (rest->at < rest->end)
			rest->at++;
	}
	return rest_take(rest, '"') ? 0 : -1;
}

/* What is behind `;`, which may be nothing. -1: it is malformed. */
static int parameter_read(struct rest *rest, int *weight)
{
	const char *name;
	size_t len;

	rest_skip(rest, SPACES, SIZE_MAX);
	name = rest->at;
	len = rest_skip(rest, TOKEN_BYTES, SIZE_MAX);
	if (len == 0)
		return 0;
	if (!rest_take(rest, '='))
		return -1;
	if (is_word(name, len, "q")) {
		*weight = weight_read(rest);
		return *weight < 0 ? -1 : 0;
	}
	if (rest_is(rest, '"'))
		return quoted_skip(rest);
	return rest_skip(rest, TOKEN_BYTES, SIZE_MAX) > 0 ? 0 : -1;
}

/* One media range. -1: it is malformed. */
static int range_read(struct rest *rest, struct offer *offers, size_t n)
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
		if (is_any && is_word(type, type_len, "*"))
			offer_weigh(&offers[i], 1, weight);
		else if (is_any && is_application)
			offer_weigh(&offers[i], 2, weight);
		else if (is_application && is_word(subtype, subtype_len, offers[i].subtype))
			offer_weigh(&offers[i], 3, weight);
	}
	return 0;
}

/* The rest of a range that is malformed, up to the next comma that is not in quotes. */
static void range_skip(struct rest *rest)
{
	while (rest->at < rest->end && *rest->at != ',') {
		if (*rest->at != '"')
			rest->at++;
		else if (quoted_skip(rest))
			return;
	}
}

enum http_accept http_accept_parse(const char *text, size_t len)
{
	struct offer offers[] = { { .subtype = "json" }, { .subtype = "problem+json" } };
	const struct offer *json = &offers[0], *problem = &offers[1];
	struct rest rest = { text, text + len };
	int ranges_n = 0;

	while (rest_skip(&rest, SPACES ",", SIZE_MAX), rest.at < rest.end) {
		ranges_n++;
		if (range_read(&rest, offers, 2))
			range_skip(&rest);
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

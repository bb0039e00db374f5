/*
 * Values of headers and of paths, without a connection: what is read and written again is read as
 * the same, and what must not matter does not.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/trace_context.h"
#include "common/serve/http_origin.h"
#include "gateway/listen/http_value.h"

#include <stdio.h>
#include <stdlib.h>

static void key_check(const char *text, size_t len)
{
	char key[RECEIVE_KEY_MAX + 1], again[RECEIVE_KEY_MAX + 1], quoted[2 * RECEIVE_KEY_MAX + 2];
	char *at = quoted;

	if (http_key_parse(text, len, key))
		return;
	check(receive_key_valid(key, strlen(key)));
	*at++ = '"';
	for (const char *p = key; *p; *at++ = *p++)
		if (*p == '"' || *p == '\\')
			*at++ = '\\';
	*at++ = '"';
	check(http_key_parse(quoted, (size_t)(at - quoted), again) == 0);
	check(strcmp(again, key) == 0);
	check(*key == '"' || (http_key_parse(key, strlen(key), again) == 0 && !strcmp(again, key)));
}

/* Puts the list behind empty elements, and twice. */
static void accept_check(const char *text, size_t len)
{
	enum http_accept accept = http_accept_parse(text, len);
	char *twice = malloc(2 * len + 3);

	check(twice != NULL);
	memcpy(twice, " ,", 2);
	memcpy(twice + 2, text, len);
	check(http_accept_parse(twice, len + 2) == accept);
	twice[len + 2] = ',';
	memcpy(twice + len + 3, text, len);
	check(http_accept_parse(twice, 2 * len + 3) == accept);
	free(twice);
}

static void request_id_check(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && text[n] > ' ' && text[n] < 0x7f)
		n++;
	check(request_name_valid(text, len) == (n == len && len >= 1 && len <= 128));
}

static void trace_check(const char *text, size_t len)
{
	char again[64], handed_on[TRACE_SIZE];
	struct trace_context trace, same;
	int n;

	if (trace_context_parse(text, len, &trace))
		return;
	check(strlen(trace.trace_id) == TRACE_ID_LEN && strlen(trace.span_id) == TRACE_SPAN_LEN);
	n = snprintf(again, sizeof(again), "%.2s-%s-%s-%.2s", text, trace.trace_id, trace.span_id,
		     text + 53);
	check(n == 55 && memcmp(again, text, 55) == 0);
	check(trace_context_parse(again, 55, &same) == 0 &&
	      strcmp(same.span_id, trace.span_id) == 0);
	check(same.is_sampled == trace.is_sampled);
	trace_context_format(&trace, NULL, handed_on);
	check(trace_context_valid(handed_on, strlen(handed_on)));
}

static void segment_check(const char *text, size_t len)
{
	char out[USER_ID_SIZE], again[USER_ID_SIZE], encoded[3 * USER_ID_SIZE + 1];
	int n = http_segment_decode(text, len, out, sizeof(out));

	if (n < 0)
		return;
	check((size_t)n <= len && strlen(out) == (size_t)n);
	for (int i = 0; i < n; i++)
		snprintf(encoded + 3 * (size_t)i, 4, "%%%02X", (unsigned char)out[i]);
	check(http_segment_decode(encoded, 3 * (size_t)n, again, sizeof(again)) == n);
	check(memcmp(again, out, (size_t)n + 1) == 0);
}

/* The text, which has a NUL, as an origin and as a list of them. */
static void origin_check(const char *text, size_t len)
{
	static const char list[] = "https://a,http://a:1,https://a.b";
	const char *found = http_origins_find(list, text, len), *own;

	check(!found || (memcmp(found, text, len) == 0 && (found[len] == ',' || !found[len]) &&
			 (found == list || found[-1] == ',')));
	own = http_origins_find(text, "https://a", 9);
	check(!own || (strncmp(own, "https://a", 9) == 0 && (own[9] == ',' || !own[9])));
	(void)http_hosts_has(text, "a");
	(void)http_hosts_has("a", text);
	(void)http_hosts_has_origin("a", text, "a");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *exact = malloc(size > 0 ? size : 1);

	check(text && exact);
	memcpy(text, data, size);
	text[size] = '\0';
	memcpy(exact, data, size);
	key_check(exact, size);
	accept_check(exact, size);
	request_id_check(exact, size);
	trace_check(exact, size);
	segment_check(exact, size);
	origin_check(text, strlen(text));
	free(text);
	free(exact);
	return 0;
}

/*
 * Replies over HTTP, as coupon-rush reads them: what they are does not depend on how they are cut,
 * and a complete one has the body whose length it tells.
 */
#include "tests/fuzz/fuzz.h"

#include "client/client.h"

#include <stdlib.h>

#define BODY_MOST 4096

/* Feeds pieces of at most `most` bytes, each from its own heap memory, as http_response_feed(). */
static long feed(struct http_response *reply, const uint8_t *data, size_t size, size_t most)
{
	long taken = 0;

	for (size_t at = 0; at < size && !reply->is_complete;) {
		size_t n = size - at < most ? size - at : most;
		char *piece = checked(malloc(n));
		long one;

		memcpy(piece, data + at, n);
		one = http_response_feed(reply, piece, n);
		free(piece);
		if (one < 0)
			return -1;
		check((size_t)one == n || reply->is_complete);
		taken += one;
		at += n;
	}
	return taken;
}

/* The first byte is the length of the pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_response whole = { 0 }, cut = { 0 };
	long taken;

	if (size < 2)
		return 0;
	whole.most = BODY_MOST;
	http_response_reset(&whole);
	cut.most = BODY_MOST;
	http_response_reset(&cut);
	taken = feed(&whole, data + 1, size - 1, size);
	check(feed(&cut, data + 1, size - 1, (size_t)data[0] + 1) == taken);
	check(whole.len <= BODY_MOST && whole.is_complete == cut.is_complete);
	if (taken >= 0 && whole.is_complete) {
		check(whole.len == cut.len && (size_t)taken >= whole.len);
		check(whole.len == 0 || memcmp(whole.body, cut.body, whole.len) == 0);
		check(whole.parser.status_code == cut.parser.status_code);
		check(whole.parser.status_code >= 200 &&
		      http_response_text_len(&whole) <= whole.len);
	}
	free(whole.body);
	free(cut.body);
	return 0;
}

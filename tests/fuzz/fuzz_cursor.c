/*
 * Cursors: a text that is read is the one that was written for its user; a place that is written is
 * read again if it is one; and of its text no byte can be changed.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/listen/request.h"

#define PLACE_BYTES (sizeof(int64_t) + sizeof(int64_t) + 1)

static void text_check(const struct user_id *user, const char *text, size_t len)
{
	struct coupon_cursor cursor;
	char again[COUPON_CURSOR_SIZE];

	if (coupon_cursor_parse(&cursor, user, text, len))
		return;
	coupon_cursor_format(&cursor, user, again);
	check(len == COUPON_CURSOR_LEN && memcmp(again, text, len) == 0);
}

static int is_place(const struct coupon_cursor *cursor)
{
	return cursor->at_us >= 0 && cursor->coupon > 0 && cursor->slot > 0 &&
	       cursor->slot <= RECEIVE_SLOT_MAX;
}

static void place_check(const struct user_id *user, const uint8_t place[PLACE_BYTES])
{
	struct coupon_cursor cursor = { .slot = place[16] }, again;
	char text[COUPON_CURSOR_SIZE], *at = &text[place[0] % COUPON_CURSOR_LEN];

	memcpy(&cursor.at_us, place, 8);
	memcpy(&cursor.coupon, place + 8, 8);
	coupon_cursor_format(&cursor, user, text);
	check(strlen(text) == COUPON_CURSOR_LEN);
	check((coupon_cursor_parse(&again, user, text, COUPON_CURSOR_LEN) == 0) ==
	      is_place(&cursor));
	if (is_place(&cursor))
		check(again.at_us == cursor.at_us && again.coupon == cursor.coupon &&
		      again.slot == cursor.slot);
	*at = *at == '0' ? '1' : '0';
	check(coupon_cursor_parse(&again, user, text, COUPON_CURSOR_LEN) != 0);
}

/* The first byte is the length of the user; then the user, and a place or a text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t user_len = size ? data[0] : 0;
	struct user_id user;

	if (size < 1 + user_len || user_id_parse(&user, (const char *)data + 1, user_len))
		return 0;
	data += 1 + user_len;
	size -= 1 + user_len;
	text_check(&user, (const char *)data, size);
	if (size >= PLACE_BYTES)
		place_check(&user, data);
	return 0;
}

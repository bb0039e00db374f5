#include "common/message/coupon_cursor.h"

#include "common/message/receive.h"

#include <string.h>

#define VERSION 1
#define VERSION_BYTES 1
#define NUMBER_BYTES 8
#define SLOT_BYTES 2
#define PLACE_BYTES (VERSION_BYTES + 2 * NUMBER_BYTES + SLOT_BYTES)
#define CURSOR_BYTES (PLACE_BYTES + NUMBER_BYTES)

_Static_assert(2 * CURSOR_BYTES == COUPON_CURSOR_LEN, "two digits a byte");

static uint8_t *number_put(uint8_t *at, uint64_t number, size_t bytes)
{
	for (size_t i = bytes; i-- > 0; number >>= 8)
		at[i] = (uint8_t)number;
	return at + bytes;
}

static uint64_t number_take(const uint8_t **at, size_t bytes)
{
	uint64_t number = 0;

	while (bytes-- > 0)
		number = number << 8 | *(*at)++;
	return number;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_add(uint64_t hash, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	while (n-- > 0)
		hash = (hash ^ *at++) * 0x100000001b3;
	return hash;
}

static uint64_t place_check(const struct user_id *user, const uint8_t place[PLACE_BYTES])
{
	uint64_t hash = hash_add(0xcbf29ce484222325, user->text, user->len);

	return hash_add(hash, place, PLACE_BYTES);
}

char *coupon_cursor_format(const struct coupon_cursor *cursor, const struct user_id *user,
			   char out[COUPON_CURSOR_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[CURSOR_BYTES], *at = number_put(bytes, VERSION, VERSION_BYTES);

	at = number_put(at, (uint64_t)cursor->at_us, NUMBER_BYTES);
	at = number_put(at, (uint64_t)cursor->coupon, NUMBER_BYTES);
	at = number_put(at, (uint64_t)cursor->slot, SLOT_BYTES);
	number_put(at, place_check(user, bytes), NUMBER_BYTES);
	for (size_t i = 0; i < CURSOR_BYTES; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[COUPON_CURSOR_LEN] = '\0';
	return out;
}

/* Its value, or -1: a cursor has one spelling, in lower case. */
static int digit_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static int bytes_parse(uint8_t bytes[CURSOR_BYTES], const char *text)
{
	for (size_t i = 0; i < CURSOR_BYTES; i++) {
		int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

int coupon_cursor_parse(struct coupon_cursor *cursor, const struct user_id *user, const char *text,
			size_t len)
{
	uint8_t bytes[CURSOR_BYTES];
	const uint8_t *at = bytes;

	if (len != COUPON_CURSOR_LEN || bytes_parse(bytes, text) ||
	    number_take(&at, VERSION_BYTES) != VERSION)
		return -1;
	cursor->at_us = (int64_t)number_take(&at, NUMBER_BYTES);
	cursor->coupon = (int64_t)number_take(&at, NUMBER_BYTES);
	cursor->slot = (int)number_take(&at, SLOT_BYTES);
	if (number_take(&at, NUMBER_BYTES) != place_check(user, bytes))
		return -1;
	return cursor->at_us >= 0 && cursor->coupon > 0 && cursor->slot > 0 &&
			       cursor->slot <= RECEIVE_SLOT_MAX
		       ? 0
		       : -1;
}

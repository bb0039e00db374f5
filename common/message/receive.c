#include "common/message/receive.h"

#include "common/check.h"
#include "common/message/number.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char crockford[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
static const char hex[] = "0123456789abcdef";

void ulid_new(struct ulid *ulid, int64_t wall_ms)
{
	for (int i = 0; i < 6; i++)
		ulid->bytes[i] = (uint8_t)(wall_ms >> (40 - 8 * i));
	check(getrandom(ulid->bytes + 6, 10, 0) == 10);
}

/* The 128 bits as two numbers, the first bits in `high`. */
static void ulid_words(const struct ulid *ulid, uint64_t *high, uint64_t *low)
{
	uint64_t words[2];

	memcpy(words, ulid->bytes, sizeof(words));
	*high = be64toh(words[0]);
	*low = be64toh(words[1]);
}

/*
 * From the last character, five bits each: 12 are entirely in `low`, the 13th is in both, the
 * others are in `high`.
 */
char *ulid_format(const struct ulid *ulid, char out[ULID_SIZE])
{
	uint64_t high, low;

	ulid_words(ulid, &high, &low);
	out[ULID_LEN] = '\0';
	for (int i = ULID_LEN - 1; i >= ULID_LEN - 12; i--, low >>= 5)
		out[i] = crockford[low & 31];
	out[ULID_LEN - 13] = crockford[(low | high << 4) & 31];
	high >>= 1;
	for (int i = ULID_LEN - 14; i >= 0; i--, high >>= 5)
		out[i] = crockford[high & 31];
	return out;
}

int ulid_parse(struct ulid *ulid, const char *text, size_t len)
{
	if (len != ULID_LEN || text[0] > '7')
		return -1;
	memset(ulid, 0, sizeof(*ulid));
	for (int i = 0; i < ULID_LEN; i++) {
		const char *at = text[i] ? strchr(crockford, text[i]) : NULL;

		if (!at)
			return -1;
		for (int k = 0; k < 5; k++) {
			int bit = 5 * i + k - 2;

			if (bit >= 0 && ((at - crockford) >> (4 - k) & 1))
				ulid->bytes[bit / 8] |= (uint8_t)(1u << (7 - bit % 8));
		}
	}
	return 0;
}

int64_t ulid_time_ms(const struct ulid *ulid)
{
	int64_t ms = 0;

	for (int i = 0; i < 6; i++)
		ms = ms << 8 | ulid->bytes[i];
	return ms;
}

char *ulid_to_uuid(const struct ulid *ulid, char out[ULID_UUID_SIZE])
{
	char *p = out;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = hex[ulid->bytes[i] >> 4];
		*p++ = hex[ulid->bytes[i] & 15];
	}
	*p = '\0';
	return out;
}

int ulid_from_uuid(struct ulid *ulid, const char *text)
{
	int nibbles = 0;

	if (strlen(text) != ULID_UUID_SIZE - 1)
		return -1;
	memset(ulid, 0, sizeof(*ulid));
	for (int i = 0; i < ULID_UUID_SIZE - 1; i++) {
		const char *at;

		if (i == 8 || i == 13 || i == 18 || i == 23) {
			if (text[i] != '-')
				return -1;
			continue;
		}
		at = strchr(hex, text[i]);
		if (!at)
			return -1;
		ulid->bytes[nibbles / 2] |= (uint8_t)((at - hex) << (nibbles % 2 ? 0 : 4));
		nibbles++;
	}
	return 0;
}

size_t user_id_valid_length(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && text[n] >= '!' && text[n] <= '~')
		n++;
	return n;
}

int user_id_parse(struct user_id *user, const char *text, size_t len)
{
	if (len == 0 || len > USER_ID_MAX || user_id_valid_length(text, len) != len)
		return -1;
	user->len = (unsigned char)len;
	memcpy(user->text, text, len);
	user->text[len] = '\0';
	return 0;
}

void user_id_why(const char *text, size_t len, char out[USER_ID_WHY_SIZE])
{
	size_t valid = user_id_valid_length(text, len);

	if (valid < len)
		snprintf(out, USER_ID_WHY_SIZE, "byte %zu is not allowed: must be %s", valid + 1,
			 USER_ID_ALLOWED);
	else
		snprintf(out, USER_ID_WHY_SIZE, "has %zu bytes: must be %s", len, USER_ID_ALLOWED);
}

struct user_id user_id_of_number(int64_t number)
{
	struct user_id user = { .len = 1, .text = "0" };

	if (number > 0)
		user.len = (unsigned char)id_format(number, user.text);
	return user;
}

int user_id_same(const struct user_id *a, const struct user_id *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

int user_id_compare(const struct user_id *a, const struct user_id *b)
{
	return strcmp(a->text, b->text);
}

size_t receive_format(const struct receive *receive, char out[RECEIVE_SIZE])
{
	char *p = out;

	p += id_format(receive->coupon, p);
	*p++ = '.';
	memcpy(p, receive->user.text, receive->user.len);
	p += receive->user.len;
	*p++ = '.';
	ulid_format(&receive->batch, p);
	p += ULID_LEN;
	*p++ = '.';
	if (receive->index == 0) {
		memcpy(p, "0", 2);
		p++;
	} else {
		p += id_format(receive->index, p);
	}
	return (size_t)(p - out);
}

/* The length up to the last dot of `text`, or -1. */
static ptrdiff_t last_dot(const char *text, size_t len)
{
	const char *dot = memrchr(text, '.', len);

	return dot ? dot - text : -1;
}

static int index_parse(const char *text, size_t len, int *index)
{
	int64_t value = 0;

	if (len == 1 && text[0] == '0')
		value = 0;
	else if (id_parse(text, len, &value) || value > RECEIVE_INDEX_MAX)
		return -1;
	*index = (int)value;
	return 0;
}

/* From both ends: the user may contain dots. */
int receive_parse(struct receive *receive, const char *text, size_t len)
{
	const char *user = memchr(text, '.', len);
	ptrdiff_t index, batch;

	if (!user || id_parse(text, (size_t)(user - text), &receive->coupon))
		return -1;
	user++;
	len -= (size_t)(user - text);
	index = last_dot(user, len);
	if (index < 0 || index_parse(user + index + 1, len - (size_t)index - 1, &receive->index))
		return -1;
	batch = last_dot(user, (size_t)index);
	if (batch < 0 || ulid_parse(&receive->batch, user + batch + 1, (size_t)(index - batch - 1)))
		return -1;
	return user_id_parse(&receive->user, user, (size_t)batch);
}

int receive_key_valid(const char *text, size_t len)
{
	if (len == 0 || len > RECEIVE_KEY_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return 0;
	return 1;
}

int receive_code_valid(const char *text, size_t len)
{
	const char *dot = memchr(text, '.', len);
	size_t set_len = dot ? (size_t)(dot - text) : len, serial_len = len - set_len - 1;
	int64_t number;

	if (id_parse(text, set_len, &number))
		return 0;
	return !dot || (serial_len == 1 && dot[1] == '0') ||
	       id_parse(dot + 1, serial_len, &number) == 0;
}

void receive_code_format(int64_t set, int64_t serial, char out[RECEIVE_CODE_MAX + 1])
{
	size_t len = id_format(set, out);

	out[len++] = '.';
	if (serial == 0)
		memcpy(out + len, "0", 2);
	else
		id_format(serial, out + len);
}

int receive_tail_parse(const char *text, size_t len, size_t *key_len)
{
	const char *tab = memchr(text, '\t', len);

	*key_len = tab ? (size_t)(tab - text) : len;
	if (*key_len > 0 && !receive_key_valid(text, *key_len))
		return -1;
	return tab && !receive_code_valid(tab + 1, len - *key_len - 1) ? -1 : 0;
}

size_t receive_tail_key_len(const char *tail)
{
	return strcspn(tail, "\t");
}

const char *receive_tail_code(const char *tail, size_t len, size_t key_len, size_t *code_len)
{
	size_t begin = key_len < len ? key_len + 1 : len;

	*code_len = len - begin;
	return tail + begin;
}

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

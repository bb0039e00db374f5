#include "common/message/receive.h"

#include "common/check.h"

#include <endian.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char crockford[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void ulid_new(struct ulid *ulid, int64_t wall_ms)
{
	for (int i = 0; i < 6; i++)
		ulid->bytes[i] = (uint8_t)(wall_ms >> (40 - 8 * i));
	check(getrandom(ulid->bytes + 6, 10, 0) == 10);
}

/*
 * From the last character, five bits each: 12 are entirely in `low`, the 13th is in both, the
 * others are in `high`.
 */
char *ulid_format(const struct ulid *ulid, char out[ULID_SIZE])
{
	uint64_t words[2], high, low;

	memcpy(words, ulid->bytes, sizeof(words));
	high = be64toh(words[0]);
	low = be64toh(words[1]);
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
	uint64_t words[2] = { 0, 0 };

	if (len != ULID_LEN || text[0] > '7')
		return -1;
	for (int i = 0; i < ULID_LEN; i++) {
		const char *at = text[i] ? strchr(crockford, text[i]) : NULL;

		if (!at)
			return -1;
		words[0] = words[0] << 5 | words[1] >> 59;
		words[1] = words[1] << 5 | (uint64_t)(at - crockford);
	}
	words[0] = htobe64(words[0]);
	words[1] = htobe64(words[1]);
	memcpy(ulid->bytes, words, sizeof(words));
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
	static const size_t lengths[] = { 4, 2, 2, 2, 6 }; /* in bytes, of what hyphens separate */
	const uint8_t *bytes = ulid->bytes;
	char *at = out;

	for (int i = 0; i < 5; i++) {
		sodium_bin2hex(at, 2 * lengths[i] + 1, bytes, lengths[i]);
		bytes += lengths[i];
		at += 2 * lengths[i];
		*at++ = i < 4 ? '-' : '\0';
	}
	return out;
}

int ulid_from_uuid(struct ulid *ulid, const char *text)
{
	char again[ULID_UUID_SIZE];

	/* It also takes capitals, and hyphens elsewhere. */
	if (sodium_hex2bin(ulid->bytes, sizeof(ulid->bytes), text, strlen(text), "-", NULL, NULL))
		return -1;
	return strcmp(ulid_to_uuid(ulid, again), text) == 0 ? 0 : -1;
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
	struct user_id user;

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
	p += id_format(receive->index, p);
	return (size_t)(p - out);
}

/* An id, or 0. */
static int id_or_zero_parse(const char *text, size_t len, int64_t *number)
{
	*number = 0;
	return len == 1 && text[0] == '0' ? 0 : id_parse(text, len, number);
}

/* From both ends: the user may contain dots. */
int receive_parse(struct receive *receive, const char *text, size_t len)
{
	const char *end = text + len, *user = memchr(text, '.', len), *batch, *index;
	int64_t number;

	if (!user || id_parse(text, (size_t)(user - text), &receive->coupon))
		return -1;
	user++;
	index = memrchr(user, '.', (size_t)(end - user));
	batch = index ? memrchr(user, '.', (size_t)(index - user)) : NULL;
	if (!batch || id_or_zero_parse(index + 1, (size_t)(end - index - 1), &number) ||
	    number > RECEIVE_INDEX_MAX ||
	    ulid_parse(&receive->batch, batch + 1, (size_t)(index - batch - 1)))
		return -1;
	receive->index = (int)number;
	return user_id_parse(&receive->user, user, (size_t)(batch - user));
}

int printable_valid(const char *text, size_t len, size_t most)
{
	if (len == 0 || len > most)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return 0;
	return 1;
}

int receive_key_valid(const char *text, size_t len)
{
	return printable_valid(text, len, RECEIVE_KEY_MAX);
}

int receive_code_valid(const char *text, size_t len)
{
	const char *dot = memchr(text, '.', len);
	size_t set_len = dot ? (size_t)(dot - text) : len, serial_len = len - set_len - 1;
	int64_t number;

	if (id_parse(text, set_len, &number))
		return 0;
	return !dot || id_or_zero_parse(dot + 1, serial_len, &number) == 0;
}

void receive_code_format(int64_t set, int64_t serial, char out[RECEIVE_CODE_MAX + 1])
{
	size_t len = id_format(set, out);

	out[len++] = '.';
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

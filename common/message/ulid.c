#include "common/message/ulid.h"

#include "common/check.h"

#include <endian.h>
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

#include "common/ulid.h"

#include "common/check.h"

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

/* Bits `from`…`from`+4 of the 130-bit number whose two leading bits are zero. */
static unsigned five_bits(const struct ulid *ulid, int from)
{
	unsigned value = 0;

	for (int bit = from - 2; bit < from + 3; bit++) {
		unsigned one = bit < 0 ? 0 : (ulid->bytes[bit / 8] >> (7 - bit % 8)) & 1u;

		value = value << 1 | one;
	}
	return value;
}

char *ulid_format(const struct ulid *ulid, char out[ULID_SIZE])
{
	for (int i = 0; i < ULID_LEN; i++)
		out[i] = crockford[five_bits(ulid, 5 * i)];
	out[ULID_LEN] = '\0';
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

#include "common/redis/key.h"

#include <inttypes.h>
#include <stdio.h>

static const char *suffix_of(enum coupon_key key)
{
	switch (key) {
	case COUPON_KEY_COUPON:
		return "";
	case COUPON_KEY_USERS:
		return ":users";
	case COUPON_KEY_OUTBOX:
		return ":outbox";
	case COUPON_KEY_KNOWN:
		return ":known";
	case COUPON_KEY_SEEN:
		return ":seen";
	case COUPON_KEY_DEAD:
		return ":dead";
	case COUPON_KEY_SETTLED:
		return ":settled";
	case COUPON_KEY_REJECTED:
		return ":rejected";
	case COUPON_KEY_TERMS:
		return ":terms";
	case COUPON_KEY_CODES:
		return ":codes";
	case COUPON_KEY_FILLED:
		return ":filled";
	}
	return "";
}

const char *coupon_key(int64_t coupon, enum coupon_key key, char out[COUPON_KEY_SIZE])
{
	snprintf(out, COUPON_KEY_SIZE, "coupon:{%" PRId64 "}%s", coupon, suffix_of(key));
	return out;
}

const char *coupon_key_filling(int64_t coupon, int64_t generation, enum coupon_key key,
			       char out[COUPON_KEY_SIZE])
{
	snprintf(out, COUPON_KEY_SIZE, "coupon:{%" PRId64 "}:fill:%" PRId64 "%s", coupon,
		 generation, suffix_of(key));
	return out;
}

void coupon_keys_make(struct coupon_keys *keys, int64_t coupon, unsigned set)
{
	keys->n = 0;
	for (int i = 0; i < COUPON_KEYS_MAX; i++)
		if (set & 1u << i) {
			keys->names[keys->n] = coupon_key(coupon, (enum coupon_key)(1u << i),
							  keys->texts[keys->n]);
			keys->n++;
		}
}

/*
 * The form of API keys and of what belongs to them: cmq_ID_SECRET, where ID is ten digits of
 * Crockford's base32 and SECRET is 32 random bytes in base64url. sql/schema/key.sql has the same
 * limits.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#define KEY_PREFIX "cmq_"
#define KEY_ID_LEN 10
#define KEY_ID_DIGITS "0123456789abcdefghjkmnpqrstvwxyz"
#define KEY_SECRET_BYTES 32
#define KEY_SECRET_LEN 43
#define KEY_TEXT_LEN (sizeof(KEY_PREFIX) - 1 + KEY_ID_LEN + 1 + KEY_SECRET_LEN)

#define KEY_NAME_MAX 64
#define KEY_NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define KEY_COUPONS_MAX 256
#define KEY_BUDGETS_MAX 64
#define KEY_RATE_MAX 1000000

/* Every role once: ROLE(enumerator, "name"). */
#define KEY_ROLES(ROLE)          \
	ROLE(ISSUE, "issue")     \
	ROLE(READ, "read")       \
	ROLE(USE, "use")         \
	ROLE(MONITOR, "monitor") \
	ROLE(ADMIN, "admin") /* of coupon-admin alone */

enum key_role_place {
#define ROLE(name, text) KEY_ROLE_PLACE_##name,
	KEY_ROLES(ROLE)
#undef ROLE
		KEY_ROLES_N
};

/* Roles are a set. */
enum key_role {
#define ROLE(name, text) KEY_ROLE_##name = 1 << KEY_ROLE_PLACE_##name,
	KEY_ROLES(ROLE)
#undef ROLE
};

static inline int key_id_valid(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!memchr(KEY_ID_DIGITS, text[i], strlen(KEY_ID_DIGITS)))
			return 0;
	return len == KEY_ID_LEN;
}

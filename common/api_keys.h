/*
 * API keys: their form, the table of those that a process knows, and their copy in Redis.
 */
#pragma once

#include "common/redis/redis_client.h"

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The form: cmq_ID_SECRET, where ID is ten digits of Crockford's base32 and SECRET is 32 random
 * bytes in base64url. sql/schema/key.sql has the same limits.
 */

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

/*
 * Every role once: ROLE(enumerator, "name"). Of the last three, which are of coupon-admin, each may
 * do what those before it may.
 */
#define KEY_ROLES(ROLE)            \
	ROLE(ISSUE, "issue")       \
	ROLE(READ, "read")         \
	ROLE(USE, "use")           \
	ROLE(MONITOR, "monitor")   \
	ROLE(CAMPAIGN, "campaign") \
	ROLE(ADMIN, "admin")

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

/*
 * The table has the API keys from PostgreSQL and Redis together, and says which key a text is that
 * a client presents. It does no I/O: the caller hands over the records of both stores, in any order
 * and as often as it likes.
 *
 * A record replaces one of a lower version. A key that is revoked in one record stays so, whatever
 * the versions: a PostgreSQL or a Redis that was put back to an earlier moment revives none. A key
 * that no store has any more stays known.
 *
 * Entries are never freed while the table lives, only changed in place: a pointer to a key stays
 * good, but its fields only until the next keys_merge(). Event-loop thread only.
 */

#define KEY_HASH_SIZE 32 /* SHA-256 */

#define KEYS_LIVE_MAX 20000     /* not revoked: twice what PostgreSQL allows */
#define KEYS_REVOKED_MAX 100000 /* of these little more than the id is kept */

struct api_key {
	char id[KEY_ID_LEN + 1];
	char name[KEY_NAME_MAX + 1]; /* letters, digits, '.', '_' and '-' */
	int64_t version;
	unsigned roles;         /* of enum key_role */
	const int64_t *coupons; /* ascending; NULL: every one */
	size_t coupons_n;
	const char (*budgets)[KEY_NAME_MAX + 1]; /* of a key of some coupons; else every one */
	size_t budgets_n;
	int64_t rate;       /* requests per second; 0: no limit of its own */
	int64_t expires_ms; /* wall clock; INT64_MAX: never */
	int is_revoked;
	uint64_t generation; /* another one: the key has changed */
	size_t *use;         /* key_use_place() + 1, once it was used; 0 before */
};

struct keys;

struct keys *keys_new(void);
void keys_free(struct keys *keys); /* NULL is allowed */

enum keys_merged {
	KEYS_CHANGED,
	KEYS_KNOWN,     /* nothing new */
	KEYS_MALFORMED, /* it is ignored */
	KEYS_FULL       /* a new key for which there is no room: it is ignored */
};

/* Takes one record in JSON: sql/function/api_key_records.sql. Unknown members are ignored. */
enum keys_merged keys_merge(struct keys *keys, const char *record, size_t len);

/* The key with this id, revoked or not; NULL: none. For one that was not presented as a text. */
const struct api_key *keys_get(const struct keys *keys, const char *id, size_t len);

/* Whether the key may be used for this coupon. */
int key_has_coupon(const struct api_key *key, int64_t coupon);
/* Whether it may read, spend and change this budget: a key of some coupons has only those named. */
int key_has_budget(const struct api_key *key, const char *budget);

/*
 * What a text is: VERDICT(enumerator, "kind"). For the log: clients are not told which of those
 * after the first it was.
 */
#define KEY_VERDICTS(VERDICT)                                                                \
	VERDICT(KEY_GOOD, "good")                                                            \
	VERDICT(KEY_FORM, "form")       /* it is no key */                                   \
	VERDICT(KEY_UNKNOWN, "unknown") /* there is no key with this id */                   \
	VERDICT(KEY_WRONG, "wrong")     /* another secret, or the one before for too long */ \
	VERDICT(KEY_EXPIRED, "expired")                                                      \
	VERDICT(KEY_REVOKED, "revoked")

enum key_verdict {
#define VERDICT(name, kind) name,
	KEY_VERDICTS(VERDICT)
#undef VERDICT
};

const char *key_verdict_kind(enum key_verdict verdict);

/* What a text was good for, so that a connection can ask later whether it still is. */
struct key_grant {
	const struct api_key *key; /* NULL: none */
	uint64_t generation;       /* of the key when it was last compared */
	int64_t until_ms;          /* it is good before this time, if the key does not change */
	int is_by_id;              /* there was no text, but another proof */
	unsigned char sha256[KEY_HASH_SIZE];
};

/*
 * Finds the key that the text is of, at this time of the wall clock. With KEY_GOOD the grant is of
 * that key, else of none. Takes as long for an id that does not exist as for a wrong secret of one
 * that does; how long it takes does not depend on the secrets.
 */
enum key_verdict keys_find(const struct keys *keys, const char *text, size_t len, int64_t now_ms,
			   struct key_grant *grant);

/*
 * Finds a key that was proved otherwise than by its text. The grant is good until the key expires
 * or is revoked.
 */
enum key_verdict keys_find_by_id(const struct keys *keys, const char *id, size_t len,
				 int64_t now_ms, struct key_grant *grant);

/*
 * Whether the text of a grant with a key would be accepted now; cheap while the key has not
 * changed. KEY_GOOD also takes note of a change: the caller reads roles and coupons anew when
 * `generation` of the grant is another than before.
 */
enum key_verdict key_grant_check(struct key_grant *grant, int64_t now_ms);

/* Programs tell Redis of them, in KEYS_USED_KEY. */
struct key_last_use {
	char id[KEY_ID_LEN + 1];
	int64_t ms; /* wall clock */
};

/*
 * The copy of PostgreSQL's table api_key in Redis is made after COMMIT, so that gateways know the
 * keys while PostgreSQL is away. Both number the changes. Redis is behind when it lost data, or has
 * not been told yet; it is ahead when PostgreSQL was put back to an earlier moment, and then it is
 * left as it is: couponctl recover brings its keys back.
 */

#define KEY_COPY_PAGE 100 /* records that are written together */

#define KEYS_VERSION "version" /* the field of KEYS_KEY */
/* The version that Redis has, by its reply; 0: none, or it was overwritten. */
int64_t key_copy_number(const redisReply *reply);
/* Reads it. 0, or -1 as of redis_client_call(). */
int key_copy_version(struct redis_client *redis, int64_t *version);

/* What became of a write; KEY_COPY_FAILED as of redis_client_call(). */
enum key_copied { KEY_COPIED, KEY_COPY_FAILED, KEY_COPY_FOREIGN, KEY_COPY_UNADOPTED };

/*
 * Writes the rows of sql_query_key_records for `from`, at most KEY_COPY_PAGE of them: lua/keys.lua.
 * Fewer rows are the last ones: with them Redis has all up to `to`, a number that was read before
 * them. `*from` becomes where the next page begins. Any caller may write at any time: what is
 * older than what Redis has, it ignores.
 */
enum key_copied key_copy_write(struct redis_client *redis, const char *installation,
			       const PGresult *rows, int64_t *from, int64_t to);

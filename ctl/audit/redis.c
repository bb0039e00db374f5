#include "ctl/audit/redis.h"

#include "common/check.h"
#include "common/message/json.h"
#include "ctl/audit/context.h"
#include "ctl/audit/postgres.h"
#include "coupon/redis_coupon.h"
#include "coupon/slot.h"
#include "ctl/store.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define STEP_USERS 250 /* of one slot each: Redis needs about 0.3 ms */
#define STEP_LEAST 20

size_t records_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < STEP_LEAST ? STEP_LEAST : (size_t)step;
}

redisReply *records_read(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			 size_t n)
{
	const char *argv[STEP_USERS + 2];
	char key[COUPON_KEY_SIZE];
	redisReply *reply;

	check(n >= 1 && n <= STEP_USERS);
	argv[0] = "HMGET";
	argv[1] = coupon_key(coupon, COUPON_KEY_USERS, key);
	for (size_t i = 0; i < n; i++)
		argv[i + 2] = slots[i].user.text;
	reply = redis_client_call(redis, (int)n + 2, argv);
	store_redis_check(redis, reply != NULL);
	check(reply->type == REDIS_REPLY_ARRAY && reply->elements == n);
	return reply;
}

#define EXACT_WAIT_MS 100

/* For a malformed key or field. */
struct malformed {
	struct audit *audit;
	int64_t coupon;
};

static void field_add(void *context, const char *field, const char *what)
{
	const struct malformed *malformed = context;

	finding_add(&malformed->audit->findings, FINDING_COUPON_MALFORMED,
		    &(struct place){ .coupon = malformed->coupon },
		    "field %s of the coupon in Redis %s", field, what);
}

/* The keys of a coupon and their types. */
static const struct {
	enum coupon_key key;
	const char *type;
} keys[] = { { COUPON_KEY_COUPON, "hash" }, { COUPON_KEY_USERS, "hash" },
	     { COUPON_KEY_OUTBOX, "hash" }, { COUPON_KEY_SEEN, "hash" },
	     { COUPON_KEY_KNOWN, "set" },   { COUPON_KEY_DEAD, "set" } };

#define KEYS (sizeof(keys) / sizeof(keys[0]))
enum { AT_TIME = KEYS, AT_COUPON, AT_USERS, AT_OUTBOX, AT_SEEN, AT_KNOWN, AT_KEEPER, COMMANDS };

static void types_check(struct audit *audit, int64_t coupon, struct cut *cut,
			const redisReply *reply, int report)
{
	char key[COUPON_KEY_SIZE];

	for (size_t i = 0; i < KEYS; i++) {
		const char *type = reply->element[i]->str;

		if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
			continue;
		cut->bad = 1;
		if (report)
			finding_add(&audit->findings, FINDING_KEY_TYPE,
				    &(struct place){ .coupon = coupon },
				    "key %s in Redis is a %s, and has to be a %s",
				    coupon_key(coupon, keys[i].key, key), type, keys[i].type);
	}
}

/* Whether a holder of the keeper's lock, a field KIND:TOKEN, has a lease that has not ended. */
static int keeper_holds(const redisReply *lock, int64_t now_ms)
{
	if (lock->type != REDIS_REPLY_ARRAY)
		return 0;
	for (size_t i = 0; i + 1 < lock->elements; i += 2)
		if (strchr(lock->element[i]->str, ':') &&
		    strtoll(lock->element[i + 1]->str, NULL, 10) > now_ms)
			return 1;
	return 0;
}

void cut_read(struct audit *audit, int64_t coupon, struct cut *cut, struct generations *generations,
	      int report)
{
	char key[KEYS][COUPON_KEY_SIZE];
	struct redis_words commands[COMMANDS] = {
		[AT_TIME] = { { "TIME" } },
		[AT_COUPON] = { { "HGETALL", key[0] } },
		[AT_USERS] = { { "HLEN", key[1] } },
		[AT_OUTBOX] = { { "HLEN", key[2] } },
		[AT_SEEN] = { { "HGETALL", key[3] } },
		[AT_KNOWN] = { { "SCARD", key[4] } },
		[AT_KEEPER] = { { "HGETALL", KEEPER_LOCK_KEY } },
	};
	redisReply *reply, **at;

	for (size_t i = 0; i < KEYS; i++)
		commands[i] = (struct redis_words){ { "TYPE",
						      coupon_key(coupon, keys[i].key, key[i]) } };
	memset(cut, 0, sizeof(*cut));
	reply = redis_client_transaction(audit->redis, commands, COMMANDS);
	store_redis_check(audit->redis, reply != NULL);
	at = reply->element;
	types_check(audit, coupon, cut, reply, report);
	check(redis_reply_time_ms(at[AT_TIME], &cut->at_ms) == 0);
	cut->users = at[AT_USERS]->integer;
	cut->outbox = at[AT_OUTBOX]->integer;
	cut->known = at[AT_KNOWN]->integer;
	cut->keeper = keeper_holds(at[AT_KEEPER], cut->at_ms);
	cut->present = strcmp(at[0]->str, "none") != 0;
	if (cut->present && at[AT_COUPON]->type == REDIS_REPLY_ARRAY) {
		cut->bad |= redis_coupon_parse(&cut->coupon, at[AT_COUPON],
					       report ? field_add : NULL,
					       &(struct malformed){ audit, coupon }) > 0;
		cut->held = redis_coupon_is_held(&cut->coupon);
		cut->verified = strcmp(cut->coupon.run_id, audit->run_id) == 0;
		if (generations && !cut->bad)
			(void)generations_raise(generations, at[AT_COUPON], at[AT_SEEN]);
	}
	freeReplyObject(reply);
}

void cut_read_exact(struct audit *audit, int64_t coupon, struct cut *cut,
		    struct generations *generations)
{
	struct cut next;
	int64_t until_ms;

	cut_read(audit, coupon, cut, generations, 1);
	for (until_ms = cut->at_ms + EXACT_WAIT_MS;
	     cut->present && !cut->bad && cut->at_ms < until_ms; *cut = next) {
		do
			cut_read(audit, coupon, &next, generations, 0);
		while (next.at_ms == cut->at_ms);
		if (!next.present || next.bad)
			return;
		if (next.coupon.seq == cut->coupon.seq &&
		    next.coupon.generation == cut->coupon.generation) {
			cut->exact = 1;
			return;
		}
	}
}

int64_t cut_taken(const struct cut *cut)
{
	const struct redis_coupon *c = &cut->coupon;

	return c->total - c->stock - c->reserved - c->lost;
}

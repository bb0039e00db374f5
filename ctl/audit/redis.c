#include "ctl/audit/redis.h"

#include "common/check.h"
#include "common/message/json.h"
#include "ctl/audit/context.h"
#include "ctl/audit/postgres.h"
#include "ctl/redis_coupon.h"
#include "ctl/slots.h"
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

enum slot_found records_look_up(const redisReply *records, const struct slot *slot, const char *key,
				struct slot *found)
{
	if (records->type != REDIS_REPLY_STRING)
		return SLOT_NONE;
	return slot_look_up(slot, key, records->str, records->len, found);
}

#define EXACT_WAIT_MS 100
#define NUMBER_LEN_MAX 16

static void high_raise(struct generations *generations, int64_t number, int64_t high)
{
	struct generation *generation = generation_find(generations, number);

	if (high > generation->high)
		generation->high = high;
}

static int is_number(const redisReply *text)
{
	const char *p = text->str;

	return text->type == REDIS_REPLY_STRING && text->len >= 1 && text->len <= NUMBER_LEN_MAX &&
	       strspn(p, "0123456789") == text->len && (text->len == 1 || *p != '0') &&
	       strtoll(p, NULL, 10) <= JSON_INTEGER_MAX;
}

static int is_run_id(const redisReply *text)
{
	return text->len == REDIS_RUN_ID_SIZE - 1 &&
	       strspn(text->str, "0123456789abcdef") == text->len;
}

static int is_status(const redisReply *text)
{
	return strcmp(text->str, "open") == 0 || strcmp(text->str, "paused") == 0 ||
	       strcmp(text->str, "closed") == 0;
}

/* The fields that are numbers. */
static const struct field {
	const char *name;
	size_t offset; /* in struct redis_coupon */
	int64_t least, most;
	int is_optional;
} numbers[] = {
#define FIELD(name_, member, ...)                                               \
	{                                                                       \
		.name = name_, .offset = offsetof(struct redis_coupon, member), \
		.most = JSON_INTEGER_MAX, __VA_ARGS__                           \
	}
	FIELD("total", total, .least = 0),
	FIELD("stock", stock, .least = 0),
	FIELD("reserved", reserved, .least = 0),
	FIELD("begin", begin_ms, .least = 0),
	FIELD("end", end_ms, .least = 0),
	{ .name = "limit",
	  .offset = offsetof(struct redis_coupon, limit),
	  .least = 1,
	  .most = 100 },
	FIELD("generation", generation, .least = 1),
	FIELD("seq", seq, .least = 0),
	FIELD("version", version, .least = 1),
	FIELD("lost", lost, .is_optional = 1),
	FIELD("late", late, .is_optional = 1),
#undef FIELD
};

#define FIELDS (sizeof(numbers) / sizeof(numbers[0]))

/* Takes a number. 0, or -1 when no script wrote it. */
static int number_take(struct redis_coupon *coupon, const struct field *field,
		       const redisReply *text)
{
	int64_t *value = (int64_t *)(void *)((char *)coupon + field->offset);

	if (!is_number(text))
		return -1;
	*value = strtoll(text->str, NULL, 10);
	return *value >= field->least && *value <= field->most ? 0 : -1;
}

/* Takes one field. 0, or -1 when no script wrote it. */
static int field_take(struct cut *cut, int seen[FIELDS], const redisReply *name,
		      const redisReply *text)
{
	if (strcmp(name->str, "run_id") == 0) {
		if (!is_run_id(text))
			return -1;
		memcpy(cut->coupon.run_id, text->str, REDIS_RUN_ID_SIZE);
		return 0;
	}
	if (strcmp(name->str, "status") == 0) {
		if (!is_status(text))
			return -1;
		snprintf(cut->coupon.status, sizeof(cut->coupon.status), "%s", text->str);
		return 0;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		if (strcmp(name->str, numbers[i].name) != 0)
			continue;
		seen[i] = is_number(text);
		return number_take(&cut->coupon, &numbers[i], text);
	}
	return 0;
}

static void malformed_add(struct audit *audit, int64_t coupon, struct cut *cut, int report,
			  const char *name, const char *what)
{
	cut->bad = 1;
	if (report)
		finding_add(&audit->findings, FINDING_COUPON_MALFORMED,
			    &(struct place){ .coupon = coupon },
			    "field %s of the coupon in Redis %s", name, what);
}

/* A coupon that a keeper holds may lack any field but its run id. */
static void missing_find(struct audit *audit, int64_t coupon, struct cut *cut,
			 const int seen[FIELDS], int report)
{
	for (size_t i = 0; i < FIELDS && !cut->held; i++)
		if (!numbers[i].is_optional && !seen[i] && !cut->bad)
			malformed_add(audit, coupon, cut, report, numbers[i].name, "is missing");
	if (!cut->bad && !cut->held && !*cut->coupon.status)
		malformed_add(audit, coupon, cut, report, "status", "is missing");
	if (!cut->bad && !*cut->coupon.run_id)
		malformed_add(audit, coupon, cut, report, "run_id", "is missing");
}

static void fields_read(struct audit *audit, int64_t coupon, struct cut *cut,
			const redisReply *pairs, int report)
{
	int seen[FIELDS] = { 0 };

	for (size_t i = 0; i + 1 < pairs->elements; i += 2)
		if (field_take(cut, seen, pairs->element[i], pairs->element[i + 1]))
			malformed_add(audit, coupon, cut, report, pairs->element[i]->str,
				      "is malformed");
	cut->held = strspn(cut->coupon.run_id, "0") == REDIS_RUN_ID_SIZE - 1;
	missing_find(audit, coupon, cut, seen, report);
}

static void highs_read(struct generations *generations, const struct cut *cut,
		       const redisReply *fields, const redisReply *seen)
{
	int64_t number, high;

	high_raise(generations, cut->coupon.generation, cut->coupon.seq);
	for (size_t i = 0; i + 1 < fields->elements; i += 2)
		if (redis_reply_high(fields->element[i], fields->element[i + 1], &number, &high) >
		    0)
			high_raise(generations, number, high);
	for (size_t i = 0; seen->type == REDIS_REPLY_ARRAY && i + 1 < seen->elements; i += 2)
		if (number_parse(seen->element[i]->str, INT32_MAX, &number) == 0 &&
		    number_parse(seen->element[i + 1]->str, INT64_MAX, &high) == 0)
			high_raise(generations, number, high);
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
		fields_read(audit, coupon, cut, at[AT_COUPON], report);
		cut->verified = strcmp(cut->coupon.run_id, audit->run_id) == 0;
		if (generations && !cut->bad)
			highs_read(generations, cut, at[AT_COUPON], at[AT_SEEN]);
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

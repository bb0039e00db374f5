#include "ctl/audit/cut.h"

#include "common/check.h"
#include "common/id.h"
#include "common/json.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXACT_WAIT_MS 100
#define STEP_USERS 250 /* of one slot each: Redis needs some 0.3 ms */
#define NUMBER_LEN_MAX 16

void audit_redis_need(const struct audit *audit, int ok)
{
	if (!ok)
		log_fatal("Redis cannot be asked: %s", cache_error(audit->cache));
}

/* One of the two hashes of numbers by generation: "high:3" of the coupon, or "3". */
static void high_raise(struct generations *generations, const char *number, const char *high)
{
	struct generation *generation = generation_find(generations, strtoll(number, NULL, 10));
	int64_t value = strtoll(high, NULL, 10);

	if (generation && value > generation->high)
		generation->high = value;
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
	return text->len == CACHE_RUN_ID_SIZE - 1 &&
	       strspn(text->str, "0123456789abcdef") == text->len;
}

static int is_status(const redisReply *text)
{
	return strcmp(text->str, "open") == 0 || strcmp(text->str, "paused") == 0 ||
	       strcmp(text->str, "closed") == 0;
}

/* The fields that are numbers, and where each goes. */
#define FIELDS 11

struct fields {
	const char *name;
	int64_t *value;
	int64_t least, most;
	int optional;
	int seen;
};

/* Takes one field; 0, or -1 when no script wrote it. */
static int field_take(struct cut *cut, struct fields *fields, const redisReply *name,
		      const redisReply *text)
{
	if (strcmp(name->str, "run_id") == 0 && is_run_id(text)) {
		memcpy(cut->coupon.run_id, text->str, CACHE_RUN_ID_SIZE);
		return 0;
	}
	if (strcmp(name->str, "status") == 0 && is_status(text)) {
		snprintf(cut->coupon.status, sizeof(cut->coupon.status), "%s", text->str);
		return 0;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		if (strcmp(name->str, fields[i].name) != 0)
			continue;
		if (!is_number(text))
			return -1;
		*fields[i].value = strtoll(text->str, NULL, 10);
		fields[i].seen = 1;
		return *fields[i].value < fields[i].least || *fields[i].value > fields[i].most ? -1
											       : 0;
	}
	return strcmp(name->str, "run_id") == 0 || strcmp(name->str, "status") == 0 ? -1 : 0;
}

static void malformed_tell(struct audit *audit, int64_t coupon, struct cut *cut, int tell,
			   const char *name, const char *what)
{
	cut->bad = 1;
	if (tell)
		finding_tell(&audit->findings, FINDING_COUPON_MALFORMED,
			     &(struct place){ .coupon = coupon },
			     "field %s of the coupon in Redis %s", name, what);
}

static void fields_read(struct audit *audit, int64_t coupon, struct cut *cut,
			const redisReply *pairs, int tell)
{
	struct cache_coupon *c = &cut->coupon;
	struct fields fields[FIELDS] = {
		{ "total", &c->total, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "stock", &c->stock, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "reserved", &c->reserved, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "begin", &c->begin_ms, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "end", &c->end_ms, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "limit", &c->limit, 1, 100, 0, 0 },
		{ "generation", &c->generation, 1, JSON_INTEGER_MAX, 0, 0 },
		{ "seq", &c->seq, 0, JSON_INTEGER_MAX, 0, 0 },
		{ "version", &c->version, 1, JSON_INTEGER_MAX, 0, 0 },
		{ "lost", &c->lost, 0, JSON_INTEGER_MAX, 1, 0 },
		{ "late", &c->late, 0, JSON_INTEGER_MAX, 1, 0 },
	};

	for (size_t i = 0; i + 1 < pairs->elements; i += 2)
		if (field_take(cut, fields, pairs->element[i], pairs->element[i + 1]))
			malformed_tell(audit, coupon, cut, tell, pairs->element[i]->str,
				       "is malformed");
	cut->held = strspn(c->run_id, "0") == CACHE_RUN_ID_SIZE - 1;
	for (size_t i = 0; i < FIELDS && !cut->held; i++)
		if (!fields[i].optional && !fields[i].seen && !cut->bad)
			malformed_tell(audit, coupon, cut, tell, fields[i].name, "is missing");
	if (!cut->bad && !cut->held && !*c->status)
		malformed_tell(audit, coupon, cut, tell, "status", "is missing");
	if (!cut->bad && !*c->run_id)
		malformed_tell(audit, coupon, cut, tell, "run_id", "is missing");
}

static void highs_read(struct generations *generations, const struct cut *cut,
		       const redisReply *fields, const redisReply *seen)
{
	struct generation *current = generation_find(generations, cut->coupon.generation);

	if (current && cut->coupon.seq > current->high)
		current->high = cut->coupon.seq;
	for (size_t i = 0; i + 1 < fields->elements; i += 2)
		if (strncmp(fields->element[i]->str, "high:", 5) == 0)
			high_raise(generations, fields->element[i]->str + 5,
				   fields->element[i + 1]->str);
	for (size_t i = 0; seen->type == REDIS_REPLY_ARRAY && i + 1 < seen->elements; i += 2)
		high_raise(generations, seen->element[i]->str, seen->element[i + 1]->str);
}

/* The keys of a coupon, and what each has to be. */
static const struct {
	const char *suffix, *type;
} keys[] = { { "", "hash" },
	     { ":users", "hash" },
	     { ":outbox", "hash" },
	     { ":seen", "hash" },
	     { ":known", "set" } };

#define KEYS (sizeof(keys) / sizeof(keys[0]))
enum { AT_TIME = KEYS, AT_COUPON, AT_USERS, AT_OUTBOX, AT_SEEN, AT_KNOWN, AT_KEEPER, COMMANDS };

static void types_check(struct audit *audit, int64_t coupon, struct cut *cut,
			const redisReply *reply, int tell)
{
	char key[CACHE_KEY_SIZE];

	for (size_t i = 0; i < KEYS; i++) {
		const char *type = reply->element[i]->str;

		if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
			continue;
		cut->bad = 1;
		if (tell)
			finding_tell(&audit->findings, FINDING_KEY_TYPE,
				     &(struct place){ .coupon = coupon },
				     "key %s in Redis is a %s, and has to be a %s",
				     cache_key(coupon, keys[i].suffix, key), type, keys[i].type);
	}
}

void cut_read(struct audit *audit, int64_t coupon, struct cut *cut, struct generations *generations,
	      int tell)
{
	char key[KEYS][CACHE_KEY_SIZE];
	struct cache_words commands[COMMANDS] = {
		[AT_TIME] = { { "TIME" } },
		[AT_COUPON] = { { "HGETALL", key[0] } },
		[AT_USERS] = { { "HLEN", key[1] } },
		[AT_OUTBOX] = { { "HLEN", key[2] } },
		[AT_SEEN] = { { "HGETALL", key[3] } },
		[AT_KNOWN] = { { "SCARD", key[4] } },
		[AT_KEEPER] = { { "EXISTS", "couponmq:keeper" } },
	};
	redisReply *reply, **at;

	for (size_t i = 0; i < KEYS; i++)
		commands[i] = (struct cache_words){ { "TYPE",
						      cache_key(coupon, keys[i].suffix, key[i]) } };
	memset(cut, 0, sizeof(*cut));
	reply = cache_transaction(audit->cache, commands, COMMANDS);
	audit_redis_need(audit, reply != NULL);
	at = reply->element;
	types_check(audit, coupon, cut, reply, tell);
	cut->at_ms = strtoll(at[AT_TIME]->element[0]->str, NULL, 10) * 1000 +
		     strtoll(at[AT_TIME]->element[1]->str, NULL, 10) / 1000;
	cut->users = at[AT_USERS]->integer;
	cut->outbox = at[AT_OUTBOX]->integer;
	cut->known = at[AT_KNOWN]->integer;
	cut->keeper = at[AT_KEEPER]->integer == 1;
	cut->present = strcmp(at[0]->str, "none") != 0;
	if (cut->present && at[AT_COUPON]->type == REDIS_REPLY_ARRAY) {
		fields_read(audit, coupon, cut, at[AT_COUPON], tell);
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
	const struct cache_coupon *c = &cut->coupon;

	return c->total - c->stock - c->reserved - c->lost;
}

size_t users_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < 20 ? 20 : (size_t)step;
}

redisReply *users_read(struct audit *audit, int64_t coupon, const struct slot *slots, size_t n)
{
	static char users[STEP_USERS][ID_SIZE];
	const char *argv[STEP_USERS + 2];
	char key[CACHE_KEY_SIZE];
	redisReply *reply;

	check(n >= 1 && n <= STEP_USERS);
	argv[0] = "HMGET";
	argv[1] = cache_key(coupon, ":users", key);
	for (size_t i = 0; i < n; i++) {
		id_format(slots[i].user, users[i]);
		argv[i + 2] = users[i];
	}
	reply = cache_command(audit->cache, (int)n + 2, argv);
	audit_redis_need(audit, reply != NULL);
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

static int batch_has(struct audit *audit, const char *key, const struct ulid *batch)
{
	char text[ULID_SIZE];
	redisReply *reply = cache_command(audit->cache, 3,
					  (const char *[]){ "HEXISTS", key,
							    ulid_format(batch, text) });
	int has;

	audit_redis_need(audit, reply != NULL);
	has = reply->integer == 1;
	freeReplyObject(reply);
	return has;
}

void outbox_has(struct audit *audit, int64_t coupon, const struct slot *slots, size_t n, int *has)
{
	char key[CACHE_KEY_SIZE];

	cache_key(coupon, ":outbox", key);
	for (size_t i = 0; i < n; i++) {
		int same = i > 0 && memcmp(&slots[i].batch, &slots[i - 1].batch,
					   sizeof(slots[i].batch)) == 0;

		has[i] = same ? has[i - 1] : batch_has(audit, key, &slots[i].batch);
	}
}

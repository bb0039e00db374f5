/*
 * The exchange codes of a coupon: in PostgreSQL one is used exactly where a user coupon has it, and
 * in Redis exactly where a record of its user has it.
 */
#include "ctl/audit/pass.h"

#include "common/check.h"
#include "common/redis/revoke.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCAN_COUNT 250
#define LOOKS 4 /* at what differs, before it is a finding: receives are accepted meanwhile */
#define LOOK_PAUSE_MS 50
#define REVOKED_LOOKS 60 /* three seconds: a round of the keeper, and its work */
#define TOLD_MAX 100

/* A code and a user, one of which has the other. */
struct claim {
	char code[RECEIVE_CODE_MAX + 1];
	struct user_id user;
};

struct claims {
	struct redis_client *redis;
	int64_t coupon;
	struct claim *list;
	size_t n, room;
};

static void claim_add(struct claims *claims, const char *code, size_t len,
		      const struct user_id *user)
{
	struct claim *claim;

	if (claims->n == claims->room) {
		claims->room = 2 * claims->room + SCAN_COUNT;
		claims->list = reallocarray(claims->list, claims->room, sizeof(*claims->list));
		check(claims->list != NULL);
	}
	claim = &claims->list[claims->n++];
	snprintf(claim->code, sizeof(claim->code), "%.*s", (int)len, code);
	claim->user = *user;
}

static redisReply *field_read(const struct claims *claims, enum coupon_key which, const char *field)
{
	redisReply *reply = coupon_call(claims->redis, claims->coupon, "HGET", which, field, NULL);

	store_redis_check(claims->redis, reply != NULL);
	return reply;
}

static int records_have(const char *records, const char *code)
{
	const char *text = records, *own;
	struct slot slot;

	while (slot_next(&text, &slot) == 0)
		if (slot_code(&slot, &own) == strlen(code) && memcmp(own, code, strlen(code)) == 0)
			return 1;
	return 0;
}

/* Whether the code has the user, and the user the code, or neither. */
static int is_mutual(const struct claims *claims, const struct claim *claim)
{
	redisReply *owner = field_read(claims, COUPON_KEY_CODES, claim->code);
	redisReply *records = field_read(claims, COUPON_KEY_USERS, claim->user.text);
	size_t len = redis_code_user(owner);
	int has_user = len > 0 && len == strlen(claim->user.text) &&
		       memcmp(owner->str, claim->user.text, len) == 0;
	int has_code = records->type == REDIS_REPLY_STRING &&
		       records_have(records->str, claim->code);

	freeReplyObject(owner);
	freeReplyObject(records);
	return has_user == has_code;
}

/* Each step of a scan leaves those claims that only one side makes. */
static void claims_keep_wrong(struct claims *claims, size_t from)
{
	size_t kept = from;

	for (size_t i = from; i < claims->n; i++)
		if (!is_mutual(claims, &claims->list[i]))
			claims->list[kept++] = claims->list[i];
	claims->n = kept;
}

static int codes_take(void *context, const redisReply *fields)
{
	struct claims *claims = context;
	size_t from = claims->n;

	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const redisReply *code = fields->element[i], *owner = fields->element[i + 1];
		struct user_id user;

		size_t len = redis_code_user(owner);

		if (len > 0 && user_id_parse(&user, owner->str, len) == 0)
			claim_add(claims, code->str, code->len, &user);
	}
	claims_keep_wrong(claims, from);
	return 0;
}

static int users_take(void *context, const redisReply *users)
{
	struct claims *claims = context;
	size_t from = claims->n, len;
	struct slots slots = { 0 };
	const char *code;

	slots_read(&slots, users);
	for (size_t i = 0; i < slots.n; i++)
		if ((len = slot_code(&slots.list[i], &code)) > 0)
			claim_add(claims, code, len, &slots.list[i].user);
	slots_fini(&slots);
	claims_keep_wrong(claims, from);
	return 0;
}

static void redis_judge(struct audit *audit, int64_t coupon)
{
	struct claims claims = { .redis = audit->redis, .coupon = coupon };

	store_redis_check(audit->redis, coupon_scan(audit->redis, coupon, COUPON_KEY_CODES,
						    SCAN_COUNT, codes_take, &claims) == 0);
	store_redis_check(audit->redis, coupon_scan(audit->redis, coupon, COUPON_KEY_USERS,
						    SCAN_COUNT, users_take, &claims) == 0);
	for (int look = 1; claims.n > 0 && look < LOOKS; look++) {
		usleep(LOOK_PAUSE_MS * 1000);
		claims_keep_wrong(&claims, 0);
	}
	for (size_t i = 0; i < claims.n && i < TOLD_MAX; i++)
		finding_add(&audit->findings, FINDING_CODE_OWNER,
			    &(struct place){ .coupon = coupon, .user = &claims.list[i].user },
			    "the code %s and the records of the user do not agree",
			    claims.list[i].code);
	free(claims.list);
}

/* Revoked codes, as Redis names them, of which Redis has to know. */
struct revoked {
	char (*names)[RECEIVE_CODE_MAX + 1];
	size_t n, room;
};

/* Keeps those of the first `n` names from `from` on that Redis does not have as revoked. */
static void revoked_keep_wrong(struct audit *audit, int64_t coupon, struct revoked *revoked,
			       size_t from)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[2 + SCAN_COUNT] = { "HMGET", coupon_key(coupon, COUPON_KEY_CODES, key) };
	size_t kept = from;

	while (from < revoked->n) {
		size_t n = revoked->n - from < SCAN_COUNT ? revoked->n - from : SCAN_COUNT;
		redisReply *reply;

		for (size_t i = 0; i < n; i++)
			argv[2 + i] = revoked->names[from + i];
		reply = redis_client_call(audit->redis, 2 + (int)n, argv);
		store_redis_check(audit->redis, reply != NULL);
		for (size_t i = 0; i < n; i++)
			if (!redis_code_is_revoked(reply->element[i]))
				memmove(revoked->names[kept++], revoked->names[from + i],
					sizeof(*revoked->names));
		freeReplyObject(reply);
		from += n;
	}
	revoked->n = kept;
}

static void revoked_read(struct audit *audit, int64_t coupon, struct revoked *revoked)
{
	int rows;

	db_run(audit->db, "BEGIN");
	db_do(audit->db, sql_query_rebuild_revoked, postgres_number(coupon), postgres_number(0));
	do {
		PGresult *page = db_ask(audit->db, sql_query_rebuild_fetch_revoked);
		size_t from = revoked->n;

		rows = PQntuples(page);
		if (revoked->n + (size_t)rows > revoked->room) {
			revoked->room = 2 * revoked->room + (size_t)rows;
			revoked->names = reallocarray(revoked->names, revoked->room,
						      sizeof(*revoked->names));
			check(revoked->names != NULL);
		}
		for (int i = 0; i < rows; i++)
			snprintf(revoked->names[revoked->n++], sizeof(*revoked->names), "%s",
				 db_text(page, i, "code"));
		PQclear(page);
		revoked_keep_wrong(audit, coupon, revoked, from);
	} while (rows > 0);
	db_run(audit->db, "COMMIT");
}

/*
 * PostgreSQL revokes a code first, so Redis has no other ones. The other way round it may take a
 * moment: couponctl or the keeper is about to tell Redis.
 */
static void revoked_judge(struct audit *audit, int64_t coupon)
{
	struct revoked revoked = { 0 };

	revoked_read(audit, coupon, &revoked);
	for (int look = 1; revoked.n > 0 && look < REVOKED_LOOKS; look++) {
		usleep(LOOK_PAUSE_MS * 1000);
		revoked_keep_wrong(audit, coupon, &revoked, 0);
	}
	for (size_t i = 0; i < revoked.n && i < TOLD_MAX; i++)
		finding_add(&audit->findings, FINDING_CODE_REVOKED,
			    &(struct place){ .coupon = coupon },
			    "the code %s is revoked, and Redis does not have that",
			    revoked.names[i]);
	free(revoked.names);
}

static void rows_judge(struct audit *audit, int64_t coupon)
{
	PGresult *rows = db_ask(audit->db, sql_query_audit_codes, postgres_number(coupon));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *text = db_text(rows, row, "user_id");
		int has_row = db_is_true(rows, row, "has_row");
		struct user_id user;

		if (user_id_parse(&user, text, strlen(text)))
			continue;
		finding_add(&audit->findings, FINDING_CODE_ROW,
			    &(struct place){ .coupon = coupon, .user = &user },
			    has_row ? "the user coupon has the code %s, which is not used by it"
				    : "the code %s is used, and no user coupon has it",
			    db_text(rows, row, "code"));
	}
	PQclear(rows);
}

static int has_codes(struct audit *audit, int64_t coupon)
{
	PGresult *row = db_ask(audit->db, sql_query_coupon_has_codes, postgres_number(coupon));
	int has = db_is_true(row, 0, "has_codes");

	PQclear(row);
	return has;
}

void codes_judge(struct audit *audit, int64_t coupon, int in_redis)
{
	if (!has_codes(audit, coupon))
		return;
	rows_judge(audit, coupon);
	if (in_redis) {
		redis_judge(audit, coupon);
		revoked_judge(audit, coupon);
	}
}

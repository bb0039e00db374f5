/*
 * Judges the exchange codes of a coupon. In PostgreSQL a code is used exactly where a user coupon
 * has it, in Redis exactly where a record of its user has it.
 */
#include "ctl/audit/audit.h"

#include "common/array.h"
#include "common/redis/redis_client.h"
#include "coupon/slot.h"
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

/* A code and a user, one of which has the other; no user: PostgreSQL has revoked the code. */
struct code_holder {
	char code[RECEIVE_CODE_MAX + 1];
	struct user_id user;
};

struct holders {
	const struct pass *pass;
	struct code_holder *list;
	size_t n, size;
};

static void holder_add(struct holders *holders, const char *code, size_t len,
		       const struct user_id *user)
{
	struct code_holder *holder;

	holders->list = array_room(holders->list, holders->n, &holders->size, sizeof(*holder));
	holder = &holders->list[holders->n++];
	snprintf(holder->code, sizeof(holder->code), "%.*s", (int)len, code);
	holder->user = *user;
}

/* Whether the code has the user, and the user the code, or neither; or it is revoked. */
static int is_right(const struct code_holder *holder, const redisReply *owner,
		    const redisReply *records)
{
	size_t len = redis_code_user(owner), code_len = strlen(holder->code);
	int has_user = len > 0 && len == holder->user.len &&
		       memcmp(owner->str, holder->user.text, len) == 0;
	const char *text = records->str, *code;
	int has_code = 0;
	struct slot slot;

	if (holder->user.len == 0)
		return redis_code_is_revoked(owner);
	while (!has_code && slot_next(&text, &slot) == 0)
		has_code = slot_code(&slot, &code) == code_len &&
			   memcmp(code, holder->code, code_len) == 0;
	return has_user == has_code;
}

/* Keeps only the wrong holders, from index `from` on. */
static void holders_keep_wrong(struct holders *holders, size_t from)
{
	struct redis_client *redis = holders->pass->audit->redis;
	const char *codes[SCAN_COUNT], *users[SCAN_COUNT];
	size_t kept = from;

	for (size_t at = from, n; at < holders->n; at += n) {
		struct code_holder *list = holders->list + at;
		redisReply *owners, *records;

		n = holders->n - at < SCAN_COUNT ? holders->n - at : SCAN_COUNT;
		for (size_t i = 0; i < n; i++) {
			codes[i] = list[i].code;
			users[i] = list[i].user.text;
		}
		owners = store_reply(redis, coupon_fields(redis, holders->pass->coupon,
							  COUPON_KEY_CODES, codes, n));
		records = store_reply(redis, coupon_fields(redis, holders->pass->coupon,
							   COUPON_KEY_USERS, users, n));
		for (size_t i = 0; i < n; i++)
			if (!is_right(&list[i], owners->element[i], records->element[i]))
				holders->list[kept++] = list[i];
		freeReplyObject(owners);
		freeReplyObject(records);
	}
	holders->n = kept;
}

/*
 * Looks again at what is wrong, at most `looks` times, until it is right. Names what stays wrong.
 */
static void holders_judge(struct holders *holders, int looks, enum finding finding)
{
	for (int look = 1; holders->n > 0 && look < looks; look++) {
		usleep(LOOK_PAUSE_MS * 1000);
		holders_keep_wrong(holders, 0);
	}
	for (size_t i = 0; i < holders->n && i < TOLD_MAX; i++) {
		const struct code_holder *holder = &holders->list[i];

		finding_add(holders->pass, finding, &(struct slot){ .user = holder->user },
			    holder->user.len > 0
				    ? "the code %s and the records of the user do not agree"
				    : "the code %s is revoked in PostgreSQL, and Redis does not "
				      "have the revocation",
			    holder->code);
	}
	free(holders->list);
}

static int codes_take(void *context, const redisReply *fields)
{
	struct holders *holders = context;
	size_t from = holders->n;

	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const redisReply *code = fields->element[i], *owner = fields->element[i + 1];
		size_t len = redis_code_user(owner);
		struct user_id user;

		if (len > 0 && user_id_parse(&user, owner->str, len) == 0)
			holder_add(holders, code->str, code->len, &user);
	}
	holders_keep_wrong(holders, from);
	return 0;
}

static int users_take(void *context, const redisReply *users)
{
	struct holders *holders = context;
	size_t from = holders->n, len;
	struct slots slots = { 0 };
	const char *code;

	slots_read(&slots, users);
	for (size_t i = 0; i < slots.n; i++)
		if ((len = slot_code(&slots.list[i], &code)) > 0)
			holder_add(holders, code, len, &slots.list[i].user);
	slots_fini(&slots);
	holders_keep_wrong(holders, from);
	return 0;
}

void codes_judge(const struct pass *pass)
{
	struct redis_client *redis = pass->audit->redis;
	struct holders holders = { .pass = pass }, revoked = { .pass = pass };
	struct db *db = pass->audit->db;
	PGresult *rows;
	int n;

	if (!db_value(db, sql_query_coupon_has_codes, postgres_number(pass->coupon)))
		return;
	rows = db_ask(db, sql_query_audit_codes, postgres_number(pass->coupon));
	for (int row = 0; row < PQntuples(rows); row++) {
		const char *text = column_text(rows, row, "user_id");
		int has_row = db_is_true(rows, row, "has_row");
		struct slot slot = { 0 };

		if (user_id_parse(&slot.user, text, strlen(text)))
			continue;
		finding_add(pass, FINDING_CODE_ROW, &slot,
			    has_row ? "the user coupon names the code %s, but the code is not used "
				      "by this user coupon"
				    : "the code %s is used, but no user coupon has it",
			    column_text(rows, row, "code"));
	}
	PQclear(rows);
	if (!pass->compared)
		return;

	store_redis_check(redis, coupon_scan(redis, pass->coupon, COUPON_KEY_CODES, SCAN_COUNT,
					     codes_take, &holders) == 0);
	store_redis_check(redis, coupon_scan(redis, pass->coupon, COUPON_KEY_USERS, SCAN_COUNT,
					     users_take, &holders) == 0);
	holders_judge(&holders, LOOKS, FINDING_CODE_OWNER);

	/*
	 * PostgreSQL revokes a code first, so Redis has no other ones. The other way round it may
	 * take a moment: couponctl or the keeper is about to tell Redis.
	 */
	db_run(db, "BEGIN");
	db_do(db, sql_query_rebuild_revoked, postgres_number(pass->coupon), postgres_number(0));
	do {
		size_t from = revoked.n;

		rows = db_ask(db, sql_query_rebuild_fetch_revoked);
		n = PQntuples(rows);
		for (int i = 0; i < n; i++)
			holder_add(&revoked, PQgetvalue(rows, i, 0),
				   (size_t)PQgetlength(rows, i, 0), &(struct user_id){ 0 });
		PQclear(rows);
		holders_keep_wrong(&revoked, from);
	} while (n > 0);
	db_run(db, "COMMIT");
	holders_judge(&revoked, REVOKED_LOOKS, FINDING_CODE_REVOKED);
}

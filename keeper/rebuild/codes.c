#include "keeper/rebuild/codes.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/redis/revoke.h"
#include "embed.h"
#include "keeper/rebuild/slot_writer.h"
#include "coupon/slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_MAX (SNAPSHOT_PAGE + 1) /* codes in a command */
#define FILL_HEAD 5                  /* arguments of lua/fill.lua before its codes */
#define SCAN_COUNT 512
#define SETS_REVOKED "*" /* beside revoked sets and words: lua/issue.lua */

/* Adds a page of revoked codes to those that are filled. 0, or -1. */
static int page_fill(struct keeper_context *context, int64_t coupon, int64_t generation,
		     const PGresult *page)
{
	char keys[3][COUPON_KEY_SIZE], fence[KEEPER_FENCE_SIZE], lasts[NUMBER_SIZE];
	const char *names[] = { coupon_key_filling(coupon, generation, COUPON_KEY_USERS, keys[0]),
				coupon_key_filling(coupon, generation, COUPON_KEY_KNOWN, keys[1]),
				coupon_key_filling(coupon, generation, COUPON_KEY_CODES, keys[2]) };
	const char *argv[FILL_HEAD + SNAPSHOT_PAGE] = { keeper_context_fence(context, fence),
							"revoked", "0",
							number_text(SLOT_WRITER_LASTS_MS, lasts),
							"0" };
	redisReply *reply;
	int rows = PQntuples(page), rc;

	for (int i = 0; i < rows; i++)
		argv[FILL_HEAD + i] = PQgetvalue(page, i, 0);
	reply = redis_client_eval(context->redis, lua_fill, 3, names, FILL_HEAD + rows, argv);
	rc = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0 ? 0 : -1;
	if (reply)
		freeReplyObject(reply);
	return rc;
}

int codes_fill(struct keeper_context *context, struct snapshot *snapshot, int64_t generation,
	       int64_t above)
{
	int rows;

	if (snapshot_revoked_begin(snapshot, above))
		return -1;
	do { /* the last page is empty: place.lua needs one */
		if (snapshot_revoked(snapshot))
			return -1;
		rows = PQntuples(snapshot->page);
		if (page_fill(context, snapshot->row.id, generation, snapshot->page) ||
		    keeper_context_goes_on(context))
			return -1;
	} while (rows > 0);
	return 0;
}

int codes_fill_more(struct keeper_context *context, int64_t coupon, int64_t generation,
		    int64_t *revocation)
{
	const struct postgres_argument argument = postgres_number(coupon);
	struct snapshot snapshot = { .database = context->database, .row.id = coupon };
	PGresult *result = keeper_database_query(context->database, sql_query_code_revocation, 1,
						 &argument);
	int64_t last;
	int rc;

	if (!result)
		return -1;
	last = PQntuples(result) == 1 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
	PQclear(result);
	if (last <= *revocation)
		return 0;
	rc = keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL);
	if (rc == 0)
		rc = codes_fill(context, &snapshot, generation, *revocation);
	snapshot_end(&snapshot);
	*revocation = last;
	return rc;
}

/* Marks a page of codes in the coupon itself. */
static enum redis_revoked page_revoke(struct keeper_context *context,
				      const struct redis_revocation *revocation,
				      const PGresult *page, int64_t *seq)
{
	const char *codes[SNAPSHOT_PAGE];
	size_t n = (size_t)PQntuples(page);

	for (size_t i = 0; i < n; i++)
		codes[i] = PQgetvalue(page, (int)i, 0);
	return redis_revoke(context->redis, revocation, n == 0, n, codes, seq);
}

static enum redis_revoked pages_revoke(struct keeper_context *context, struct snapshot *snapshot,
				       const struct redis_revocation *revocation, int64_t *seq)
{
	enum redis_revoked done;
	int rows;

	if (keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL) ||
	    snapshot_revoked_begin(snapshot, revocation->from))
		return REDIS_REVOKED_FAILED;
	do {
		if (snapshot_revoked(snapshot) || keeper_context_goes_on(context))
			return REDIS_REVOKED_FAILED;
		rows = PQntuples(snapshot->page);
		done = page_revoke(context, revocation, snapshot->page, seq);
	} while (rows > 0 && done == REDIS_REVOKED_DONE);
	return done;
}

int codes_revoke(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look)
{
	const struct redis_revocation revocation = { .run_id = context->run_id,
						     .coupon = row->id,
						     .generation = look->generation,
						     .from = look->revocation,
						     .to = row->revocation };
	struct snapshot snapshot = { .database = context->database, .row = *row };
	int64_t seq = -1;
	enum redis_revoked done = pages_revoke(context, &snapshot, &revocation, &seq);

	snapshot_end(&snapshot);
	if (done == REDIS_REVOKED_FAILED)
		return -1;
	if (done != REDIS_REVOKED_DONE)
		return 0;
	log_info("coupon_revoked", LOG_I("coupon", row->id), LOG_I("revocation", row->revocation));
	if (seq < 0)
		return 0;
	return keeper_database_run(context->database, sql_query_code_revocation_cut, 5,
				   (const struct postgres_argument[]){
					   postgres_number(row->id),
					   postgres_number(revocation.from),
					   postgres_number(revocation.to),
					   postgres_number(revocation.generation),
					   postgres_number(seq) });
}

/* Codes with what Redis must have of each. */
struct page {
	char codes[PAGE_MAX][RECEIVE_CODE_MAX + 1];
	struct user_id users[PAGE_MAX]; /* none: revoked */
	int n;
};

/* Compares them, and empties the page. */
static int page_compare(struct codes_compare *compare, int64_t coupon, struct page *page)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[2 + PAGE_MAX] = { "HMGET", coupon_key(coupon, COUPON_KEY_CODES, key) };
	redisReply *reply;

	if (page->n == 0)
		return 0;
	for (int i = 0; i < page->n; i++)
		argv[2 + i] = page->codes[i];
	reply = redis_client_call(compare->context->redis, 2 + page->n, argv);
	if (!reply)
		return -1;
	check(reply->type == REDIS_REPLY_ARRAY && reply->elements == (size_t)page->n);
	for (int i = 0; i < page->n; i++) {
		const redisReply *value = reply->element[i];
		const char *user = page->users[i].text;
		size_t len = redis_code_user(value);

		if (*user ? len != strlen(user) || memcmp(value->str, user, len) != 0
			  : !redis_code_is_revoked(value))
			compare->differs = 1;
	}
	freeReplyObject(reply);
	page->n = 0;
	return 0;
}

int codes_compare_users(struct codes_compare *compare, int64_t coupon, const redisReply *pairs)
{
	struct slots slots = { 0 };
	struct page page = { .n = 0 };
	int rc = 0;

	slots_read(&slots, pairs);
	for (size_t i = 0; rc == 0 && i < slots.n; i++) {
		const char *code;
		size_t len = slot_code(&slots.list[i], &code);

		if (len == 0)
			continue;
		memcpy(page.codes[page.n], code, len);
		page.codes[page.n][len] = '\0';
		page.users[page.n++] = slots.list[i].user;
		compare->redeemed++;
		if (page.n == PAGE_MAX)
			rc = page_compare(compare, coupon, &page);
	}
	slots_fini(&slots);
	return rc ? rc : page_compare(compare, coupon, &page);
}

/* Redis must have every code that is revoked in PostgreSQL. */
static int revoked_compare(struct codes_compare *compare, struct snapshot *snapshot)
{
	struct page page = { .n = 0 };
	int has_set = 0;

	if (snapshot_revoked_begin(snapshot, 0))
		return -1;
	for (;;) {
		if (snapshot_revoked(snapshot))
			return -1;
		if (PQntuples(snapshot->page) == 0)
			return 0;
		for (int i = 0; i < PQntuples(snapshot->page); i++) {
			snprintf(page.codes[page.n], sizeof(page.codes[0]), "%s",
				 PQgetvalue(snapshot->page, i, 0));
			has_set |= strchr(page.codes[page.n], '.') == NULL;
			page.users[page.n++] = (struct user_id){ 0 };
		}
		if (has_set) {
			strcpy(page.codes[page.n], SETS_REVOKED);
			page.users[page.n++] = (struct user_id){ 0 };
			has_set = 0;
		}
		if (page_compare(compare, snapshot->row.id, &page) ||
		    keeper_context_goes_on(compare->context))
			return -1;
	}
}

/* Adds to `redeemed` the codes in Redis that have a user. HSCAN may return some twice. */
static int redeemed_count(struct codes_compare *compare, int64_t coupon, int64_t *redeemed)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];

	coupon_key(coupon, COUPON_KEY_CODES, key);
	do {
		redisReply *reply = redis_client_hscan(compare->context->redis, key, cursor,
						       SCAN_COUNT);

		if (!reply)
			return -1;
		for (size_t i = 1; i < reply->element[1]->elements; i += 2)
			*redeemed += redis_code_user(reply->element[1]->element[i]) > 0;
		freeReplyObject(reply);
		if (keeper_context_goes_on(compare->context))
			return -1;
	} while (strcmp(cursor, "0") != 0);
	return 0;
}

int codes_compare_end(struct codes_compare *compare, struct snapshot *snapshot)
{
	int64_t redeemed = 0;

	if (revoked_compare(compare, snapshot) ||
	    redeemed_count(compare, snapshot->row.id, &redeemed))
		return -1;
	if (redeemed != compare->redeemed)
		compare->differs = 1;
	return 0;
}

#include "keeper/rebuild/codes.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/redis/revoke.h"
#include "coupon/redis_coupon.h"
#include "embed.h"
#include "keeper/rebuild/fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_MAX FILL_WORDS_MAX /* codes in a command */
#define SCAN_COUNT 512
#define SETS_REVOKED "*" /* beside revoked sets and words: lua/issue.lua */

/* Adds a page of revoked codes to those that are filled. 0, or -1. */
static int page_fill(struct keeper_context *context, int64_t coupon, int64_t generation,
		     const PGresult *page)
{
	struct piece piece = { .coupon = coupon,
			       .generation = generation,
			       .what = FILL_REVOKED,
			       .words_n = PQntuples(page) };
	char fence[KEEPER_FENCE_SIZE];

	for (int i = 0; i < piece.words_n; i++)
		piece.words[i] = PQgetvalue(page, i, 0);
	piece_append(context->redis, &piece, keeper_context_fence(context, fence));
	return piece_take(redis_client_next(context->redis)) == 0 ? 0 : -1;
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
	struct snapshot snapshot = { .database = context->database, .row.id = coupon };
	PGresult *result = keeper_database_query(context->database, sql_query_code_revocation,
						 POSTGRES_ARGUMENTS(postgres_number(coupon)));
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

static enum redis_revoked pages_revoke(struct keeper_context *context, struct snapshot *snapshot,
				       const struct redis_revocation *revocation, int64_t *seq)
{
	const char *codes[SNAPSHOT_PAGE];
	enum redis_revoked done;
	int rows;

	if (keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL) ||
	    snapshot_revoked_begin(snapshot, revocation->from))
		return REDIS_REVOKED_FAILED;
	do {
		if (snapshot_revoked(snapshot) || keeper_context_goes_on(context))
			return REDIS_REVOKED_FAILED;
		rows = PQntuples(snapshot->page);
		for (int i = 0; i < rows; i++)
			codes[i] = PQgetvalue(snapshot->page, i, 0);
		done = redis_revoke(context->redis, revocation, rows == 0, (size_t)rows, codes,
				    seq);
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
	return keeper_database_run(context->database, sql_query_code_revocation_cut,
				   POSTGRES_ARGUMENTS(postgres_number(row->id),
						      postgres_number(revocation.from),
						      postgres_number(revocation.to),
						      postgres_number(revocation.generation),
						      postgres_number(seq)));
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

int codes_compare_users(struct codes_compare *compare, int64_t coupon, const struct slots *slots)
{
	struct page page = { .n = 0 };

	for (size_t i = 0; i < slots->n; i++) {
		const char *code;
		size_t len = slot_code(&slots->list[i], &code);

		if (len == 0)
			continue;
		snprintf(page.codes[page.n], sizeof(page.codes[0]), "%.*s", (int)len, code);
		page.users[page.n++] = slots->list[i].user;
		compare->redeemed++;
		if (page.n == PAGE_MAX && page_compare(compare, coupon, &page))
			return -1;
	}
	return page_compare(compare, coupon, &page);
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

/* HSCAN may return some twice. */
static int redeemed_count(void *context, const redisReply *codes)
{
	struct codes_compare *compare = context;

	for (size_t i = 1; i < codes->elements; i += 2)
		compare->found += redis_code_user(codes->element[i]) > 0;
	return keeper_context_goes_on(compare->context);
}

int codes_compare_end(struct codes_compare *compare, struct snapshot *snapshot)
{
	if (revoked_compare(compare, snapshot) ||
	    coupon_scan(compare->context->redis, snapshot->row.id, COUPON_KEY_CODES, SCAN_COUNT,
			redeemed_count, compare))
		return -1;
	if (compare->found != compare->redeemed)
		compare->differs = 1;
	return 0;
}

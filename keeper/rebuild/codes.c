#include "keeper/rebuild/codes.h"

#include "common/check.h"
#include "embed.h"
#include "keeper/rebuild/slot_writer.h"
#include "keeper/user_slots.h"

#include <stdio.h>
#include <string.h>

#define PAGE_MAX (SNAPSHOT_PAGE + 1) /* codes in a command */
#define SCAN_COUNT 512
#define SETS_REVOKED "*" /* beside revoked sets and words: lua/issue.lua */

/* HSET of a page of revoked codes. 0, or -1. */
static int page_write(struct keeper_context *context, const char *key, const PGresult *page)
{
	const char *argv[4 + 2 * SNAPSHOT_PAGE] = { "HSET", key };
	int rows = PQntuples(page), argc = 2, has_set = 0;
	int64_t added;

	for (int i = 0; i < rows; i++) {
		argv[argc++] = PQgetvalue(page, i, 0);
		argv[argc++] = "";
		has_set |= strchr(PQgetvalue(page, i, 0), '.') == NULL;
	}
	if (has_set) {
		argv[argc++] = SETS_REVOKED;
		argv[argc++] = "";
	}
	return redis_client_integer(context->redis, argc, argv, &added);
}

static int expiry_set(struct keeper_context *context, const char *key)
{
	char lasts[NUMBER_SIZE];
	const char *argv[] = { "PEXPIRE", key, number_text(SLOT_WRITER_LASTS_MS, lasts) };
	int64_t done;

	return redis_client_integer(context->redis, 3, argv, &done);
}

int codes_revoked_write(struct keeper_context *context, struct snapshot *snapshot,
			int64_t generation)
{
	char key[COUPON_KEY_SIZE];

	coupon_key_filling(snapshot->row.id, generation, COUPON_KEY_CODES, key);
	if (snapshot_revoked_begin(snapshot))
		return -1;
	for (;;) {
		if (snapshot_revoked(snapshot))
			return -1;
		if (PQntuples(snapshot->page) == 0)
			return 0;
		if (page_write(context, key, snapshot->page) || expiry_set(context, key) ||
		    keeper_context_goes_on(context))
			return -1;
	}
}

/* 1, 0, or -1. */
static int has_codes(struct keeper_context *context, int64_t coupon)
{
	const struct postgres_argument argument = postgres_number(coupon);
	PGresult *result = keeper_database_query(context->database, sql_query_coupon_has_codes, 1,
						 &argument);
	int has = result ? *PQgetvalue(result, 0, 0) == 't' : -1;

	PQclear(result);
	return has;
}

int codes_load(struct keeper_context *context, const struct coupon_row *row, int64_t generation)
{
	struct snapshot snapshot = { .database = context->database, .row = *row };
	int rc = has_codes(context, row->id);

	if (rc <= 0)
		return rc;
	rc = keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL);
	if (rc == 0)
		rc = codes_revoked_write(context, &snapshot, generation);
	snapshot_end(&snapshot);
	return rc;
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
		const redisReply *user = reply->element[i];

		if (user->type != REDIS_REPLY_STRING || strcmp(user->str, page->users[i].text) != 0)
			compare->differs = 1;
	}
	freeReplyObject(reply);
	page->n = 0;
	return 0;
}

/* The code for one use that the receive has redeemed; 0: none. */
static int code_of(const struct user_record *record, char code[RECEIVE_CODE_MAX + 1])
{
	size_t len;
	const char *first = receive_tail_code(record->key, record->tail_len, record->key_len, &len);

	memcpy(code, first, len);
	code[len] = '\0';
	return strchr(code, '.') != NULL;
}

int codes_compare_users(struct codes_compare *compare, int64_t coupon, const redisReply *pairs)
{
	struct user_slots slots = { 0 };
	struct page page = { .n = 0 };
	int rc = 0;

	user_slots_read(&slots, pairs);
	for (size_t i = 0; rc == 0 && i < slots.n; i++) {
		if (!code_of(&slots.list[i].record, page.codes[page.n]))
			continue;
		page.users[page.n++] = slots.list[i].user;
		compare->redeemed++;
		if (page.n == PAGE_MAX)
			rc = page_compare(compare, coupon, &page);
	}
	user_slots_fini(&slots);
	return rc ? rc : page_compare(compare, coupon, &page);
}

/* Redis must have every code that is revoked in PostgreSQL. */
static int revoked_compare(struct codes_compare *compare, struct snapshot *snapshot)
{
	struct page page = { .n = 0 };
	int has_set = 0;

	if (snapshot_revoked_begin(snapshot))
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
			*redeemed += reply->element[1]->element[i]->len > 0;
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

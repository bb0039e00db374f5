#include "keeper/slots.h"

#include "common/check.h"
#include "common/clock.h"
#include "coupon/slot.h"
#include "embed.h"
#include "keeper/dead.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 256

/* One step of the scan. */
struct page {
	struct keeper_context *context;
	int64_t coupon;
	const struct coupon_look *look;
	struct slots slots;
	struct settle_args args;
};

int slots_may_settle(const struct coupon_row *row, const struct coupon_look *look,
		     const char *run_id)
{
	return look->present && !look->broken && !look->placeholder &&
	       look->generation == row->generation && look->reserved == 0 &&
	       strcmp(look->run_id, run_id) == 0 && look->seq > row->settled;
}

/*
 * The number of the receive is not known: the highest one is that of one of them. One with a code
 * gets the lowest: it was accepted before the code was revoked, if it is by now. The time is that
 * of the batch's id.
 */
static void slot_put(struct page *page, const struct slot *slot)
{
	int has_code = slot->tail_len > slot->key_len;

	slot_settle(slot, page->coupon, page->look->generation, has_code ? 1 : page->look->seq,
		    ulid_time_ms(&slot->batch), &page->args);
}

/* Puts those that are not the operator's into the arguments. 0, or -1: Redis is lost. */
static int slots_put(struct page *page)
{
	size_t n = page->slots.n;
	char(*batches)[ULID_SIZE] = calloc(n + 1, sizeof(*batches)), *dead = calloc(n + 1, 1);
	const char **names = calloc(n + 1, sizeof(*names));
	int rc;

	check(batches != NULL && dead != NULL && names != NULL);
	for (size_t i = 0; i < n; i++)
		names[i] = ulid_format(&page->slots.list[i].batch, batches[i]);
	rc = dead_read(page->context, page->coupon, names, n, dead);
	for (size_t i = 0; rc == 0 && i < n; i++)
		if (!dead[i])
			slot_put(page, &page->slots.list[i]);
	free(names);
	free(dead);
	free(batches);
	return rc;
}

/* Settles them. Returns how many got their outcome now, or -1. */
static int64_t page_settle(struct page *page)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];
	int64_t settled = (int64_t)settle_args_receives(&page->args);
	PGresult *rows;

	if (settled == 0)
		return 0;
	settle_args_arguments(&page->args, arguments);
	rows = keeper_database_query(page->context->database, sql_query_settle, SETTLE_ARGS_N,
				     arguments);
	if (!rows)
		return -1;
	for (int row = 0; row < PQntuples(rows); row++)
		settled -= strcmp(PQgetvalue(rows, row, 1), "changed") != 0;
	PQclear(rows);
	return settled;
}

static int64_t page_run(struct page *page, const redisReply *pairs)
{
	int64_t settled;

	slots_read(&page->slots, pairs);
	settle_args_init(&page->args);
	settled = slots_put(page) ? -1 : page_settle(page);
	settle_args_fini(&page->args);
	return settled;
}

/* As slots_settle(). */
static int pages_run(struct page *page, struct resend_pass *pass, int64_t until_ms)
{
	char key[COUPON_KEY_SIZE];
	int64_t settled;

	coupon_key(page->coupon, COUPON_KEY_USERS, key);
	do {
		redisReply *reply;

		if (keeper_context_goes_on(page->context))
			return -1;
		reply = redis_client_hscan(page->context->redis, key, pass->cursor, SCAN_COUNT);
		if (!reply)
			return redis_client_is_open(page->context->redis) ? 1 : -1;
		settled = page_run(page, reply->element[1]);
		freeReplyObject(reply);
		if (settled < 0)
			return keeper_context_failed(page->context) ? -1 : 1;
		pass->sent += settled;
	} while (strcmp(pass->cursor, "0") != 0 && clock_monotonic_ms() < until_ms);
	return strcmp(pass->cursor, "0") == 0;
}

int slots_settle(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look, struct resend_pass *pass, int64_t until_ms)
{
	struct page page = { .context = context, .coupon = row->id, .look = look };
	int rc = pages_run(&page, pass, until_ms);

	slots_fini(&page.slots);
	return rc;
}

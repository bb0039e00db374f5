/*
 *	hold.lua of all ─▶ one statement opens the generations ─▶ one stores the numbers that only
 *	Redis has ─▶ one snapshot of PostgreSQL ─▶ fill.lua of all ─▶ place.lua of all
 *
 * A coupon drops out at any step and is left as an interrupted rebuild leaves it. Redis has nothing
 * of them in flight: neither users nor an outbox.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "embed.h"
#include "keeper/rebuild/fill.h"
#include "keeper/rebuild/place.h"
#include "keeper/rebuild/rebuild.h"
#include "keeper/coupon_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A coupon that has not dropped out. */
struct entry {
	struct page_coupon *coupon;
	int64_t generation;
	struct coupon_row now; /* in the snapshot */
	int64_t late;
	int rows_first, rows_n; /* of the user coupons */
	struct generations older;
	int pieces; /* filled */
	int is_out;
};

struct page {
	struct keeper_context *context;
	char fence[KEEPER_FENCE_SIZE];
	struct entry entries[KEEPER_PAGE];
	size_t n;
	PGresult *rows;
	int64_t begun_ms;
};

/* Removes the entries that are out. 0, or -1: none is left, or the keeper must not go on. */
static int page_sift(struct page *page)
{
	size_t n = 0;

	for (size_t i = 0; i < page->n; i++)
		if (!page->entries[i].is_out)
			page->entries[n++] = page->entries[i];
		else
			generations_fini(&page->entries[i].older);
	page->n = n;
	return n > 0 ? keeper_context_goes_on(page->context) : -1;
}

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static PGresult *ids_query(struct page *page, const char *sql)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 };
	PGresult *result;

	for (size_t i = 0; i < page->n; i++)
		postgres_array_add_number(&ids, page->entries[i].coupon->row.id);
	result = keeper_database_query(page->context->database, sql,
				       POSTGRES_ARGUMENTS(postgres_array(&ids)));
	postgres_array_fini(&ids);
	return result;
}

/* Holds the coupons of which Redis has neither users nor an outbox. 0, or -1. */
static int all_hold(struct page *page)
{
	struct keeper_context *context = page->context;
	char word[REDIS_WORD_SIZE];
	int fenced = 0;

	redis_client_prepare(context->redis, lua_hold);
	keeper_context_fence(context, page->fence); /* may ask Redis: not between these commands */
	for (size_t i = 0; i < page->n; i++) {
		const struct page_coupon *coupon = page->entries[i].coupon;
		const int64_t id = coupon->row.id;
		char keys[2][COUPON_KEY_SIZE];
		const char *exists[] = { "EXISTS", coupon_key(id, COUPON_KEY_USERS, keys[0]),
					 coupon_key(id, COUPON_KEY_OUTBOX, keys[1]) };

		rebuild_hold_append(context, &coupon->row, coupon->is_load ? 0 : REBUILD_REPORTS_MS,
				    page->fence);
		redis_client_append(context->redis, 3, exists);
	}
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		redisReply *remains;

		redis_word_take(redis_client_next(context->redis), word);
		remains = redis_client_next(context->redis);
		fenced |= strcmp(word, "fenced") == 0;
		if (strcmp(word, "early") == 0)
			entry->coupon->state = PAGE_WAITS;
		entry->is_out = strcmp(word, "held") != 0 || !remains ||
				remains->type != REDIS_REPLY_INTEGER || remains->integer != 0;
		freeReplyObject(remains);
	}
	if (fenced)
		return keeper_context_fenced(context);
	return page_sift(page);
}

/* Opens a new generation of each. 0, or -1. */
static int generations_open(struct page *page)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 }, expected = { .type = POSTGRES_INT4 },
			      redis = { .type = POSTGRES_INT4 };
	PGresult *result;

	for (size_t i = 0; i < page->n; i++) {
		postgres_array_add_number(&ids, page->entries[i].coupon->row.id);
		postgres_array_add_number(&expected, page->entries[i].coupon->row.generation);
		postgres_array_add_number(&redis, page->entries[i].coupon->redis_generation);
	}
	result = keeper_database_query(page->context->database, sql_query_rebuild_page_open,
				       POSTGRES_ARGUMENTS(postgres_array(&ids),
							  postgres_array(&expected),
							  postgres_array(&redis),
							  postgres_number(page->context->fence)));
	postgres_array_fini(&ids);
	postgres_array_fini(&expected);
	postgres_array_fini(&redis);
	if (!result)
		return -1;
	check(PQntuples(result) == (int)page->n);
	for (size_t i = 0; i < page->n; i++) {
		page->entries[i].generation = number_at(result, (int)i, 1);
		page->entries[i].is_out = PQgetisnull(result, (int)i, 1);
	}
	PQclear(result);
	return page_sift(page);
}

/* Of a result that is ordered by coupon: how many rows from `from` on are this coupon's. */
static int rows_of_coupon(const PGresult *result, int from, int64_t coupon)
{
	int to = from;

	while (to < PQntuples(result) && number_at(result, to, 0) == coupon)
		to++;
	return to - from;
}

static int coupons_read(struct page *page)
{
	PGresult *result = ids_query(page, sql_query_rebuild_coupon);

	if (!result)
		return -1;
	for (size_t i = 0, row = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		if (!rows_of_coupon(result, (int)row, entry->coupon->row.id)) {
			entry->is_out = 1;
			continue;
		}
		coupon_row_read(result, (int)row, &entry->now);
		entry->late = number_at(result, (int)row, 17);
		entry->is_out = entry->now.revocation > 0 ||
				entry->now.generation != entry->generation ||
				/* these terms are not kept yet */
				entry->now.version > entry->coupon->row.version;
		row++;
	}
	PQclear(result);
	return page_sift(page);
}

static int older_read(struct page *page)
{
	PGresult *result = ids_query(page, sql_query_rebuild_page_generations);
	int row = 0;

	if (!result)
		return -1;
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		for (int n = rows_of_coupon(result, row, entry->now.id); n > 0; n--, row++)
			generation_add_row(&entry->older, result, row, 1);
	}
	PQclear(result);
	return 0;
}

static int users_read(struct page *page)
{
	int at = 0;

	page->rows = ids_query(page, sql_query_rebuild_page_rows);
	if (!page->rows)
		return -1;
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		entry->rows_first = at;
		entry->rows_n = rows_of_coupon(page->rows, at, entry->now.id);
		at += entry->rows_n;
	}
	return 0;
}

/* Reads all that PostgreSQL has of them, in one snapshot. 0, or -1. */
static int snapshot_read(struct page *page)
{
	struct keeper_database *database = page->context->database;
	int rc = keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) ||
				 coupons_read(page) || older_read(page) || users_read(page)
			 ? -1
			 : 0;

	/* No effect on a dropped connection. */
	keeper_database_run(database, sql_query_rebuild_end, 0, NULL);
	return rc;
}

/* Appends one piece of a coupon's rows. 0, or -1: a row is malformed. */
static int rows_append(struct page *page, const struct entry *entry, int first, int n)
{
	char records[FILL_PIECE][SLOT_RECORD_SIZE];
	struct piece piece = { .coupon = entry->now.id,
			       .generation = entry->generation,
			       .what = entry->now.limit == 1 ? FILL_SINGLE : FILL_ISSUED,
			       .room = entry->rows_n,
			       .past = first - entry->rows_first,
			       .words_n = 2 * n };

	for (int i = 0; i < n; i++) {
		struct slot slot;

		if (slot_of_row(&slot, page->rows, first + i, 1))
			return -1; /* rebuild_run() logs it */
		piece.words[2 * i] = PQgetvalue(page->rows, first + i, 1);
		piece.words[2 * i + 1] = slot_record_format(&slot, records[i]);
	}
	piece_append(page->context->redis, &piece, page->fence);
	return 0;
}

/* Fills the rows of all under temporary names. 0, or -1. */
static int all_fill(struct page *page)
{
	redis_client_prepare(page->context->redis, lua_fill);
	keeper_context_fence(page->context, page->fence);
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		for (int at = 0; at < entry->rows_n && !entry->is_out; at += FILL_PIECE) {
			int left = entry->rows_n - at;

			entry->is_out = rows_append(page, entry, entry->rows_first + at,
						    left < FILL_PIECE ? left : FILL_PIECE) != 0;
			entry->pieces += !entry->is_out;
		}
	}
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		int64_t left = entry->rows_n;

		for (int piece = 0; piece < entry->pieces; piece++) {
			int64_t added = piece_take(redis_client_next(page->context->redis));

			left -= added > 0 ? added : 0;
		}
		entry->is_out |= left != 0;
	}
	return page_sift(page);
}

static void placed(struct page *page, struct entry *entry, const redisReply *reply)
{
	struct page_coupon *coupon = entry->coupon;

	if (coupon->is_load) {
		keeper_context_event_is_new(page->context, entry->now.id, "loaded");
		log_info("coupon_loaded", LOG_I("coupon", entry->now.id),
			 LOG_I("generation", entry->generation),
			 LOG_I("stock", reply->element[1]->integer),
			 LOG_S("status", coupon_status_text(entry->now.status)));
	} else {
		rebuild_placed_log(entry->now.id, entry->generation, entry->rows_n, reply,
				   "missing", clock_monotonic_ms() - page->begun_ms);
	}
	coupon->row = entry->now;
	coupon->state = PAGE_DONE;
}

/* Puts the coupons in place. 0, or -1. */
static int all_place(struct page *page)
{
	int fenced = 0;

	fault_point(FAULT_PAGE_FILLED);
	redis_client_prepare(page->context->redis, lua_place);
	keeper_context_fence(page->context, page->fence);
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		const struct placing placing = { .row = &entry->now,
						 .generation = entry->generation,
						 .issued = entry->rows_n,
						 .late = entry->late,
						 .older = &entry->older };

		entry->is_out = place_append(page->context, &placing, page->fence) != 0;
	}
	for (size_t i = 0; i < page->n; i++) {
		redisReply *reply;
		char word[REDIS_WORD_SIZE];

		if (page->entries[i].is_out)
			continue;
		reply = redis_client_next(page->context->redis);
		if (place_is_done(reply)) {
			placed(page, &page->entries[i], reply);
			freeReplyObject(reply);
			continue;
		}
		redis_word_take(reply, word);
		log_warn("rebuild_refused", LOG_I("coupon", page->entries[i].now.id),
			 LOG_S("why", *word ? word : "error"));
		fenced |= strcmp(word, "fenced") == 0;
	}
	fault_point(FAULT_PAGE_PLACED);
	return fenced ? keeper_context_fenced(page->context) : 0;
}

static int all_do(struct page *page)
{
	int64_t ids[KEEPER_PAGE];

	if (all_hold(page))
		return -1;
	fault_point(FAULT_PAGE_HELD);
	if (generations_open(page))
		return -1;
	fault_point(FAULT_PAGE_OPENED);
	for (size_t i = 0; i < page->n; i++)
		ids[i] = page->entries[i].coupon->row.id;
	return rebuild_seen(page->context, ids, page->n) || snapshot_read(page) || all_fill(page)
		       ? -1
		       : all_place(page);
}

int page_rebuild(struct keeper_context *context, struct page_coupon *coupons, size_t n)
{
	struct page *page = calloc(1, sizeof(*page));

	check(page != NULL && n <= KEEPER_PAGE);
	page->context = context;
	page->begun_ms = clock_monotonic_ms();
	for (; page->n < n; page->n++)
		page->entries[page->n].coupon = &coupons[page->n];
	all_do(page);
	redis_client_prepared_end(context->redis);
	PQclear(page->rows);
	for (size_t i = 0; i < page->n; i++)
		generations_fini(&page->entries[i].older);
	free(page);
	return keeper_context_usable(context);
}

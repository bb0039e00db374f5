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
#include "embed.h"
#include "keeper/rebuild/place.h"
#include "keeper/rebuild/rebuild.h"

#include <stdlib.h>
#include <string.h>

/* A coupon that has not dropped out. */
struct entry {
	struct coupon_row *row; /* as it was read; when it is done, as it is after that */
	const struct coupon_look *look;
	enum page_state *state;
	struct placing placing;
	struct snapshot now;
	int rows_first; /* of the user coupons, `placing.issued` of them */
	int pieces;     /* filled */
	int is_out;
};

struct page {
	struct keeper_context *context;
	struct entry entries[KEEPER_PAGE];
	int64_t ids[KEEPER_PAGE];
	size_t n;
	PGresult *rows;
};

/* Removes the entries that are out. 0, or -1: none is left, or the keeper must not go on. */
static int page_sift(struct page *page)
{
	size_t n = 0;

	for (size_t i = 0; i < page->n; i++) {
		page->ids[n] = page->ids[i];
		if (!page->entries[i].is_out)
			page->entries[n++] = page->entries[i];
		else
			generations_fini(&page->entries[i].now.generations);
	}
	page->n = n;
	return n > 0 ? keeper_context_goes_on(page->context) : -1;
}

/* Holds the coupons of which Redis has neither users nor an outbox. 0, or -1. */
static int all_hold(struct page *page)
{
	struct keeper_context *context = page->context;
	char word[REDIS_WORD_SIZE];

	redis_client_prepare(context->redis, lua_hold);
	keeper_context_fence(context);
	for (size_t i = 0; i < page->n; i++) {
		const struct entry *entry = &page->entries[i];
		const int64_t id = page->ids[i];
		char keys[2][COUPON_KEY_SIZE];
		const char *exists[] = { "EXISTS", coupon_key(id, COUPON_KEY_USERS, keys[0]),
					 coupon_key(id, COUPON_KEY_OUTBOX, keys[1]) };

		/* No gateway can report anything of one that is loaded for the first time. */
		rebuild_hold_append(context, entry->row,
				    entry->placing.why ? REBUILD_REPORTS_MS : 0);
		redis_client_append(context->redis, 3, exists);
	}
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		redisReply *remains;

		keeper_context_next(context, word);
		remains = redis_client_next(context->redis);
		if (strcmp(word, "early") == 0)
			*entry->state = PAGE_WAITS;
		entry->is_out = strcmp(word, "held") != 0 || !remains ||
				remains->type != REDIS_REPLY_INTEGER || remains->integer != 0;
		freeReplyObject(remains);
	}
	return context->fenced ? -1 : page_sift(page);
}

/* Opens a new generation of each. 0, or -1. */
static int generations_open(struct page *page)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 }, expected = { .type = POSTGRES_INT4 },
			      redis = { .type = POSTGRES_INT4 };
	PGresult *result;

	for (size_t i = 0; i < page->n; i++) {
		postgres_array_add_number(&ids, page->ids[i]);
		postgres_array_add_number(&expected, page->entries[i].row->generation);
		postgres_array_add_number(&redis, page->entries[i].look->generation);
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
		page->entries[i].placing.generation = number_at(result, (int)i, 1);
		page->entries[i].is_out = PQgetisnull(result, (int)i, 1);
	}
	PQclear(result);
	return page_sift(page);
}

/* Finds the rows of each coupon, which are in their order. */
static void rows_take(struct page *page)
{
	int user = 0;

	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		const struct coupon_row *now = &entry->now.row; /* all zero: it is gone */

		entry->rows_first = user;
		while (user < PQntuples(page->rows) &&
		       number_at(page->rows, user, 0) == page->ids[i])
			user++;
		entry->placing.issued = user - entry->rows_first;
		entry->is_out = now->revocation > 0 ||
				now->generation != entry->placing.generation ||
				now->version > entry->row->version; /* its terms are not kept yet */
	}
}

/* Reads all that PostgreSQL has of them, in one snapshot. 0, or -1. */
static int snapshot_read(struct page *page)
{
	struct keeper_database *database = page->context->database;
	struct snapshot *list[KEEPER_PAGE];

	for (size_t i = 0; i < page->n; i++)
		list[i] = &page->entries[i].now;
	if (keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) == 0 &&
	    snapshots_read(page->context, database, list, page->ids, page->n) == 0)
		page->rows = keeper_database_coupons(database, sql_query_rebuild_page_rows,
						     page->ids, page->n);
	/* No effect on a dropped connection. */
	keeper_database_run(database, sql_query_rebuild_end, 0, NULL);
	if (!page->rows)
		return -1;
	rows_take(page);
	return page_sift(page);
}

/* Appends one piece of a coupon's rows. 0, or -1: a row is malformed. */
static int rows_append(struct page *page, const struct entry *entry, int first, int n)
{
	char records[FILL_PIECE][SLOT_RECORD_SIZE];
	struct piece piece = { .coupon = entry->now.row.id,
			       .generation = entry->placing.generation,
			       .what = entry->now.row.limit == 1 ? FILL_SINGLE : FILL_ISSUED,
			       .room = entry->placing.issued,
			       .past = first - entry->rows_first,
			       .words_n = 2 * n };

	for (int i = 0; i < n; i++) {
		struct slot slot;

		if (slot_of_row(&slot, page->rows, first + i, 1))
			return -1; /* rebuild_run() logs it */
		piece.words[2 * i] = PQgetvalue(page->rows, first + i, 1);
		piece.words[2 * i + 1] = slot_record_format(&slot, records[i]);
	}
	piece_append(page->context->redis, &piece, page->context->fence_text);
	return 0;
}

/* Fills the rows of all under temporary names. 0, or -1. */
static int all_fill(struct page *page)
{
	redis_client_prepare(page->context->redis, lua_fill);
	keeper_context_fence(page->context);
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		for (int at = 0; at < entry->placing.issued && !entry->is_out; at += FILL_PIECE) {
			int left = (int)entry->placing.issued - at;

			entry->is_out = rows_append(page, entry, entry->rows_first + at,
						    left < FILL_PIECE ? left : FILL_PIECE) != 0;
			entry->pieces += !entry->is_out;
		}
	}
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		int64_t left = entry->placing.issued;

		for (int piece = 0; piece < entry->pieces; piece++) {
			int64_t added = piece_take(redis_client_next(page->context->redis));

			left -= added > 0 ? added : 0;
		}
		entry->is_out |= left != 0;
	}
	return page_sift(page);
}

/* Puts the coupons in place. */
static void all_place(struct page *page)
{
	fault_point(FAULT_PAGE_FILLED);
	redis_client_prepare(page->context->redis, lua_place);
	keeper_context_fence(page->context);
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];

		entry->is_out = place_append(page->context, &entry->now, &entry->placing) != 0;
	}
	for (size_t i = 0; i < page->n; i++) {
		struct entry *entry = &page->entries[i];
		redisReply *reply;
		char word[REDIS_WORD_SIZE];

		if (entry->is_out)
			continue;
		reply = redis_client_next(page->context->redis);
		if (place_is_done(page->context, &entry->now, &entry->placing, reply, word)) {
			*entry->row = entry->now.row;
			*entry->state = PAGE_DONE;
		}
		freeReplyObject(reply);
		if (strcmp(word, "fenced") == 0)
			keeper_context_fenced(page->context);
	}
	fault_point(FAULT_PAGE_PLACED);
}

static void all_do(struct page *page)
{
	if (all_hold(page))
		return;
	fault_point(FAULT_PAGE_HELD);
	if (generations_open(page))
		return;
	fault_point(FAULT_PAGE_OPENED);
	if (rebuild_seen(page->context, page->ids, page->n) == 0 && snapshot_read(page) == 0 &&
	    all_fill(page) == 0)
		all_place(page);
}

int page_rebuild(struct keeper_context *context, struct coupon_page *coupons)
{
	struct page *page = checked(calloc(1, sizeof(*page)));

	page->context = context;
	for (size_t i = 0; i < coupons->n; i++) {
		const struct coupon_row *row = &coupons->rows[i];
		const struct coupon_look *look = &coupons->looks[i];

		if (coupons->states[i] != PAGE_CHOSEN)
			continue;
		coupons->states[i] = PAGE_LEFT;
		page->ids[page->n] = row->id;
		page->entries[page->n++] = (struct entry){
			.row = &coupons->rows[i],
			.look = look,
			.state = &coupons->states[i],
			.placing = { .why = look->present || row->generation > 0 ? "missing" : NULL,
				     .begun_ms = clock_monotonic_ms() },
		};
	}
	all_do(page);
	redis_client_prepared_end(context->redis);
	PQclear(page->rows);
	for (size_t i = 0; i < page->n; i++)
		generations_fini(&page->entries[i].now.generations);
	free(page);
	return keeper_context_usable(context);
}

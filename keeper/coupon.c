#include "keeper/coupon.h"

#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/rebuild/place.h"
#include "keeper/rebuild/rebuild.h"
#include "keeper/stores.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Loads a coupon for the first time: none of its receives is issued or in flight, so place.lua
 * computes the stock from the total alone.
 */
static int load(struct keeper_context *context, const struct coupon_row *row)
{
	struct placing placing = { .row = row };
	char word[REDIS_WORD_SIZE];

	if (rebuild_hold(context, row, 0) || place_generation(context, row, 0, &placing.generation))
		return keeper_context_failed(context);
	if (placing.generation == 0)
		return keeper_context_fenced(context);
	fault_point(FAULT_KEEPER_AFTER_GENERATION);
	/* Not from the row, which was read before the hold: then a revocation leaves no trace. */
	if (codes_fill_more(context, row->id, placing.generation, &placing.revocation))
		return keeper_context_failed(context);
	redis_word_take(place_run(context, &placing), word);
	if (strcmp(word, "placed") == 0) {
		keeper_context_event_is_new(context, row->id, "loaded");
		log_info("coupon_loaded", LOG_I("coupon", row->id),
			 LOG_I("generation", placing.generation), LOG_I("stock", row->total),
			 LOG_S("status", coupon_status_text(row->status)));
	}
	return keeper_context_word(context, word);
}

/*
 * PostgreSQL was restored to an earlier state and Redis has later data. An operator must decide
 * which is valid.
 */
static void foreign(struct keeper_context *context, const struct coupon_row *row,
		    const struct coupon_look *look)
{
	if (keeper_context_event_is_new(context, row->id, "foreign"))
		log_error("coupon_foreign", LOG_I("coupon", row->id),
			  LOG_I("generation", row->generation),
			  LOG_I("redis_generation", look->generation));
}

/*
 * Redis has lost data: not before gateways have reported the highest numbers that they have seen,
 * so that the rebuild gives neither their stock nor their slots out again.
 */
static int rebuild_lost(struct keeper_context *context, const struct coupon_row *row,
			const struct coupon_look *look, const char *why)
{
	int rc = rebuild_hold(context, row, REBUILD_REPORTS_MS);

	if (rc == 0)
		return rebuild_run(context, row, look, why);
	return rc > 0 ? 0 : keeper_context_failed(context);
}

static void verified(struct keeper_context *context, const struct coupon_row *row)
{
	keeper_context_event_is_new(context, row->id, "verified");
	log_info("coupon_verified", LOG_I("coupon", row->id), LOG_I("generation", row->generation));
}

/* As place_verify(). */
static int verify_some(struct keeper_context *context, const struct coupon_row *const *rows,
		       size_t n, char (*words)[REDIS_WORD_SIZE])
{
	int rc;

	fault_point(FAULT_KEEPER_BEFORE_VERIFY);
	rc = place_verify(context, rows, n, words);
	if (rc == 0)
		fault_point(FAULT_KEEPER_AFTER_VERIFY);
	return rc;
}

static int verify(struct keeper_context *context, const struct coupon_row *row,
		  const struct coupon_look *look)
{
	char word[REDIS_WORD_SIZE];

	if (!context->may_open)
		return 0;
	if (verify_some(context, &row, 1, &word))
		return keeper_context_failed(context);
	if (strcmp(word, "behind") == 0)
		return rebuild_lost(context, row, look, "behind");
	if (strcmp(word, "verified") == 0)
		verified(context, row);
	return keeper_context_word(context, word);
}

int keeper_coupon_is_kept(const struct coupon_row *row, const struct coupon_look *look)
{
	return look->kept_version >= row->version ||
	       (row->status == COUPON_CLOSED && !look->present);
}

/* The rows of those of the page that are not kept yet, as of sql_query_coupon_terms. */
static PGresult *unkept_read(struct keeper_context *context, const struct coupon_page *page)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 };
	const struct postgres_argument argument = postgres_array(&ids);
	PGresult *result = NULL;

	for (size_t i = 0; i < page->n; i++)
		if (!page->skip[i] && !keeper_coupon_is_kept(&page->rows[i], &page->looks[i]))
			postgres_array_add_number(&ids, page->rows[i].id);
	if (ids.n > 0)
		result = keeper_database_query(context->database, sql_query_coupon_terms, 1,
					       &argument);
	postgres_array_fini(&ids);
	return result;
}

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static void kept_set(struct coupon_page *page, int64_t coupon, int64_t version)
{
	for (size_t i = 0; i < page->n; i++)
		if (page->rows[i].id == coupon)
			page->looks[i].kept_version = version;
}

/*
 * Keeps the coupons' rows in Redis when their terms have changed, and says so in `looks`: what
 * Redis accepts receives for can be made anew if PostgreSQL is put back to an earlier moment. The
 * numbers of their transactions are copied before, so that this is noticed. What is not kept is put
 * off. 0, or -1.
 */
static int page_keep(struct keeper_context *context, struct coupon_page *page)
{
	char fence[KEEPER_FENCE_SIZE], key[COUPON_KEY_SIZE], word[REDIS_WORD_SIZE];
	PGresult *rows = unkept_read(context, page);
	int n = PQntuples(rows), fenced = 0;

	if (n > 0 && keeper_stores_copy(context)) {
		PQclear(rows);
		return -1;
	}
	if (n > 1)
		redis_client_prepare(context->redis, lua_keep_terms);
	if (n > 0)
		keeper_context_fence(context, fence); /* may ask Redis: not between the commands */
	for (int i = 0; i < n; i++) {
		const char *keys[] = { coupon_key(number_at(rows, i, 0), COUPON_KEY_TERMS, key) };
		const char *argv[] = { fence, PQgetvalue(rows, i, 1), PQgetvalue(rows, i, 2) };

		redis_client_append_eval(context->redis, lua_keep_terms, 1, keys, 3, argv);
	}
	for (int i = 0; i < n; i++) {
		redis_word_take(redis_client_next(context->redis), word);
		fenced |= strcmp(word, "fenced") == 0;
		if (strcmp(word, "kept") == 0 || strcmp(word, "current") == 0)
			kept_set(page, number_at(rows, i, 0), number_at(rows, i, 1));
	}
	redis_client_prepared_end(context->redis);
	PQclear(rows);
	return fenced ? keeper_context_fenced(context) : keeper_context_usable(context);
}

/* Whether the coupon needs nothing but to be verified. */
static int is_only_unverified(const struct keeper_context *context, const struct coupon_row *row,
			      const struct coupon_look *look)
{
	return coupon_action(row, look, context->run_id) == COUPON_VERIFY &&
	       row->version <= look->version && keeper_coupon_is_kept(row, look);
}

/* Verifies together those of a page that need nothing else, and says so in `looks`. 0, or -1. */
static int page_verify(struct keeper_context *context, struct coupon_page *page)
{
	const struct coupon_row *list[KEEPER_PAGE];
	char words[KEEPER_PAGE][REDIS_WORD_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < page->n && context->may_open; i++)
		if (!page->skip[i] && is_only_unverified(context, &page->rows[i], &page->looks[i]))
			list[n++] = &page->rows[i];
	if (n < 2) /* keeper_coupon_step() does one */
		return 0;
	if (verify_some(context, list, n, words))
		return keeper_context_usable(context);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(words[i], "fenced") == 0)
			return keeper_context_fenced(context);
		if (strcmp(words[i], "verified") != 0)
			continue;
		verified(context, list[i]);
		memcpy(page->looks[list[i] - page->rows].run_id, context->run_id,
		       sizeof(context->run_id));
	}
	return keeper_context_usable(context);
}

static int terms(struct keeper_context *context, const struct coupon_row *row)
{
	char version[NUMBER_SIZE], total[NUMBER_SIZE], begin[NUMBER_SIZE], end[NUMBER_SIZE],
		limit[NUMBER_SIZE], fence[KEEPER_FENCE_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[7] = {
		number_text(row->version, version),  coupon_status_text(row->status),
		number_text(row->total, total),      number_text(row->begin_ms, begin),
		number_text(row->end_ms, end),       number_text(row->limit, limit),
		keeper_context_fence(context, fence)
	};

	fault_point(FAULT_KEEPER_BEFORE_TERMS);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_terms, row->id,
						 COUPON_KEYS_ISSUE, 7, argv),
			word);
	if (strcmp(word, "applied") == 0) {
		keeper_context_event_is_new(context, row->id, "terms");
		log_info("coupon_terms", LOG_I("coupon", row->id), LOG_I("version", row->version),
			 LOG_S("status", coupon_status_text(row->status)),
			 LOG_I("total", row->total));
	} else if (strcmp(word, "taken") == 0 &&
		   keeper_context_event_is_new(context, row->id, "taken")) {
		log_error("coupon_terms_refused", LOG_I("coupon", row->id),
			  LOG_I("version", row->version), LOG_I("total", row->total),
			  LOG_S("why", "more is taken than the new total"));
	}
	return keeper_context_word(context, word);
}

/* New terms first: a coupon must not be opened under terms that changed while Redis was down. */
static int terms_and_verify(struct keeper_context *context, const struct coupon_row *row,
			    const struct coupon_look *look)
{
	if (look->generation == row->generation && row->version > look->version &&
	    terms(context, row))
		return -1;
	return verify(context, row, look);
}

/* What Redis has lost or miscounted. */
static const char *rebuild_why(const struct coupon_row *row, const struct coupon_look *look)
{
	if (!look->present)
		return "missing";
	if (look->placeholder || look->generation < row->generation)
		return "unfinished";
	if (look->flagged)
		return "flagged";
	return look->reported > look->seq ? "behind" : "asked";
}

/* Stores in PostgreSQL the numbers that gateways reported to Redis after a rebuild. */
static int keep(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look)
{
	if (!look->present || look->broken ||
	    !keeper_context_reserved_changed(context, row->id, look->reserved) ||
	    look->reserved == 0)
		return 0;
	if (rebuild_seen(context, &row->id, 1) == 0)
		return 0;
	keeper_context_reserved_changed(context, row->id, 0); /* not stored yet */
	return keeper_context_failed(context);
}

static int rebuild(struct keeper_context *context, const struct coupon_row *row,
		   const struct coupon_look *look)
{
	const char *why = rebuild_why(row, look);

	if (!context->may_open || rebuild_big_waits(context, row))
		return 0;
	if (strcmp(why, "flagged") == 0 || strcmp(why, "asked") == 0)
		return rebuild_run(context, row, look, why);
	return rebuild_lost(context, row, look, why);
}

/* Whether page_rebuild() can do what the coupon needs. */
static int is_of_page(const struct keeper_context *context, const struct coupon_row *row,
		      const struct coupon_look *look)
{
	enum coupon_action action = coupon_action(row, look, context->run_id);

	if (!keeper_coupon_is_kept(row, look) || look->broken || look->users_present ||
	    look->outbox_n > 0 || (look->present && !look->placeholder) ||
	    row->status == COUPON_CLOSED || row->issued > PAGE_ROWS_EACH || row->revocation > 0 ||
	    coupon_rebuild_is_due(row))
		return 0;
	return action == COUPON_LOAD || (action == COUPON_REBUILD && context->may_open);
}

/* Takes over what became of the coupons of a page, whose rows are in the same order. */
static size_t rebuilt_take(const struct page_coupon *list, size_t n, struct coupon_page *page,
			   enum page_state *states)
{
	size_t done = 0, i = 0;

	for (size_t j = 0; j < n; j++, i++) {
		while (page->rows[i].id != list[j].row.id)
			i++;
		states[i] = list[j].state;
		if (list[j].state != PAGE_DONE)
			continue;
		page->rows[i] = list[j].row;
		done++;
	}
	return done;
}

/* Loads and rebuilds together those of a page that page_rebuild() can do. 0, or -1. */
static int page_fill(struct keeper_context *context, struct coupon_page *page,
		     enum page_state *states)
{
	struct page_coupon list[KEEPER_PAGE];
	size_t n = 0;
	int64_t issued = 0;

	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];

		states[i] = PAGE_LEFT;
		if (page->skip[i] || !is_of_page(context, row, look) ||
		    issued + row->issued > PAGE_ROWS_ALL)
			continue;
		issued += row->issued;
		list[n++] = (struct page_coupon){ .row = *row,
						  .redis_generation = look->generation,
						  .is_load = !look->present &&
							     row->generation == 0 };
	}
	if (n < 2) /* keeper_coupon_step() does one */
		return 0;
	if (page_rebuild(context, list, n))
		return -1;
	if (rebuilt_take(list, n, page, states) == 0)
		return 0;
	return coupon_page_look(page, context->redis);
}

int keeper_coupons_step(struct keeper_context *context, struct coupon_page *page,
			enum page_state states[KEEPER_PAGE])
{
	return page_keep(context, page) || page_verify(context, page) ||
			       page_fill(context, page, states)
		       ? -1
		       : 0;
}

int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look)
{
	switch (coupon_action(row, look, context->run_id)) {
	case COUPON_KEEP:
		return keep(context, row, look);
	case COUPON_LOAD:
		return load(context, row);
	case COUPON_REBUILD:
		return rebuild(context, row, look);
	case COUPON_COMPARE:
		return context->may_open && !rebuild_big_waits(context, row)
			       ? compare_run(context, row, look)
			       : 0;
	case COUPON_VERIFY:
		return terms_and_verify(context, row, look);
	case COUPON_FOREIGN:
		foreign(context, row, look);
		return 0;
	case COUPON_REVOKE:
		return codes_revoke(context, row, look) ? keeper_context_failed(context) : 0;
	case COUPON_TERMS:
		return terms(context, row);
	}
	return 0;
}

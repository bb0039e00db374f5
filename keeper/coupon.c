#include "keeper/coupon.h"

#include "common/fault.h"
#include "common/log/log.h"
#include "coupon/redis_coupon.h"
#include "embed.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/place.h"
#include "keeper/keeper_stores.h"

#include <string.h>

int keeper_coupons_look(struct keeper_context *context, struct coupon_page *page)
{
	const struct coupon_row *old[KEEPER_PAGE]; /* those with a lower fence */
	const char *fence = context->fence_text;
	char word[REDIS_WORD_SIZE];
	size_t n = 0;

	if (keeper_lock_hold(context) || coupon_page_look(page, context->redis))
		return -1;
	for (size_t i = 0; i < page->n; i++)
		if (page->looks[i].present && !page->looks[i].broken &&
		    page->looks[i].fence < context->fence)
			old[n++] = &page->rows[i];
	keeper_context_fence(context);
	for (size_t i = 0; i < n; i++)
		redis_client_append_coupon_eval(context->redis, lua_fence, old[i]->id,
						COUPON_KEYS_ISSUE, 1, &fence);
	for (size_t i = 0; i < n; i++)
		keeper_context_next(context, word);
	return context->fenced || !redis_client_is_open(context->redis) ? -1 : 0;
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

/* Whether the row is kept in Redis. Before that nothing else is done in Redis. */
static int is_kept(const struct coupon_row *row, const struct coupon_look *look)
{
	return look->kept_version >= row->version ||
	       (row->status == COUPON_CLOSED && !look->present);
}

/*
 * Keeps the coupons' rows in Redis when their terms have changed, and says so in `looks`: what
 * Redis accepts receives for can be made anew if PostgreSQL is put back to an earlier moment. The
 * numbers of their transactions are copied before, so that this is noticed. What is not kept is put
 * off. 0, or -1.
 */
static int page_keep(struct keeper_context *context, struct coupon_page *page)
{
	char key[COUPON_KEY_SIZE], word[REDIS_WORD_SIZE];
	int64_t ids[KEEPER_PAGE];
	PGresult *rows = NULL;
	size_t ids_n = 0;
	int n;

	for (size_t i = 0; i < page->n; i++)
		if (page->states[i] == PAGE_LEFT && !is_kept(&page->rows[i], &page->looks[i]))
			ids[ids_n++] = page->rows[i].id;
	if (ids_n > 0)
		rows = keeper_database_coupons(context->database, sql_query_coupon_terms, ids,
					       ids_n);
	n = PQntuples(rows);
	if (n > 0 && keeper_stores_copy(context)) {
		PQclear(rows);
		return -1;
	}
	if (n > 1)
		redis_client_prepare(context->redis, lua_keep_terms);
	if (n > 0)
		keeper_context_fence(context);
	for (int i = 0; i < n; i++) {
		const char *keys[] = { coupon_key(number_at(rows, i, 0), COUPON_KEY_TERMS, key) };
		const char *argv[] = { context->fence_text, PQgetvalue(rows, i, 1),
				       PQgetvalue(rows, i, 2) };

		redis_client_append_eval(context->redis, lua_keep_terms, 1, keys, 3, argv);
	}
	for (int i = 0; i < n; i++) {
		keeper_context_next(context, word);
		if (strcmp(word, "kept") != 0 && strcmp(word, "current") != 0)
			continue;
		for (size_t j = 0; j < page->n; j++)
			if (page->rows[j].id == number_at(rows, i, 0))
				page->looks[j].kept_version = number_at(rows, i, 1);
	}
	redis_client_prepared_end(context->redis);
	PQclear(rows);
	return keeper_context_usable(context);
}

/* Verifies together those of a page that need nothing else, and says so in `looks`. 0, or -1. */
static int page_verify(struct keeper_context *context, struct coupon_page *page)
{
	const struct coupon_row *list[KEEPER_PAGE];
	char words[KEEPER_PAGE][REDIS_WORD_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < page->n && context->may_open; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];

		if (page->states[i] == PAGE_LEFT && is_kept(row, look) &&
		    row->version <= look->version &&
		    coupon_action(row, look, context->run_id) == COUPON_VERIFY)
			list[n++] = row;
	}
	if (n < 2) /* keeper_coupon_step() does one */
		return 0;
	if (place_verify(context, list, n, words))
		return keeper_context_usable(context);
	for (size_t i = 0; i < n; i++) {
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
		limit[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[7] = {
		number_text(row->version, version), coupon_status_text(row->status),
		number_text(row->total, total),     number_text(row->begin_ms, begin),
		number_text(row->end_ms, end),      number_text(row->limit, limit),
		keeper_context_fence(context)
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
			  LOG_S("why", "more slots are taken than the new total allows"));
	}
	return keeper_context_word(context, word);
}

static int verify(struct keeper_context *context, const struct coupon_row *row,
		  const struct coupon_look *look)
{
	char word[REDIS_WORD_SIZE];

	/* New terms first: it must not be opened under terms that changed while Redis was down. */
	if (look->generation == row->generation && row->version > look->version &&
	    terms(context, row))
		return -1;
	if (!context->may_open)
		return 0;
	if (place_verify(context, &row, 1, &word))
		return keeper_context_failed(context);
	if (strcmp(word, "behind") == 0)
		return rebuild_lost(context, row, look, "behind");
	if (strcmp(word, "verified") == 0)
		verified(context, row);
	return keeper_context_word(context, word);
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
	const char *why; /* what Redis has lost or miscounted */

	if (!look->present)
		why = "missing";
	else if (look->placeholder || look->generation < row->generation)
		why = "unfinished";
	else if (look->flagged)
		why = "flagged";
	else
		why = coupon_lacks(row, look) ? "behind" : "asked";
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

	if (!is_kept(row, look) || look->broken || look->users_n > 0 || look->outbox_n > 0 ||
	    (look->present && !look->placeholder) || row->status == COUPON_CLOSED ||
	    row->issued > PAGE_ROWS_EACH || row->revocation > 0 || coupon_rebuild_is_due(row))
		return 0;
	return action == COUPON_LOAD || (action == COUPON_REBUILD && context->may_open);
}

int keeper_coupons_step(struct keeper_context *context, struct coupon_page *page)
{
	size_t n = 0, loads = 0, done = 0;
	int64_t issued = 0;

	if (page_keep(context, page) || page_verify(context, page))
		return -1;

	/* Load and rebuild together those that page_rebuild() can do. */
	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];

		if (page->states[i] != PAGE_LEFT || !is_of_page(context, row, &page->looks[i]) ||
		    issued + row->issued > PAGE_ROWS_ALL)
			continue;
		issued += row->issued;
		page->states[i] = PAGE_CHOSEN;
		n++;
		loads += coupon_action(row, &page->looks[i], context->run_id) == COUPON_LOAD;
	}
	if (n < 2 && loads == 0) {
		for (size_t i = 0; i < page->n; i++)
			if (page->states[i] == PAGE_CHOSEN)
				page->states[i] = PAGE_LEFT; /* keeper_coupon_step() rebuilds one */
		return 0;
	}
	if (page_rebuild(context, page))
		return -1;
	for (size_t i = 0; i < page->n; i++)
		done += page->states[i] == PAGE_DONE;
	return done > 0 ? coupon_page_look(page, context->redis) : 0;
}

/* The end of a campaign */

int close_due(const struct coupon_row *row, int64_t now_ms)
{
	return row->status != COUPON_CLOSED && row->end_ms > 0 &&
	       now_ms >= row->end_ms + CLOSE_GRACE_MS;
}

/*
 * Whether PostgreSQL has an outcome for every receive that Redis has accepted, by `row` and
 * `look`. Receives of older generations and slots that are not freed are checked when the coupon is
 * marked. Pure.
 */
static int close_settles(const struct coupon_row *row, const struct coupon_look *look,
			 const char *run_id)
{
	if (row->status != COUPON_CLOSED || look->broken || row->pending || row->late ||
	    coupon_rebuild_is_due(row))
		return 0;
	if (!look->present) /* never loaded; or its keys are gone, after it was settled */
		return (row->generation == 0 || row->is_settled) && look->users_n == 0 &&
		       look->outbox_n == 0;
	if (look->placeholder || look->flagged || coupon_lacks(row, look))
		return 0;
	return coupon_is_verified(row, look, run_id) && look->version >= row->version &&
	       look->seq == row->settled && row->seq_seen == row->settled && look->reserved == 0 &&
	       look->outbox_n == 0;
}

static int expiry_record(struct keeper_context *context, const struct coupon_row *row,
			 int64_t keep_ms)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(context->fence),
						       postgres_number(keep_ms) };
	int recorded, rc;

	fault_point(FAULT_KEEPER_BEFORE_EXPIRY_MARK);
	rc = keeper_context_change(context, sql_query_coupon_expires_set, 3, arguments, &recorded);
	if (rc || !recorded)
		return rc; /* not recorded: a further outcome has arrived, the next sweep checks */
	log_info("coupon_settled", LOG_I("coupon", row->id), LOG_I("issued", row->issued),
		 LOG_I("kept_ms", keep_ms));
	metrics_add(KEEPER_METRIC_SETTLED, 1);
	return 1;
}

/*
 * Marks a closed coupon as settled, if it is, and sets its keys to expire. 1 when both are done, 0
 * when other work for the coupon may be due, -1.
 */
static int close_step(struct keeper_context *context, const struct coupon_row *row,
		      const struct coupon_look *look, int64_t keep_ms)
{
	char generation[NUMBER_SIZE], settled[NUMBER_SIZE], keep[NUMBER_SIZE];
	const char *argv[] = { NULL, number_text(row->generation, generation),
			       number_text(row->settled, settled), number_text(keep_ms, keep) };
	struct postgres_array numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	struct generations generations = { 0 };
	char word[REDIS_WORD_SIZE];
	int64_t known = 0;
	redisReply *hash;
	int is_marked = 0, rc;

	if (!close_settles(row, look, context->run_id))
		return 0;
	if (look->present && coupon_known(context->redis, row->id, &known))
		return keeper_context_failed(context);
	if (known > 0)
		return 0;

	/* Mark it in PostgreSQL, which compares the older generations of Redis. */
	hash = coupon_call(context->redis, row->id, "HGETALL", COUPON_KEY_COUPON, NULL);
	if (!hash || generations_raise(&generations, hash, NULL)) {
		rc = keeper_context_failed(context);
	} else {
		generations_arrays(&generations, &numbers, &highs);
		fault_point(FAULT_KEEPER_BEFORE_SETTLED);
		rc = keeper_context_change(context, sql_query_coupon_settled_set,
					   POSTGRES_ARGUMENTS(postgres_number(row->id),
							      postgres_number(context->fence),
							      postgres_number(row->generation),
							      postgres_number(row->settled),
							      postgres_array(&numbers),
							      postgres_array(&highs)),
					   &is_marked);
	}
	freeReplyObject(hash);
	generations_fini(&generations);
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);
	if (rc || !is_marked)
		return rc;
	if (!look->present)
		return expiry_record(context, row, 0);

	/* Let its keys expire, and record that. */
	argv[0] = keeper_context_fence(context);
	fault_point(FAULT_KEEPER_BEFORE_EXPIRE);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_expire, row->id,
						 COUPON_KEYS_ALL, 4, argv),
			word);
	return strcmp(word, "expires") == 0 ? expiry_record(context, row, keep_ms)
					    : keeper_context_word(context, word);
}

int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look, int64_t now_ms, int64_t keep_ms)
{
	int closed, rc = 0;

	/* At its end it is closed in PostgreSQL. Redis receives this as new terms. */
	if (close_due(row, now_ms)) {
		fault_point(FAULT_KEEPER_BEFORE_CLOSE);
		rc = keeper_context_change(context, sql_query_coupon_ended_set,
					   POSTGRES_ARGUMENTS(postgres_number(row->id),
							      postgres_number(row->version),
							      postgres_number(context->fence)),
					   &closed);
		if (rc || !closed)
			return rc; /* the terms have changed: the next sweep uses them */
		log_info("coupon_ended", LOG_I("coupon", row->id), LOG_I("issued", row->issued),
			 LOG_I("total", row->total));
		metrics_add(KEEPER_METRIC_CLOSED, 1);
		return 0;
	}
	if (!is_kept(row, look)) {
		context->refused = 1;
		return 0;
	}
	rc = close_step(context, row, look, keep_ms);
	if (rc != 0 || context->refused)
		return rc;

	switch (coupon_action(row, look, context->run_id)) {
	case COUPON_KEEP:
		rc = keep(context, row, look);
		break;
	case COUPON_LOAD:
		rc = rebuild_run(context, row, look, NULL);
		break;
	case COUPON_REBUILD:
		rc = rebuild(context, row, look);
		break;
	case COUPON_COMPARE:
		if (context->may_open && !rebuild_big_waits(context, row))
			rc = compare_run(context, row, look);
		break;
	case COUPON_VERIFY:
		rc = verify(context, row, look);
		break;
	case COUPON_FOREIGN:
		/* PostgreSQL was put back, and Redis has later data: an operator must decide. */
		if (keeper_context_event_is_new(context, row->id, "foreign"))
			log_error("coupon_foreign", LOG_I("coupon", row->id),
				  LOG_I("generation", row->generation),
				  LOG_I("redis_generation", look->generation));
		break;
	case COUPON_REVOKE:
		if (codes_revoke(context, row, look))
			rc = keeper_context_failed(context);
		break;
	case COUPON_TERMS:
		rc = terms(context, row);
		break;
	}
	if (rc)
		return -1;
	return !look->present && row->status != COUPON_CLOSED && !context->refused;
}

#include "gateway/read/query.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(USER_ID_SIZE >= ULID_UUID_SIZE && USER_ID_SIZE >= NUMBER_SIZE,
	       "each parameter must fit");

static struct query *query_make(const char *sql, query_done_fn *done, void *context)
{
	struct query *query = calloc(1, sizeof(*query));

	check(query != NULL);
	query->sql = sql;
	query->done = done;
	query->context = context;
	query->queued_ms = clock_monotonic_ms();
	return query;
}

static char *param_next(struct query *query)
{
	check(query->params_n < QUERY_PARAMS_MAX);
	return query->params[query->params_n++];
}

static void param_number(struct query *query, int64_t number)
{
	number_text(number, param_next(query));
}

static void param_user(struct query *query, const struct user_id *user)
{
	memcpy(param_next(query), user->text, user->len + 1);
}

static void param_batch(struct query *query, const struct ulid *batch)
{
	ulid_to_uuid(batch, param_next(query));
}

static void param_null(struct query *query)
{
	query->nulls |= 1u << query->params_n;
	param_next(query);
}

struct query *query_receive(const struct receive *receive, query_done_fn *done, void *context)
{
	struct query *query = query_make(sql_query_receive_outcome, done, context);

	param_number(query, receive->coupon);
	param_user(query, &receive->user);
	param_batch(query, &receive->batch);
	param_number(query, receive->index);
	return query;
}

struct query *query_user(int64_t coupon, const struct user_id *user, query_done_fn *done,
			 void *context)
{
	struct query *query = query_make(sql_query_user_outcomes, done, context);

	param_number(query, coupon);
	param_user(query, user);
	return query;
}

struct query *query_user_coupons(const struct user_id *user, const struct coupon_cursor *after,
				 int rows_max, query_done_fn *done, void *context)
{
	struct query *query = query_make(sql_query_user_coupon_page, done, context);

	param_user(query, user);
	if (after) {
		param_number(query, after->at_us);
		param_number(query, after->coupon);
		param_number(query, after->slot);
	} else {
		for (int i = 0; i < 3; i++)
			param_null(query);
	}
	param_number(query, rows_max);
	return query;
}

struct query *query_offer(int64_t coupon, query_done_fn *done, void *context)
{
	struct query *query = query_make(sql_query_coupon_offer, done, context);

	param_number(query, coupon);
	return query;
}

struct query *query_settings(query_done_fn *done, void *context)
{
	return query_make(sql_query_durability, done, context);
}

static struct query *routine_make(const char *sql, query_done_fn *done, void *context)
{
	struct query *query = query_make(sql, done, context);

	query->is_routine = 1;
	return query;
}

struct query *query_changes(query_done_fn *done, void *context)
{
	return routine_make(sql_query_change_counts, done, context);
}

struct query *query_code_state(query_done_fn *done, void *context)
{
	return routine_make(sql_query_code_state, done, context);
}

struct query *query_code_catalogue(query_done_fn *done, void *context)
{
	return routine_make(sql_query_code_catalogue, done, context);
}

/* Its only parameter is an array of texts. */
static struct query *texts_add(struct query *query, const char *const *texts, size_t n)
{
	postgres_array_init(&query->array, POSTGRES_TEXT);
	for (size_t i = 0; i < n; i++)
		postgres_array_add_text(&query->array, texts[i], strlen(texts[i]));
	query->params_n = 1;
	return query;
}

struct query *query_code_texts(const char *const *texts, size_t n, query_done_fn *done,
			       void *context)
{
	return texts_add(query_make(sql_query_code_redeemable, done, context), texts, n);
}

struct query *query_alive(const char *id, const char *place, int is_new, query_done_fn *done,
			  void *context)
{
	const char *const texts[] = { id, place, is_new ? "true" : "false" };

	return texts_add(routine_make(sql_query_gateway_alive, done, context), texts, 3);
}

struct query *query_gone(const char *id, query_done_fn *done, void *context)
{
	return texts_add(routine_make(sql_query_gateway_gone, done, context), &id, 1);
}

void query_free(struct query *query)
{
	postgres_array_fini(&query->array);
	free(query);
}

void query_arguments(const struct query *query, struct postgres_argument out[QUERY_PARAMS_MAX])
{
	if (query->array.n > 0) {
		out[0] = postgres_array(&query->array);
		return;
	}
	for (int i = 0; i < query->params_n; i++)
		out[i] = postgres_text(query->nulls & 1u << i ? NULL : query->params[i]);
}

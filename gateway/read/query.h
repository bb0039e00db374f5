/*
 * A look-up that is a statement of its own: its text, its arguments, and who asked. Part of lookup.
 */
#ifndef GATEWAY_READ_QUERY_H
#define GATEWAY_READ_QUERY_H

#include "common/message/coupon_cursor.h"
#include "common/message/receive.h"
#include "common/postgres/argument.h"

#include <libpq-fe.h>
#include <sys/queue.h>

#define QUERY_PARAMS_MAX 5

/* The rows, lent; NULL: the look-up failed. */
typedef void query_done_fn(void *context, const PGresult *rows);

struct query {
	STAILQ_ENTRY(query) next;
	const char *sql;
	char params[QUERY_PARAMS_MAX][USER_ID_SIZE]; /* as text; the longest is a user */
	int params_n;
	unsigned nulls;              /* a bit for each parameter that is NULL */
	struct postgres_array array; /* the only parameter, if it has elements */
	int is_routine;              /* sent all the time, whatever is asked for: not counted */
	query_done_fn *done;
	void *context;
	int64_t queued_ms;
};

STAILQ_HEAD(query_list, query);

/*
 * Each makes one. The columns are those of sql_query_receive_outcome, sql_query_user_outcomes,
 * sql_query_user_coupon_page, sql_query_coupon_offer, sql_query_durability,
 * sql_query_change_counts, sql_query_code_state, sql_query_code_catalogue and
 * sql_query_code_redeemable.
 */
struct query *query_receive(const struct receive *receive, query_done_fn *done, void *context);
struct query *query_user(int64_t coupon, const struct user_id *user, query_done_fn *done,
			 void *context);
struct query *query_user_coupons(const struct user_id *user, const struct coupon_cursor *after,
				 int rows_max, query_done_fn *done, void *context);
struct query *query_offer(int64_t coupon, query_done_fn *done, void *context);
struct query *query_settings(query_done_fn *done, void *context);
struct query *query_changes(query_done_fn *done, void *context);
struct query *query_alive(const char *id, const char *place, int is_new, query_done_fn *done,
			  void *context);
struct query *query_gone(const char *id, query_done_fn *done, void *context);
struct query *query_code_state(query_done_fn *done, void *context);
struct query *query_code_catalogue(query_done_fn *done, void *context);
struct query *query_code_texts(const char *const *texts, size_t n, query_done_fn *done,
			       void *context);
void query_free(struct query *query);

/* Its parameters as arguments, which are lent until it is freed. */
void query_arguments(const struct query *query, struct postgres_argument out[QUERY_PARAMS_MAX]);

#endif

/*
 * Look-ups in PostgreSQL over a few connections (connection.h), one statement at a time on each.
 * Look-ups only read, so one that fails or is overdue is reported as failed and not repeated.
 * Event-loop thread only.
 *
 *	OWN           ─▶ one query a statement ───────────────┐           ┌═ PostgreSQL
 *	ISSUED, …     ─▶ the same                             ├─▶ in turn ╪═ …
 *	COUPONS, …    ─▶ up to LOOKUP_COUPONS_MAX a statement ┘           └═ …
 *
 * Each lane has a bound of its own, and a free connection serves the next lane in which something
 * waits: a flood of one kind waits for itself, and another kind waits for one statement of each
 * lane at most. A look-up fails when it was not sent within the time limit, or when the last
 * connection is lost; a connection is lost only when a statement does not end within the time limit
 * after it was sent. One that waits for a lock fails alone, after a quarter of it.
 *
 * PostgreSQL may be put back to an earlier moment, or be of another installation than Redis, and
 * what it says then is not final. So after each new connection look-ups wait until its numbers were
 * compared (comparison.h), and fail while that is so. What was sent before that was noticed fails
 * too, whatever it has found.
 */
#ifndef GATEWAY_READ_LOOKUP_H
#define GATEWAY_READ_LOOKUP_H

#include "common/message/coupon_cursor.h"
#include "common/message/receive.h"
#include "gateway/read/coupon_queue.h"

#include <event2/event.h>
#include <libpq-fe.h>

#define LOOKUP_COUPONS_MAX 256 /* in one statement */

struct lookup;

/* The rows, lent; NULL: the look-up failed. */
typedef void lookup_fn(void *context, const PGresult *rows);

enum lookup_use {
	LOOKUP_DECIDING, /* an answer depends on it: PostgreSQL itself */
	LOOKUP_SHOWING,  /* shown to users as it is there: may be a replica */
	LOOKUP_CODES     /* exchange codes: PostgreSQL itself */
};

enum lookup_lane {
	LOOKUP_OWN, /* what the gateway asks about PostgreSQL itself: compared or not */
	LOOKUP_CATALOGUE,
	LOOKUP_ISSUED, /* the outcomes that clients wait for with ack=issued */
	LOOKUP_STATUS,
	LOOKUP_CODE_TEXTS,
	LOOKUP_PAGES,
	LOOKUP_OFFERS,
	LOOKUP_COUPONS, /* coupons from here on */
	LOOKUP_STATUS_COUPONS,
	LOOKUP_LANES_N
};

/* What is known of the PostgreSQL that it is connected to. */
enum lookup_trust { LOOKUP_NOT_COMPARED, LOOKUP_TRUSTED, LOOKUP_PUT_BACK, LOOKUP_FOREIGN };

struct lookup_options {
	enum lookup_use use;
	const char *database_url; /* lent until lookup_new() returns */
	int is_replica;           /* it may be behind, and is not compared */
	size_t connections;
	int64_t timeout_ms;
	size_t waiting_max; /* in each lane */
};

struct lookup *lookup_new(struct event_base *base, const struct lookup_options *options);
void lookup_free(struct lookup *lookup); /* ends what waits with NULL */

/*
 * Each ends in `done`, never within the call. 0, or -1 when too many are waiting (then `done` is
 * not called). The columns are those of sql_query_coupon_state, sql_query_receive_outcome and
 * sql_query_user_outcomes. What is found was true at some time after the call; with LOOKUP_SHOWING
 * possibly before it.
 */
int lookup_coupon(struct lookup *lookup, enum lookup_lane lane, int64_t coupon,
		  lookup_coupon_fn *done, void *context);
int lookup_receive(struct lookup *lookup, enum lookup_lane lane, const struct receive *receive,
		   lookup_fn *done, void *context);
int lookup_user(struct lookup *lookup, int64_t coupon, const struct user_id *user, lookup_fn *done,
		void *context);

/*
 * At most `rows_max` coupons of a user, newest first, that come after a place (NULL: all of them):
 * the columns are those of sql_query_user_coupon_page.
 */
int lookup_user_coupons(struct lookup *lookup, const struct user_id *user,
			const struct coupon_cursor *after, int rows_max, lookup_fn *done,
			void *context);

/* What the coupon gives: the columns are those of sql_query_coupon_offer. */
int lookup_offer(struct lookup *lookup, int64_t coupon, lookup_fn *done, void *context);

/* The durability settings of the server: the columns are those of sql_query_durability. */
int lookup_settings(struct lookup *lookup, lookup_fn *done, void *context);

/* Its numbers: the columns are those of sql_query_change_counts. */
int lookup_changes(struct lookup *lookup, lookup_fn *done, void *context);

/*
 * What the gateway writes: that this process is there, and that it ends
 * (sql/function/gateway_alive.sql, gateway_gone.sql).
 */
int lookup_alive(struct lookup *lookup, const char *id, const char *place, int is_new,
		 lookup_fn *done, void *context);
int lookup_gone(struct lookup *lookup, const char *id, lookup_fn *done, void *context);

/*
 * Exchange codes: whether their sets have changed, the sets, and those of 1 to 256 texts that are
 * imported codes or words. The columns are those of sql_query_code_state, sql_query_code_catalogue
 * and sql_query_code_redeemable.
 */
int lookup_code_state(struct lookup *lookup, lookup_fn *done, void *context);
int lookup_code_catalogue(struct lookup *lookup, lookup_fn *done, void *context);
int lookup_code_texts(struct lookup *lookup, const char *const *texts, size_t n, lookup_fn *done,
		      void *context);

size_t lookup_waiting(const struct lookup *lookup);      /* look-ups that wait to be sent */
uint64_t lookup_connects_n(const struct lookup *lookup); /* how many times it was connected */
int lookup_is_connected(const struct lookup *lookup);    /* one connection at least */
/* NULL, or why look-ups fail or wait: for instance why the first connection is not connected. */
const char *lookup_trouble(const struct lookup *lookup);

/* By the comparison. */
void lookup_trust(struct lookup *lookup, enum lookup_trust trust);

#endif

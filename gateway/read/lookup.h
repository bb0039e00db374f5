/*
 * Look-ups in PostgreSQL over a few sessions, one statement at a time in each. Look-ups only read,
 * so one that fails or is overdue is reported as failed and not repeated. Event-loop thread only.
 *
 *	OWN, PAGES, …  ─▶ one query a statement ────────────┐           ┌═ PostgreSQL
 *	ISSUED, STATUS ─▶ up to LOOKUP_MANY_MAX a statement ├─▶ in turn ╪═ …
 *	COUPONS, …     ─▶ the same ─────────────────────────┘           └═ …
 *
 * What arrives while the connections are busy waits, and goes together then: so a storm of requests
 * costs PostgreSQL few statements. Each lane has a bound of its own, and a free connection serves
 * the next lane in which something waits: a flood of one kind waits for itself, and another kind
 * waits for one statement of each lane at most. Only ISSUED has no bound but that of the requests
 * in flight: a waiter that is refused would just ask again. A look-up fails when it was not sent
 * within the time limit, or when the last connection is lost; a connection is lost only when a
 * statement does not end within the time limit after it was sent. One that waits for a lock fails
 * alone, after a quarter of it.
 *
 * PostgreSQL may be put back to an earlier moment, or be of another installation than Redis, and
 * what it says then is not final. So after each new connection look-ups wait until its numbers were
 * compared (store_checks.h), and fail while that is so. What was sent before that was noticed fails
 * too, whatever it has found.
 */
#pragma once

#include "common/hash.h"
#include "common/message/receive.h"
#include "common/postgres/argument.h"
#include "common/postgres/postgres_session.h"
#include "common/program/config.h"

#include <event2/event.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <sys/queue.h>

#define LOOKUP_MANY_MAX 256 /* coupons or receives in one statement */
#define LOOKUP_USERS_MAX 32 /* and users, each with up to 200 rows, for which the loop stands */

/* The rows, lent; NULL: the look-up failed. */
typedef void lookup_fn(void *context, const PGresult *rows);
/* The rows, lent, of several receives: `n` of this one, from `row` on. NULL: the look-up failed. */
typedef void lookup_receive_fn(void *context, const PGresult *rows, int row, int n);

struct lookup;

enum lookup_use {
	LOOKUP_DECIDING, /* an answer depends on it: PostgreSQL itself */
	LOOKUP_SHOWING, /* shown to users as it is there: may be a replica, which is not compared */
	LOOKUP_CODES    /* exchange codes: PostgreSQL itself */
};

/*
 * What can be asked: a statement of sql/query, which describes the arguments and the columns; and
 * where it waits.
 */
enum lookup_query {
	LOOKUP_SETTINGS, /* durability: what the gateway asks of PostgreSQL itself */
	LOOKUP_CHANGES,  /* change_counts */
	LOOKUP_ALIVE,    /* gateway_alive, which writes, as the next one */
	LOOKUP_GONE,     /* gateway_gone */
	LOOKUP_KEYS,     /* key_news */
	LOOKUP_LISTEN,   /* a text in lookup.c */
	LOOKUP_CODE_STATE,
	LOOKUP_CODE_CATALOGUE,
	LOOKUP_OFFER_PAGE,    /* offer_page, of all campaigns that are on offer */
	LOOKUP_OFFER_ROWS,    /* offer_rows, of some */
	LOOKUP_ISSUED,        /* receive_committed, for which a client waits with ack=issued */
	LOOKUP_RECEIVE,       /* receive_outcome, for `status` */
	LOOKUP_USER,          /* user_outcomes, of a receive's user and coupon alone */
	LOOKUP_CODE_TEXTS,    /* code_claimable, of 1 to 256 texts */
	LOOKUP_PAGE,          /* user_coupon_page */
	LOOKUP_DISCOUNT,      /* coupon_discount */
	LOOKUP_QUOTE,         /* quote */
	LOOKUP_QUOTE_USER,    /* quote_user */
	LOOKUP_COUPON,        /* coupon_state, asked for one coupon: the rows are of several */
	LOOKUP_STATUS_COUPON, /* as LOOKUP_COUPON, for `status` */
	LOOKUP_QUERIES
};

/* What is known of the PostgreSQL that it is connected to. */
enum lookup_trust {
	LOOKUP_NOT_COMPARED,
	LOOKUP_TRUSTED,
	LOOKUP_PUT_BACK,
	LOOKUP_OLD,
	LOOKUP_FOREIGN
};

/* The config is lent. */
struct lookup *lookup_new(struct event_base *base, const struct config *config,
			  enum lookup_use use);
void lookup_close(struct lookup *lookup); /* ends its sessions; what waits is not reported */

/*
 * Each ends in `done`, never within the call. 0, or -1 when too many are waiting (then `done` is
 * not called). What is found was true at some time after the call; with LOOKUP_SHOWING possibly
 * before it. Texts are copied; the memory of an array, of which there is one argument at most, is
 * taken over.
 */
int lookup_ask(struct lookup *lookup, enum lookup_query what, int n,
	       const struct postgres_argument *arguments, lookup_fn *done, void *context);
/*
 * Asks for ISSUED, RECEIVE or USER, in one statement with others, whose rows have a column `ord`,
 * which counts the receives from 1, and are in its order. The receive is copied.
 */
int lookup_receive(struct lookup *lookup, enum lookup_query what, const struct receive *receive,
		   lookup_receive_fn *done, void *context);

size_t lookup_waiting(const struct lookup *lookup);      /* look-ups that wait to be sent */
uint64_t lookup_connects_n(const struct lookup *lookup); /* how many times it was connected */
int lookup_is_connected(const struct lookup *lookup);    /* one connection at least */
/* NULL, or why look-ups fail or wait: for instance why the first connection is not connected. */
const char *lookup_trouble(const struct lookup *lookup);

/*
 * Calls `notified` when API keys have changed in PostgreSQL, and at each new connection, which may
 * have missed that. Only LOOKUP_DECIDING is told.
 */
void lookup_on_keys(struct lookup *lookup, void (*notified)(void *context), void *context);

/*
 * Calls `changed` when the terms of a coupon have changed in PostgreSQL; with 0 when those of any
 * may have changed. Otherwise as lookup_on_keys().
 */
void lookup_on_terms(struct lookup *lookup, void (*changed)(void *context, int64_t coupon),
		     void *context);

/* By the comparison. */
void lookup_trust(struct lookup *lookup, enum lookup_trust trust);

/*
 * What waits to be looked up, oldest first: queries, each a statement of its own, or coupons or
 * receives, of which many go into one statement. Requests for one coupon share its look-up until it
 * is taken to be sent. Part of lookup, and of its test.
 */

#define LANE_ARGUMENTS_MAX 6

struct lane_query;

struct lane_entry {
	STAILQ_ENTRY(lane_entry) next;
	int64_t queued_ms;
	const struct lane_query *query; /* its statement */
	STAILQ_HEAD(, lane_asker) askers;
	int n;
	struct postgres_argument arguments[LANE_ARGUMENTS_MAX];
	struct postgres_array array; /* the one argument that is an array */
	int64_t coupon;              /* 0: a query, or a receive */
	struct receive receive;      /* its coupon 0: a query, or a coupon */
	UT_hash_handle hh;           /* while it waits */
};

STAILQ_HEAD(lane_list, lane_entry);

struct lane {
	size_t max, n;
	struct lane_list entries;
	struct lane_entry *by_coupon; /* those among them with a coupon */
};

void lane_init(struct lane *lane, size_t max);

/* 0, or -1 when too many wait. `coupon`: the one argument of a statement for many, or 0. */
int lane_add(struct lane *lane, const struct lane_query *query, int64_t coupon, int n,
	     const struct postgres_argument *arguments, lookup_fn *done, void *context);
/*
 * Moves the first `n` at most that were queued before `before_ms` to the end of `to`. Returns how
 * many.
 */
size_t lane_take(struct lane *lane, size_t n, int64_t before_ms, struct lane_list *to);
/* Reports to everyone who asked, and frees the entries. Rows NULL: the look-up failed. */
void lane_list_end(struct lane_list *list, const PGresult *rows);

/*
 * The read operations `coupons`, a page of a user's coupons, and `quote`, what the terms of a
 * coupon, or the receives of a user, take off an amount: from PostgreSQL, which may be a replica.
 * And what all read operations show of rows.
 */
#pragma once

#include "gateway/listen/request.h"
#include "gateway/read/lookup.h"

/* Each takes the request. */
void coupons_answer(struct lookup *reads, struct request *request);
void quote_answer(struct lookup *reads, struct request *request);

/*
 * What coupons give to users, their discount and metadata, as far as a process remembers it by the
 * version of their terms, up to a limit. What is not remembered is looked up, each coupon once at a
 * time, in PostgreSQL, which may be a replica. Event-loop thread only.
 */

struct discounts {
	struct lookup *reads;
	struct discount *by_id; /* its own */
};

struct discount_asker {
	STAILQ_ENTRY(discount_asker) next;
	int64_t version; /* which terms it wants */
	/* The members for a reply, lent; NULL: they are not known. */
	void (*done)(void *context, const cJSON *members);
	void *context;
};

/*
 * Ends in done(), possibly within the call. The members belong to that version or to a later one,
 * and to an earlier one only while the replica is behind. Nobody waits for a PostgreSQL that failed
 * before.
 */
void discounts_ask(struct discounts *discounts, int64_t coupon, struct discount_asker *asker);

/* Adds them to a reply; NULL: that they are not known. */
void discount_members_add(cJSON *reply, const cJSON *members);

/* The receive of a row with the columns batch and idx. */
void row_receive(const PGresult *rows, int row, int64_t coupon, const struct user_id *user,
		 struct receive *receive);
/* The number of the coupon's row among those that a look-up of coupons found; -1: it has none. */
int row_of_coupon(const PGresult *rows, int64_t coupon);

/* Adds the column under its own name, where the row has it and it is not NULL. */
void member_column(cJSON *object, const PGresult *rows, int row, const char *name);
/* As member_column(), for a number, with all its digits, or for JSON. */
void member_raw(cJSON *object, const PGresult *rows, int row, const char *name);
/* Adds a time, unless it is 0. */
void member_time(cJSON *object, const char *name, int64_t ms);
/* Adds `discount` and `metadata`, as far as the row has them. */
void member_discount(cJSON *object, const PGresult *rows, int row);
/* Adds `receive` and `slot`. */
void member_receive(cJSON *object, const struct receive *receive, int slot);

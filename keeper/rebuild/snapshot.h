/*
 * A snapshot of one coupon in PostgreSQL: its counts, those of its older generations, and all its
 * rows, page by page. Between snapshot_begin() and snapshot_end() the connection is this
 * snapshot's alone. The keeper's thread.
 */
#pragma once

#include "common/message/receive.h"
#include "coupon/redis_coupon.h"
#include "coupon/slot.h"
#include "keeper/context.h"

#define SNAPSHOT_PAGE 512 /* rows in a page; see sql_query_rebuild_fetch */

struct snapshot {
	struct keeper_database *database; /* NULL: it has ended, or was not begun */
	struct coupon_row row;
	int64_t late;       /* number of late outcomes that are included in the counts */
	int64_t unreleased; /* rejected receives that may still hold a slot in Redis */
	int has_rejected;   /* receives */
	/* older ones; coupon_generation_open() bounds their number. The owner frees them. */
	struct generations generations;
	PGresult *page;
	int is_ahead; /* the statement for the next page of rows was sent */
};

/*
 * Each 0, or -1 when the statement failed, as keeper/database.h says, or when the keeper must not
 * go on.
 */
int snapshot_begin(struct snapshot *snapshot, struct keeper_context *context,
		   struct keeper_database *database, int64_t coupon);
/* Sets `row`, `late`, `unreleased` and `has_rejected` to a row of sql_query_rebuild_coupon. */
void snapshot_row_read(struct snapshot *snapshot, const PGresult *rows, int i);
/*
 * Reads the next page into snapshot->page; its columns are those of slot_of_row(). No rows: the
 * end. PostgreSQL reads the page after it meanwhile: no other statement may be run before the end.
 */
int snapshot_rows(struct snapshot *snapshot);
/* Asks for the first page, so that PostgreSQL reads it meanwhile. */
int snapshot_rows_ask(struct snapshot *snapshot);
/*
 * Before the first page of the codes that were revoked after this revocation, and each page: one
 * column, as in Redis.
 */
int snapshot_revoked_begin(struct snapshot *snapshot, int64_t above);
int snapshot_revoked(struct snapshot *snapshot);
/* Reads which receives of the batches of these slots are rejected, into snapshot->page. */
int snapshot_rejected(struct snapshot *snapshot, const struct slot *slots, size_t n);
/* Whether a receive is among those that snapshot_rejected() read. */
int snapshot_is_rejected(const struct snapshot *snapshot, const struct slot *slot);
/* Raises the highest number of an older generation, if there is one with this number. */
void snapshot_raise(struct snapshot *snapshot, int64_t generation, int64_t high);
/* Ends the transaction; the counts stay. Must be called, also after a failure. */
void snapshot_end(struct snapshot *snapshot);

#include "ctl/audit/postgres.h"

#include "common/check.h"
#include "common/log/log.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_SIZE 24

/* Sorting a million receives needs memory. */
void audit_session_set(struct db *db)
{
	db_run(db, "SET default_transaction_read_only = on; SET statement_timeout = '60s';"
		   "SET work_mem = '64MB'; SET cursor_tuple_fraction = 1");
}

static int64_t idle_read(const PGresult *result, int row)
{
	return db_is_null(result, row, "idle_ms") ? INT64_MAX : db_int(result, row, "idle_ms");
}

void audit_row_read(struct db *db, int64_t coupon, struct audit_row *row)
{
	char id[DB_NUMBER_SIZE];
	PGresult *result = db_query(db, sql_query_audit_coupon, 1,
				    (const char *[]){ db_number(coupon, id) });

	memset(row, 0, sizeof(*row));
	if (PQntuples(result) > 0) {
		row->known = 1;
		snprintf(row->status, sizeof(row->status), "%s", db_text(result, 0, "status"));
		row->version = db_int(result, 0, "version");
		row->total = db_int(result, 0, "total_num");
		row->issued = db_int(result, 0, "issued_num");
		row->limit = db_int(result, 0, "user_limit");
		row->begin_ms = db_int(result, 0, "begin_ms");
		row->end_ms = db_int(result, 0, "end_ms");
		row->generation = db_int(result, 0, "generation");
		row->seq_seen = db_int(result, 0, "seq_seen");
		row->settled = db_int(result, 0, "settled_num");
		row->settled_sum = row->settled + db_int(result, 0, "older_settled_num");
		row->idle_ms = idle_read(result, 0);
		row->rejected = db_int(result, 0, "rejected_num");
		row->tombstones = db_int(result, 0, "tombstone_num");
		row->unreleased = db_int(result, 0, "unreleased_num");
	}
	PQclear(result);
}

void audit_generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
			    struct generations *generations)
{
	char id[DB_NUMBER_SIZE];
	PGresult *result = db_query(db, sql_query_coupon_generation_page, 1,
				    (const char *[]){ db_number(coupon, id) });

	generations->n = 0;
	*generation_find(generations,
			 row->generation) = (struct generation){ .number = row->generation,
								 .high = row->seq_seen,
								 .settled = row->settled,
								 .idle_ms = row->idle_ms };
	for (int i = 0; i < PQntuples(result); i++)
		generation_add_row(generations, result, i, 0);
	PQclear(result);
}

int64_t audit_newest_read(struct db *db, int64_t coupon, int64_t after_ms)
{
	const struct postgres_argument arguments[] = { postgres_number(coupon),
						       postgres_number(after_ms) };
	PGresult *result = db_query_arguments(db, sql_query_audit_overtaken, 2, arguments);
	int64_t newest_ms = db_int(result, 0, "newest_ms");

	PQclear(result);
	return newest_ms;
}

void columns_find(const PGresult *result, struct columns *columns)
{
	columns->user = PQfnumber(result, "user_id");
	columns->slot = PQfnumber(result, "slot");
	columns->batch = PQfnumber(result, "batch");
	columns->idx = PQfnumber(result, "idx");
	check(columns->user >= 0 && columns->slot >= 0 && columns->batch >= 0 && columns->idx >= 0);
}

static void batch_read(const char *uuid, struct ulid *batch)
{
	if (ulid_from_uuid(batch, uuid))
		log_fatal("PostgreSQL: a batch is not a uuid");
}

static void user_read(const char *text, struct user_id *user)
{
	if (user_id_parse(user, text, strlen(text)))
		log_fatal("PostgreSQL: a user is no valid id");
}

void slot_read(const PGresult *result, int row, const struct columns *columns, struct slot *slot)
{
	user_read(PQgetvalue(result, row, columns->user), &slot->user);
	slot->number = (int16_t)strtol(PQgetvalue(result, row, columns->slot), NULL, 10);
	slot->index = (int16_t)strtol(PQgetvalue(result, row, columns->idx), NULL, 10);
	batch_read(PQgetvalue(result, row, columns->batch), &slot->batch);
}

/* The array parameters of the query. */
struct ask {
	struct postgres_array users, slots, batches, indexes;
};

static void ask_make(struct ask *ask, const struct slot *slots, size_t n)
{
	postgres_array_init(&ask->users, POSTGRES_TEXT);
	postgres_array_init(&ask->slots, POSTGRES_INT2);
	postgres_array_init(&ask->batches, POSTGRES_UUID);
	postgres_array_init(&ask->indexes, POSTGRES_INT2);
	for (size_t i = 0; i < n; i++) {
		postgres_array_add_text(&ask->users, slots[i].user.text, slots[i].user.len);
		postgres_array_add_number(&ask->slots, slots[i].number);
		postgres_array_add_uuid(&ask->batches, &slots[i].batch);
		postgres_array_add_number(&ask->indexes, slots[i].index);
	}
}

static void ask_fini(struct ask *ask)
{
	postgres_array_fini(&ask->users);
	postgres_array_fini(&ask->slots);
	postgres_array_fini(&ask->batches);
	postgres_array_fini(&ask->indexes);
}

static void outcome_read(const PGresult *result, int row, const struct slot *slot,
			 struct outcome *outcome)
{
	memset(outcome, 0, sizeof(*outcome));
	outcome->issued_ms = db_is_null(result, row, "issued_ms")
				     ? -1
				     : db_int(result, row, "issued_ms");
	outcome->rejected_ms = db_is_null(result, row, "rejected_ms")
				       ? -1
				       : db_int(result, row, "rejected_ms");
	outcome->is_released = *db_text(result, row, "is_released") == 't';
	outcome->is_late = *db_text(result, row, "is_late") == 't';
	outcome->is_held = !db_is_null(result, row, "holder_batch");
	if (!outcome->is_held)
		return;
	outcome->holder = (struct slot){ .user = slot->user,
					 .number = slot->number,
					 .index = (int16_t)db_int(result, row, "holder_idx") };
	batch_read(db_text(result, row, "holder_batch"), &outcome->holder.batch);
	snprintf(outcome->holder_key, sizeof(outcome->holder_key), "%s",
		 db_text(result, row, "holder_key"));
}

void audit_outcomes_read(struct db *db, int64_t coupon, const struct slot *slots, size_t n,
			 struct outcome *outcomes)
{
	struct ask ask;
	const struct postgres_argument arguments[] = {
		postgres_number(coupon), postgres_array(&ask.users), postgres_array(&ask.slots),
		postgres_array(&ask.batches), postgres_array(&ask.indexes)
	};
	PGresult *result;

	check(n <= AUDIT_ASK_MAX);
	if (n == 0)
		return;
	ask_make(&ask, slots, n);
	result = db_query_arguments(db, sql_query_audit_outcomes, 5, arguments);
	ask_fini(&ask);
	check((size_t)PQntuples(result) == n);
	for (size_t i = 0; i < n; i++)
		outcome_read(result, (int)i, &slots[i], &outcomes[i]);
	PQclear(result);
}

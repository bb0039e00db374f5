#include "ctl/audit/postgres.h"

#include "common/check.h"
#include "common/log.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_SIZE 24

/* Sorting a million receives needs memory; compiling these queries takes longer than they do. */
void audit_session_set(struct db *db)
{
	db_run(db, "SET default_transaction_read_only = on; SET statement_timeout = '60s'; SET "
		   "work_mem = '64MB';"
		   "SET cursor_tuple_fraction = 1; SET jit = off");
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
		row->rejected = db_int(result, 0, "rejected_num");
		row->tombstones = db_int(result, 0, "tombstone_num");
		row->unreleased = db_int(result, 0, "unreleased_num");
	}
	PQclear(result);
}

struct generation *generation_find(struct generations *generations, int64_t number)
{
	for (size_t i = 0; i < generations->n; i++)
		if (generations->list[i].number == number)
			return &generations->list[i];
	if (generations->n == AUDIT_GENERATIONS_MAX)
		return NULL;
	generations->list[generations->n] = (struct generation){ .number = number };
	return &generations->list[generations->n++];
}

void audit_generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
			    struct generations *generations)
{
	char id[DB_NUMBER_SIZE];
	PGresult *result = db_query(db, sql_query_coupon_generation_page, 1,
				    (const char *[]){ db_number(coupon, id) });
	int first = PQntuples(result) - (AUDIT_GENERATIONS_MAX / 2);

	generations->n = 0;
	*generation_find(generations, row->generation) =
		(struct generation){ row->generation, row->seq_seen, row->settled };
	for (int i = first > 0 ? first : 0; i < PQntuples(result); i++) {
		struct generation *generation = generation_find(generations,
								db_int(result, i, "generation"));

		generation->high = db_int(result, i, "seq_seen");
		generation->settled = db_int(result, i, "settled_num");
	}
	PQclear(result);
}

int64_t generations_unsettled(const struct generations *generations, int64_t current)
{
	int64_t n = 0;

	for (size_t i = 0; i < generations->n; i++) {
		const struct generation *generation = &generations->list[i];

		if ((current == 0 || generation->number != current) &&
		    generation->high > generation->settled)
			n += generation->high - generation->settled;
	}
	return n;
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

void slot_read(const PGresult *result, int row, const struct columns *columns, struct slot *slot)
{
	slot->user = strtoll(PQgetvalue(result, row, columns->user), NULL, 10);
	slot->number = (int16_t)strtol(PQgetvalue(result, row, columns->slot), NULL, 10);
	slot->index = (int16_t)strtol(PQgetvalue(result, row, columns->idx), NULL, 10);
	batch_read(PQgetvalue(result, row, columns->batch), &slot->batch);
}

/* The array parameters of the query. */
struct ask {
	char users[AUDIT_ASK_MAX * NUMBER_SIZE], slots[AUDIT_ASK_MAX * 8];
	char batches[AUDIT_ASK_MAX * (ULID_UUID_SIZE + 1)], indexes[AUDIT_ASK_MAX * 8];
};

static size_t element_add(char *array, size_t at, const char *text)
{
	return at + (size_t)sprintf(array + at, "%s%s", at ? "," : "{", text);
}

static void ask_make(struct ask *ask, const struct slot *slots, size_t n)
{
	size_t users = 0, numbers = 0, batches = 0, indexes = 0;
	char text[ULID_UUID_SIZE];

	for (size_t i = 0; i < n; i++) {
		users = element_add(ask->users, users, db_number(slots[i].user, text));
		numbers = element_add(ask->slots, numbers, db_number(slots[i].number, text));
		batches = element_add(ask->batches, batches, ulid_to_uuid(&slots[i].batch, text));
		indexes = element_add(ask->indexes, indexes, db_number(slots[i].index, text));
	}
	memcpy(ask->users + users, "}", 2);
	memcpy(ask->slots + numbers, "}", 2);
	memcpy(ask->batches + batches, "}", 2);
	memcpy(ask->indexes + indexes, "}", 2);
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
	static struct ask ask;
	char id[DB_NUMBER_SIZE];
	const char *const params[] = { db_number(coupon, id), ask.users, ask.slots, ask.batches,
				       ask.indexes };
	PGresult *result;

	check(n <= AUDIT_ASK_MAX);
	if (n == 0)
		return;
	ask_make(&ask, slots, n);
	result = db_query(db, sql_query_audit_outcomes, 5, params);
	check((size_t)PQntuples(result) == n);
	for (size_t i = 0; i < n; i++)
		outcome_read(result, (int)i, &slots[i], &outcomes[i]);
	PQclear(result);
}

int audit_workers_slow(struct db *db)
{
	PGresult *result = db_query(db, sql_query_audit_workers, 0, NULL);
	int slow = db_int(result, 0, "slow_num") > 0;

	PQclear(result);
	return slow;
}

#include "ctl/recover/receives.h"

#include "common/fault.h"
#include "common/postgres/settle_args.h"
#include "ctl/recover/context.h"
#include "ctl/recover/held.h"
#include "ctl/recover/report.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static void args_fill(struct recover_coupon *coupon, const struct held *list, size_t n,
		      struct settle_args *args)
{
	for (size_t i = 0; i < n; i++) {
		const struct user_record *record = &list[i].record;

		settle_args_add(args,
				&(struct settle_receive){
					.coupon = coupon->id,
					.generation = coupon->settling,
					/* Redis has not given out a higher one. */
					.seq = coupon->settling == coupon->generation ? coupon->seq
										      : 0,
					.batch = &record->batch,
					.index = record->index,
					.user = &list[i].user,
					.slot = record->slot,
					.tail = record->key,
					.key_len = record->key_len,
					.tail_len = record->tail_len,
					.at_ms = held_time(coupon, &record->batch) });
	}
}

/* The rows: those that were not newly issued. */
static void outcomes_count(struct recover_coupon *coupon, const struct held *list, size_t n,
			   const PGresult *rows)
{
	struct recover_counts *counts = &coupon->recover->counts;

	for (int row = 0; row < PQntuples(rows); row++) {
		if (strcmp(db_text(rows, row, "outcome"), "rejected") != 0) {
			counts->receives_there++;
			continue;
		}
		counts->receives_rejected++;
		report_receive(coupon->recover, "rejected", coupon->id,
			       &list[db_int(rows, row, "ord") - 1], db_text(rows, row, "reason"));
	}
	counts->receives += (int64_t)n - PQntuples(rows);
}

static void list_settle(struct recover_coupon *coupon, struct held *list, size_t all_n)
{
	size_t n = held_keep_open(coupon, list, all_n);
	struct settle_args args;
	struct postgres_argument arguments[SETTLE_ARGS_N];
	PGresult *rows;

	coupon->recover->counts.receives_there += (int64_t)(all_n - n);
	if (n == 0)
		return;
	fault_point(FAULT_RECOVER_SETTLING);
	settle_args_init(&args);
	args_fill(coupon, list, n, &args);
	settle_args_arguments(&args, arguments);
	rows = db_query_arguments(coupon->recover->db, sql_query_recover_settle, SETTLE_ARGS_N,
				  arguments);
	outcomes_count(coupon, list, n, rows);
	PQclear(rows);
	settle_args_fini(&args);
}

void receives_settle(struct recover_coupon *coupon)
{
	held_read(coupon, list_settle);
}

enum { GENERATIONS, BATCHES, INDEXES, USERS, SLOTS, TIMES, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[GENERATIONS] = POSTGRES_INT4, [BATCHES] = POSTGRES_UUID, [INDEXES] = POSTGRES_INT2,
	[USERS] = POSTGRES_TEXT,       [SLOTS] = POSTGRES_INT2,   [TIMES] = POSTGRES_INT8,
};

/* Whether Redis knows the receive from an older generation. */
static int is_older(struct recover_coupon *coupon, const struct held *held)
{
	char key[COUPON_KEY_SIZE], batch[ULID_SIZE], member[ULID_SIZE + 8];
	const char *sismember[] = { "SISMEMBER", coupon_key(coupon->id, COUPON_KEY_KNOWN, key),
				    member };
	int64_t is;

	snprintf(member, sizeof(member), "%s:%d", ulid_format(&held->record.batch, batch),
		 held->record.index);
	store_redis_check(coupon->recover->redis,
			  redis_client_integer(coupon->recover->redis, 3, sismember, &is) == 0);
	return is == 1;
}

/* Keeps those whose message is gone. */
static size_t list_keep_gone(struct recover_coupon *coupon, struct held *list, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (!held_is_sent(coupon, &list[i].record.batch))
			list[kept++] = list[i];
		else if (is_older(coupon, &list[i]))
			coupon->older_owed++;
		else
			coupon->own_owed++;
	}
	return kept;
}

/* Before the loss is recorded: then none is lost unnamed. */
static void list_name(struct recover_coupon *coupon, struct held *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		report_receive(coupon->recover, "lost", coupon->id, &list[i], NULL);
	coupon->recover->counts.receives_lost += (int64_t)n;
	fflush(stdout);
}

static void list_record(struct recover_coupon *coupon, const struct held *list, size_t n)
{
	struct postgres_array arrays[ARRAYS];
	struct postgres_argument arguments[1 + ARRAYS] = { postgres_number(coupon->id) };

	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < n; i++) {
		const struct user_record *record = &list[i].record;

		postgres_array_add_number(&arrays[GENERATIONS], coupon->settling);
		postgres_array_add_uuid(&arrays[BATCHES], &record->batch);
		postgres_array_add_number(&arrays[INDEXES], record->index);
		postgres_array_add_text(&arrays[USERS], list[i].user.text, list[i].user.len);
		postgres_array_add_number(&arrays[SLOTS], record->slot);
		postgres_array_add_number(&arrays[TIMES], held_time(coupon, &record->batch));
	}
	for (int i = 0; i < ARRAYS; i++)
		arguments[1 + i] = postgres_array(&arrays[i]);
	PQclear(db_query_arguments(coupon->recover->db, sql_query_receive_lost, 1 + ARRAYS,
				   arguments));
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_fini(&arrays[i]);
}

static void list_give_up(struct recover_coupon *coupon, struct held *list, size_t all_n)
{
	size_t n = held_keep_open(coupon, list, all_n);

	coupon->recover->counts.receives_there += (int64_t)(all_n - n);
	n = list_keep_gone(coupon, list, n);
	if (n == 0)
		return;
	list_name(coupon, list, n);
	list_record(coupon, list, n);
}

void receives_give_up(struct recover_coupon *coupon)
{
	held_read(coupon, list_give_up);
}

void receives_name(struct recover_coupon *coupon)
{
	held_read(coupon, list_name);
}

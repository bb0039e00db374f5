/* Brings the receives of a coupon in Redis back to PostgreSQL, or gives them up. */
#include "common/message/answer.h"
#include "common/array.h"
#include "common/fault.h"
#include "common/message/number.h"
#include "ctl/recover/recover.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 500        /* entries of a list */
#define SCAN_COUNT 4000 /* users of a step */
#define TAKE_MAX 4000   /* slots in a statement */
#define REASON_SIZE 32

/* A receive that is lost, or rejected with this reason. */
static void report_receive(struct recover_coupon *coupon, const char *what, const struct slot *slot,
			   const char *reason)
{
	cJSON *object = output_object();
	char text[RECEIVE_SIZE];

	progress_hide(&coupon->recover->progress);
	output_text(object, "what", what);
	output_text(object, "receive", slot_receive_format(slot, coupon->id, text));
	output_id(object, "coupon", coupon->id);
	output_text(object, "user", slot->user.text);
	output_number(object, "slot", slot->number);
	output_text(object, "reason", reason);
	output_say(object,
		   "{what}: receive {receive}, user {user}, slot {slot}[reason : {reason}]\n",
		   coupon->recover->is_json);
}

/* Reads a list of a coupon in Redis, page by page. */
static void pages_read(struct recover_coupon *coupon, enum coupon_key which,
		       void (*take)(struct recover_coupon *coupon, const redisReply *page))
{
	struct redis_client *redis = coupon->recover->redis;
	char first[NUMBER_SIZE], last[NUMBER_SIZE];
	size_t n = PAGE;

	for (int64_t from = 0; n == PAGE; from += PAGE) {
		redisReply *page =
			store_reply(redis, coupon_call(redis, coupon->id, "LRANGE", which,
						       number_text(from, first),
						       number_text(from + PAGE - 1, last), NULL));

		n = page->elements;
		if (n > 0)
			take(coupon, page);
		freeReplyObject(page);
	}
}

static void times_add(struct times *times, const struct ulid *batch, int64_t at_ms)
{
	times->list = array_room(times->list, times->n, &times->size, sizeof(*times->list));
	times->list[times->n++] = (struct time_of){ *batch, at_ms };
}

static int batch_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct ulid));
}

static void times_sort(struct times *times)
{
	_Static_assert(offsetof(struct time_of, batch) == 0, "compared from its beginning");
	times->n = list_unique(times->list, times->n, sizeof(*times->list), batch_compare);
}

/* Takes a page of entries "BATCH:AT". */
static void settled_take(struct recover_coupon *coupon, const redisReply *page)
{
	for (size_t i = 0; i < page->elements; i++) {
		const redisReply *entry = page->element[i];
		struct ulid batch;
		int64_t at_ms;

		if (entry->len > ULID_LEN && entry->str[ULID_LEN] == ':' &&
		    ulid_parse(&batch, entry->str, ULID_LEN) == 0 &&
		    number_parse(entry->str + ULID_LEN + 1, INT64_MAX, &at_ms) == 0)
			times_add(&coupon->settled, &batch, at_ms);
	}
}

static int message_take(void *context, const redisReply *batch, const struct message *message,
			const char *error)
{
	struct recover_coupon *coupon = context;

	(void)batch, (void)error;
	if (message)
		times_add(&coupon->outbox, &message->batch, message->at_ms);
	return 0;
}

/* NULL: the batch is not in it. */
static const struct time_of *times_find(struct recover_coupon *coupon, const struct times *times,
					const struct ulid *batch)
{
	struct redis_client *redis = coupon->recover->redis;

	if (!coupon->times_are_read) {
		coupon->times_are_read = 1;
		pages_read(coupon, COUPON_KEY_SETTLED, settled_take);
		store_redis_check(redis, outbox_scan(redis, coupon->id, message_take, coupon) == 0);
		times_sort(&coupon->settled);
		times_sort(&coupon->outbox);
	}
	return times->n == 0
		       ? NULL
		       : bsearch(batch, times->list, times->n, sizeof(*times->list), batch_compare);
}

/*
 * When the batch was accepted: as the list of settled batches says, or its message in the outbox,
 * or else its id, whose clock is a gateway's.
 */
static int64_t accepted_ms(struct recover_coupon *coupon, const struct ulid *batch)
{
	const struct time_of *found = times_find(coupon, &coupon->settled, batch);

	if (!found)
		found = times_find(coupon, &coupon->outbox, batch);
	return found ? found->at_ms : ulid_time_ms(batch);
}

/* The id of a user may have any bytes. */
static void unreadable(struct recover_coupon *coupon, const redisReply *id)
{
	struct user_id user;
	char detail[128];

	snprintf(detail, sizeof(detail), "the records of user %s",
		 user_id_parse(&user, id->str, id->len) ? "(a malformed id)" : user.text);
	coupon->recover->counts.unreadable++;
	report_coupon(coupon->recover, "unreadable", coupon->id, detail);
}

static int users_take(void *context, const redisReply *users)
{
	struct recover_coupon *coupon = context;
	struct recover *recover = coupon->recover;
	struct slots *slots = &coupon->slots;

	slots->n = 0;
	for (size_t i = 0; i + 1 < users->elements; i += 2)
		if (slots_add_user(slots, users->element[i], users->element[i + 1]))
			unreadable(coupon, users->element[i]);
	for (size_t at = 0; at < slots->n; at += TAKE_MAX)
		coupon->take(coupon, slots->list + at,
			     slots->n - at < TAKE_MAX ? slots->n - at : TAKE_MAX);
	recover->users_done += (int64_t)users->elements / 2;
	/* A scan may return a user twice. */
	if (recover->users_done > recover->users_n)
		recover->users_done = recover->users_n;
	progress_show(&recover->progress, "users", recover->users_done, recover->users_n);
	return 0;
}

/* All slots of the coupon in Redis, some thousand at a time. Shows the progress. */
static void slots_each(struct recover_coupon *coupon, slots_fn *take)
{
	struct redis_client *redis = coupon->recover->redis;

	coupon->take = take;
	store_redis_check(redis, coupon_scan(redis, coupon->id, COUPON_KEY_USERS, SCAN_COUNT,
					     users_take, coupon) == 0);
	slots_fini(&coupon->slots);
}

/* The rows: those that were not newly issued, and at last that of the transaction. */
static void outcomes_count(struct recover_coupon *coupon, const struct slot *list, size_t n,
			   const PGresult *rows)
{
	struct recover_counts *counts = &coupon->recover->counts;
	int rows_n = PQntuples(rows) - 1;

	for (int row = 0; row < rows_n; row++) {
		if (strcmp(column_text(rows, row, "outcome"), "rejected") != 0) {
			counts->receives_there++;
			continue;
		}
		counts->receives_rejected++;
		report_receive(coupon, "rejected", &list[column_number(rows, row, "ord") - 1],
			       column_text(rows, row, "reason"));
	}
	counts->receives += (int64_t)n - rows_n;
}

static size_t list_keep_open(struct recover_coupon *coupon, struct slot *list, size_t n)
{
	size_t open = store_keep_open(coupon->recover->db, coupon->id, list, n);

	coupon->recover->counts.receives_there += (int64_t)(n - open);
	return open;
}

static void list_settle(struct recover_coupon *coupon, struct slot *list, size_t all_n)
{
	/* Redis has not given out a higher one. */
	int64_t seq = coupon->settling == coupon->hash.generation ? coupon->hash.seq : 0;
	size_t n = list_keep_open(coupon, list, all_n);
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct settle_args args;
	PGresult *rows;

	if (n == 0)
		return;
	fault_point(FAULT_RECOVER_SETTLING);
	settle_args_init(&args);
	for (size_t i = 0; i < n; i++)
		slot_settle(&list[i], coupon->id, coupon->settling, seq,
			    accepted_ms(coupon, &list[i].batch), &args);
	settle_args_arguments(&args, arguments);
	rows = db_query_arguments(coupon->recover->db, sql_query_settle, SETTLE_ARGS_N, arguments);
	outcomes_count(coupon, list, n, rows);
	PQclear(rows);
	settle_args_fini(&args);
}

/* Keeps those whose message is gone. */
static size_t list_keep_gone(struct recover_coupon *coupon, struct slot *list, size_t n)
{
	struct redis_client *redis = coupon->recover->redis;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		char is_older;

		if (!times_find(coupon, &coupon->outbox, &list[i].batch)) {
			list[kept++] = list[i];
			continue;
		}
		store_has(redis, coupon->id, COUPON_KEY_KNOWN, &list[i], 1, &is_older);
		coupon->older_owed += is_older;
		coupon->own_owed += !is_older;
	}
	return kept;
}

/* Before the loss is recorded: then none is lost unnamed. */
static void list_name(struct recover_coupon *coupon, struct slot *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		report_receive(coupon, "lost", &list[i], NULL);
	coupon->recover->counts.receives_lost += (int64_t)n;
	fflush(stdout);
}

static void list_give_up(struct recover_coupon *coupon, struct slot *list, size_t all_n)
{
	size_t n = list_keep_gone(coupon, list, list_keep_open(coupon, list, all_n));
	struct slot_arrays arrays;

	if (n == 0)
		return;
	list_name(coupon, list, n);
	slot_arrays_init(&arrays);
	for (size_t i = 0; i < n; i++) {
		postgres_array_add_number(&arrays.generations, coupon->settling);
		postgres_array_add_number(&arrays.times, accepted_ms(coupon, &list[i].batch));
	}
	(void)store_lost_record(coupon->recover->db, coupon->id, list, n, &arrays);
}

void receives_restore(struct recover_coupon *coupon)
{
	slots_each(coupon, coupon->recover->gives_up ? list_give_up : list_settle);
}

void receives_name(struct recover_coupon *coupon)
{
	slots_each(coupon, list_name);
}

/* Whether settling gives it. A later version may have others. */
static int reason_is_known(const char *reason)
{
	return reason_find(reason) || strcmp(reason, "void_kept") == 0; /* of lua/slot_free.lua */
}

/* Parses "BATCH:INDEX:SLOT:REASON:USER". 0, or -1. */
static int rejected_parse(struct slot *slot, char reason[REASON_SIZE], const char *text)
{
	int index, number;
	size_t len;

	if (strlen(text) <= ULID_LEN || text[ULID_LEN] != ':' ||
	    ulid_parse(&slot->batch, text, ULID_LEN))
		return -1;
	text += ULID_LEN + 1;
	index = slot_number_take(&text, RECEIVE_INDEX_MAX);
	number = index < 0 ? -1 : slot_number_take(&text, INT16_MAX);
	if (number < 0)
		return -1;
	slot->index = (int16_t)index;
	slot->number = (int16_t)number;
	len = strcspn(text, ":");
	if (text[len] != ':' || len >= REASON_SIZE)
		return -1;
	memcpy(reason, text, len);
	reason[len] = '\0';
	text += len + 1;
	return !reason_is_known(reason) || user_id_parse(&slot->user, text, strlen(text)) ? -1 : 0;
}

static void rejected_take(struct recover_coupon *coupon, const redisReply *page)
{
	struct recover *recover = coupon->recover;
	struct postgres_array reasons = { .type = POSTGRES_TEXT },
			      holds = { .type = POSTGRES_INT2 };
	struct slot list[PAGE];
	struct slot_arrays arrays;
	redisReply *records;
	PGresult *added;
	size_t n = 0;

	for (size_t i = 0; i < page->elements; i++) {
		char reason[REASON_SIZE];

		if (rejected_parse(&list[n], reason, page->element[i]->str)) {
			recover->counts.unreadable++;
			report_coupon(recover, "unreadable", coupon->id, "a rejected receive");
			continue;
		}
		postgres_array_add_text(&reasons, reason, strlen(reason));
		n++;
	}
	if (n == 0)
		return;
	records = store_reply(recover->redis, coupon_records(recover->redis, coupon->id, list, n));
	slot_arrays_init(&arrays);
	slot_arrays_add(&arrays, list, n);
	for (size_t i = 0; i < n; i++) {
		postgres_array_add_number(&arrays.times, accepted_ms(coupon, &list[i].batch));
		postgres_array_add_number(&holds, slot_look_up(&list[i], NULL,
							       records->element[i]) == SLOT_SAME);
	}
	freeReplyObject(records);
	added = db_ask(recover->db, sql_query_recover_rejected, postgres_number(coupon->id),
		       postgres_array(&arrays.batches), postgres_array(&arrays.indexes),
		       postgres_array(&arrays.users), postgres_array(&arrays.numbers),
		       postgres_array(&reasons), postgres_array(&arrays.times),
		       postgres_array(&holds));
	recover->counts.rejections += PQntuples(added);
	recover->counts.rejections_there += (int64_t)n - PQntuples(added);
	PQclear(added);
	slot_arrays_fini(&arrays);
	postgres_array_fini(&reasons);
	postgres_array_fini(&holds);
}

void rejected_restore(struct recover_coupon *coupon)
{
	pages_read(coupon, COUPON_KEY_REJECTED, rejected_take);
}

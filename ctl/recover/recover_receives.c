/*
 * Brings what Redis has of receives back to PostgreSQL, or gives it up: their outcomes, coupon by
 * coupon, and then what orders have done with them (lua/uses.lua).
 */
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
#define RECORD_MEMBERS 20 /* of a record of a use, version 1 */

/* Prints a receive that is lost, or that is rejected with this reason. */
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

/* Reads a list in Redis, page by page. */
static void pages_read(struct redis_client *redis, const char *key,
		       void (*take)(void *context, const redisReply *page), void *context)
{
	char first[NUMBER_SIZE], last[NUMBER_SIZE];
	const char *lrange[] = { "LRANGE", key, first, last };
	size_t n = PAGE;

	for (int64_t from = 0; n == PAGE; from += PAGE) {
		redisReply *page;

		number_text(from, first);
		number_text(from + PAGE - 1, last);
		page = store_reply(redis, redis_client_call(redis, 4, lrange));
		n = page->elements;
		if (n > 0)
			take(context, page);
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
static void settled_take(void *context, const redisReply *page)
{
	struct recover_coupon *coupon = context;

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

/* Returns NULL if the batch is not in the list. */
static const struct time_of *times_find(struct recover_coupon *coupon, const struct times *times,
					const struct ulid *batch)
{
	struct redis_client *redis = coupon->recover->redis;

	if (!coupon->times_are_read) {
		char key[COUPON_KEY_SIZE];

		coupon->times_are_read = 1;
		pages_read(redis, coupon_key(coupon->id, COUPON_KEY_SETTLED, key), settled_take,
			   coupon);
		store_redis_check(redis, outbox_scan(redis, coupon->id, message_take, coupon) == 0);
		times_sort(&coupon->settled);
		times_sort(&coupon->outbox);
	}
	return times->n == 0
		       ? NULL
		       : bsearch(batch, times->list, times->n, sizeof(*times->list), batch_compare);
}

/*
 * Returns when the batch was accepted, by the list of settled batches, or else by its message in
 * the outbox, or else by its id, whose clock is a gateway's.
 */
static int64_t accepted_ms(struct recover_coupon *coupon, const struct ulid *batch)
{
	const struct time_of *found = times_find(coupon, &coupon->settled, batch);

	if (!found)
		found = times_find(coupon, &coupon->outbox, batch);
	return found ? found->at_ms : ulid_time_ms(batch);
}

static int users_take(void *context, const redisReply *users)
{
	struct recover_coupon *coupon = context;
	struct recover *recover = coupon->recover;
	struct slots *slots = &coupon->slots;

	slots->n = 0;
	for (size_t i = 0; i + 1 < users->elements; i += 2) {
		const redisReply *id = users->element[i]; /* any bytes */
		struct user_id user;
		char detail[128];

		if (slots_add_user(slots, id, users->element[i + 1]) == 0)
			continue;
		snprintf(detail, sizeof(detail), "the records of user %s",
			 user_id_parse(&user, id->str, id->len) ? "(a malformed id)" : user.text);
		recover->counts.unreadable++;
		report_coupon(recover, "unreadable", coupon->id, detail);
	}
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

/*
 * Calls `take` for all slots of the coupon in Redis, some thousand at a time. Shows the progress.
 */
static void slots_each(struct recover_coupon *coupon, slots_fn *take)
{
	struct redis_client *redis = coupon->recover->redis;

	coupon->take = take;
	store_redis_check(redis, coupon_scan(redis, coupon->id, COUPON_KEY_USERS, SCAN_COUNT,
					     users_take, coupon) == 0);
	slots_fini(&coupon->slots);
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
	struct recover_counts *counts = &coupon->recover->counts;
	size_t n = list_keep_open(coupon, list, all_n);
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct settle_args args;
	PGresult *rows;
	int rows_n;

	if (n == 0)
		return;
	fault_point(FAULT_RECOVER_SETTLING);
	settle_args_init(&args);
	for (size_t i = 0; i < n; i++)
		slot_settle(&list[i], coupon->id, coupon->settling, seq,
			    accepted_ms(coupon, &list[i].batch), &args);
	settle_args_arguments(&args, arguments);
	rows = db_query_arguments(coupon->recover->db, sql_query_settle, SETTLE_ARGS_N, arguments);
	/* The rows are the receives that were not newly issued, and at last the transaction. */
	rows_n = PQntuples(rows) - 1;
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
	PQclear(rows);
	settle_args_fini(&args);
}

/* Names the lost receives before the loss is recorded: then none is lost unnamed. */
static void list_name(struct recover_coupon *coupon, struct slot *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		report_receive(coupon, "lost", &list[i], NULL);
	coupon->recover->counts.receives_lost += (int64_t)n;
	fflush(stdout);
}

static void list_give_up(struct recover_coupon *coupon, struct slot *list, size_t all_n)
{
	size_t open_n = list_keep_open(coupon, list, all_n), n = 0;
	struct recover *recover = coupon->recover;
	struct slot_arrays arrays;

	/* Keeps those whose message is gone: the others will get an outcome. */
	for (size_t i = 0; i < open_n; i++) {
		char is_older;

		if (!times_find(coupon, &coupon->outbox, &list[i].batch)) {
			list[n++] = list[i];
			continue;
		}
		store_has(recover->redis, coupon->id, COUPON_KEY_KNOWN, &list[i], 1, &is_older);
		coupon->older_owed += is_older;
		coupon->own_owed += !is_older;
	}
	if (n == 0)
		return;
	list_name(coupon, list, n);
	slot_arrays_init(&arrays);
	for (size_t i = 0; i < n; i++) {
		postgres_array_add_number(&arrays.generations, coupon->settling);
		postgres_array_add_number(&arrays.times, accepted_ms(coupon, &list[i].batch));
	}
	(void)store_lost_record(recover->db, coupon->id, list, n, &arrays);
}

void receives_restore(struct recover_coupon *coupon)
{
	slots_each(coupon, coupon->recover->gives_up ? list_give_up : list_settle);
}

void receives_name(struct recover_coupon *coupon)
{
	slots_each(coupon, list_name);
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
	/* Another is of a later version; lua/slot_free.lua gives one that settling does not. */
	if (!reason_find(reason) && strcmp(reason, "void_kept") != 0)
		return -1;
	return user_id_parse(&slot->user, text, strlen(text));
}

static void rejected_take(void *context, const redisReply *page)
{
	struct recover_coupon *coupon = context;
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
	char key[COUPON_KEY_SIZE];

	pages_read(coupon->recover->redis, coupon_key(coupon->id, COUPON_KEY_REJECTED, key),
		   rejected_take, coupon);
}

void recover_uses_begin(struct recover *recover)
{
	static const char *const keys[] = { CHANGES_KEY, CHANGES_USES_KEY };
	PGresult *rows = db_ask(recover->db, sql_query_change_counts);
	char server[SERVER_TEXT_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[] = { recover->changes.installation,
			       server_text(&recover->changes.server, server),
			       column_text(rows, 0, "started"),
			       "9007199254740991",
			       "9007199254740991",
			       "" };

	redis_word_take(redis_client_eval(recover->redis, lua_uses, 2, keys, 6, argv), word);
	store_redis_check(recover->redis, strcmp(word, "ok") == 0);
	PQclear(rows);
}

static int is_record(const redisReply *text)
{
	cJSON *record = text->type == REDIS_REPLY_STRING ? cJSON_Parse(text->str) : NULL;
	int is_one = cJSON_IsArray(record) && cJSON_GetArraySize(record) == RECORD_MEMBERS;

	cJSON_Delete(record);
	return is_one;
}

struct uses_missing {
	struct recover *recover;
	int64_t n; /* records that PostgreSQL did not have */
};

static void uses_take(void *context, const redisReply *page)
{
	struct uses_missing *missing = context;
	struct recover *recover = missing->recover;
	struct postgres_array records = { .type = POSTGRES_TEXT };

	for (size_t i = 0; i < page->elements; i++)
		if (is_record(page->element[i]))
			postgres_array_add_text(&records, page->element[i]->str,
						page->element[i]->len);
		else
			recover->counts.unreadable++;
	missing->n += db_value(recover->db, sql_query_recover_uses, postgres_array(&records));
	postgres_array_fini(&records);
}

void recover_uses(struct recover *recover)
{
	const char *unlink[] = { "UNLINK", CHANGES_USES_KEY };
	int is_undone = recover->is_dry || recover->gives_up;
	struct uses_missing missing = { .recover = recover };
	int64_t n;

	db_run(recover->db, "BEGIN");
	pages_read(recover->redis, CHANGES_USES_KEY, uses_take, &missing);
	/* Budgets that are to be checked. With --tail no terms are missing. */
	if (!recover->gives_up && (missing.n > 0 || !recover->tail_max)) {
		PGresult *rows = db_ask(recover->db, sql_query_recover_uses_end);

		for (int row = 0; row < PQntuples(rows); row++) {
			cJSON *object = output_object();

			output_text(object, "what", "check");
			output_text(object, "budget", column_text(rows, row, "name"));
			output_say(object, "{what}: the amount of the budget {budget}\n",
				   recover->is_json);
		}
		PQclear(rows);
	}
	db_run(recover->db, is_undone ? "ROLLBACK" : "COMMIT");

	if (!recover->gives_up) {
		recover->counts.uses = missing.n;
		return;
	}
	recover->counts.uses_lost = missing.n;
	if (!recover->is_dry)
		store_redis_check(recover->redis,
				  redis_client_integer(recover->redis, 2, unlink, &n) == 0);
}

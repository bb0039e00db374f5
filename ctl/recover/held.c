#include "ctl/recover/held.h"

#include "common/check.h"
#include "common/message/number.h"
#include "ctl/recover/coupons.h"
#include "ctl/recover/report.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pages_read(struct redis_client *redis, int64_t coupon, enum coupon_key which, pages_fn *take,
		void *context)
{
	char key[COUPON_KEY_SIZE], first[NUMBER_SIZE], last[NUMBER_SIZE];
	const char *lrange[] = { "LRANGE", coupon_key(coupon, which, key), first, last };
	size_t n;

	for (int64_t from = 0;; from += PAGES_PAGE) {
		redisReply *page;

		number_text(from, first);
		number_text(from + PAGES_PAGE - 1, last);
		page = redis_client_call(redis, 4, lrange);
		store_redis_check(redis, page != NULL);
		n = page->elements;
		if (n > 0)
			take(context, page);
		freeReplyObject(page);
		if (n < PAGES_PAGE)
			return;
	}
}

static void times_add(struct times *times, const struct ulid *batch, int64_t at_ms)
{
	if (times->n == times->size) {
		times->size = times->size ? 2 * times->size : 1024;
		times->list = realloc(times->list, times->size * sizeof(*times->list));
		check(times->list != NULL);
	}
	times->list[times->n++] = (struct time_of){ *batch, at_ms };
}

static int batch_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct ulid));
}

static void times_sort(struct times *times)
{
	_Static_assert(offsetof(struct time_of, batch) == 0, "compared from its beginning");
	if (times->n > 1)
		qsort(times->list, times->n, sizeof(*times->list), batch_compare);
}

/* Of "BATCH:AT". */
static void settled_take(void *context, const redisReply *page)
{
	struct times *times = context;

	for (size_t i = 0; i < page->elements; i++) {
		const redisReply *entry = page->element[i];
		struct ulid batch;
		int64_t at_ms;

		if (entry->len > ULID_LEN && entry->str[ULID_LEN] == ':' &&
		    ulid_parse(&batch, entry->str, ULID_LEN) == 0 &&
		    number_parse(entry->str + ULID_LEN + 1, INT64_MAX, &at_ms) == 0)
			times_add(times, &batch, at_ms);
	}
}

/* Each is called once, and makes the table ready for times_find(). */
static void times_read_settled(struct times *times, struct redis_client *redis, int64_t coupon)
{
	pages_read(redis, coupon, COUPON_KEY_SETTLED, settled_take, times);
	times_sort(times);
}

static void message_take(void *context, const struct message *message)
{
	times_add(context, &message->batch, message->at_ms);
}

static void times_read_outbox(struct times *times, struct redis_client *redis, int64_t coupon)
{
	outbox_scan(redis, coupon, message_take, times);
	times_sort(times);
}

/* 0 with the time, or -1: the batch is not in it. */
static int times_find(const struct times *times, const struct ulid *batch, int64_t *at_ms)
{
	const struct time_of *found = NULL;

	if (times->n > 0)
		found = bsearch(batch, times->list, times->n, sizeof(*times->list), batch_compare);
	if (found)
		*at_ms = found->at_ms;
	return found ? 0 : -1;
}

#define SCAN_COUNT 4000

struct reading {
	struct recover_coupon *coupon;
	held_fn *take;
	struct held *list;
	size_t n;
};

static void list_take(struct reading *reading)
{
	if (reading->n > 0)
		reading->take(reading->coupon, reading->list, reading->n);
	reading->n = 0;
}

/* `user` is NULL when its id is malformed: it may have any bytes. */
static void unreadable(struct recover_coupon *coupon, const struct user_id *user)
{
	char detail[128];

	snprintf(detail, sizeof(detail), "the records of user %s",
		 user ? user->text : "(a malformed id)");
	coupon->recover->counts.unreadable++;
	report_coupon(coupon->recover, "unreadable", coupon->id, detail);
}

static void records_add(struct reading *reading, const redisReply *id, const char *text)
{
	struct held held;

	if (user_id_parse(&held.user, id->str, id->len)) {
		unreadable(reading->coupon, NULL);
		return;
	}
	while (user_record_next(&text, &held.record) == 0) {
		if (reading->n == HELD_MAX)
			list_take(reading);
		reading->list[reading->n++] = held;
	}
	if (text)
		unreadable(reading->coupon, &held.user);
}

static void users_take(void *context, const redisReply *users)
{
	struct reading *reading = context;
	struct recover *recover = reading->coupon->recover;

	for (size_t i = 0; i + 1 < users->elements; i += 2)
		records_add(reading, users->element[i], users->element[i + 1]->str);
	list_take(reading); /* its keys are lent by the reply */
	recover->users_done += (int64_t)users->elements / 2;
	/* A scan may return a user twice. */
	if (recover->users_done > recover->users_n)
		recover->users_done = recover->users_n;
	progress_show(&recover->progress, "users", recover->users_done, recover->users_n);
}

void held_read(struct recover_coupon *coupon, held_fn *take)
{
	struct reading reading = { .coupon = coupon, .take = take };

	reading.list = malloc(HELD_MAX * sizeof(*reading.list));
	check(reading.list != NULL);
	store_hash_scan(coupon->recover->redis, coupon->id, COUPON_KEY_USERS, SCAN_COUNT,
			users_take, &reading);
	free(reading.list);
}

size_t held_keep_open(struct recover_coupon *coupon, struct held *list, size_t n)
{
	struct postgres_array users = { .type = POSTGRES_TEXT }, slots = { .type = POSTGRES_INT2 },
			      batches = { .type = POSTGRES_UUID },
			      indexes = { .type = POSTGRES_INT2 };
	const struct postgres_argument arguments[] = {
		postgres_number(coupon->id), postgres_array(&users), postgres_array(&slots),
		postgres_array(&batches), postgres_array(&indexes)
	};
	PGresult *open;
	size_t kept;

	for (size_t i = 0; i < n; i++) {
		postgres_array_add_text(&users, list[i].user.text, list[i].user.len);
		postgres_array_add_number(&slots, list[i].record.slot);
		postgres_array_add_uuid(&batches, &list[i].record.batch);
		postgres_array_add_number(&indexes, list[i].record.index);
	}
	open = db_query_arguments(coupon->recover->db, sql_query_lost_candidates, 5, arguments);
	kept = (size_t)PQntuples(open);
	for (size_t i = 0; i < kept; i++)
		list[i] = list[db_int(open, (int)i, "ord") - 1];
	PQclear(open);
	postgres_array_fini(&users);
	postgres_array_fini(&slots);
	postgres_array_fini(&batches);
	postgres_array_fini(&indexes);
	return kept;
}

static void times_read(struct recover_coupon *coupon)
{
	if (coupon->times_are_read)
		return;
	coupon->times_are_read = 1;
	times_read_settled(&coupon->settled, coupon->recover->redis, coupon->id);
	times_read_outbox(&coupon->outbox, coupon->recover->redis, coupon->id);
}

int64_t held_time(struct recover_coupon *coupon, const struct ulid *batch)
{
	int64_t at_ms;

	times_read(coupon);
	if (times_find(&coupon->settled, batch, &at_ms) == 0 ||
	    times_find(&coupon->outbox, batch, &at_ms) == 0)
		return at_ms;
	return ulid_time_ms(batch);
}

int held_is_sent(struct recover_coupon *coupon, const struct ulid *batch)
{
	int64_t at_ms;

	times_read(coupon);
	return times_find(&coupon->outbox, batch, &at_ms) == 0;
}

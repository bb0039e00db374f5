#include "ctl/recover/rejected.h"

#include "common/message/number.h"
#include "ctl/recover/held.h"
#include "ctl/recover/report.h"
#include "ctl/slots.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define REASON_SIZE 32

struct rejected {
	struct slot slot;
	char reason[REASON_SIZE];
};

enum { BATCHES, INDEXES, USERS, SLOTS, REASONS, TIMES, HOLDS, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[BATCHES] = POSTGRES_UUID, [INDEXES] = POSTGRES_INT2, [USERS] = POSTGRES_TEXT,
	[SLOTS] = POSTGRES_INT2,   [REASONS] = POSTGRES_TEXT, [TIMES] = POSTGRES_INT8,
	[HOLDS] = POSTGRES_INT2,
};

/* Takes a number and the colon after it. 0, or -1. */
static int number_take(const char **text, int64_t most, int16_t *number)
{
	size_t len = strcspn(*text, ":");
	char digits[NUMBER_SIZE];
	int64_t value;

	if ((*text)[len] != ':' || len >= sizeof(digits))
		return -1;
	memcpy(digits, *text, len);
	digits[len] = '\0';
	if (number_parse(digits, most, &value))
		return -1;
	*number = (int16_t)value;
	*text += len + 1;
	return 0;
}

/* Whether settling gives it. A later version may have others. */
static int reason_is_known(const char *reason)
{
	static const char *const reasons[] = {
#define REASON(name, text) text,
#include "common/message/reason_table.h"
#undef REASON
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (strcmp(reasons[i], reason) == 0)
			return 1;
	return strcmp(reason, "void_kept") == 0; /* of lua/release.lua */
}

/* Parses "BATCH:INDEX:SLOT:REASON:USER". 0, or -1. */
static int rejected_parse(struct rejected *rejected, const char *text)
{
	size_t len;

	if (strlen(text) <= ULID_LEN || text[ULID_LEN] != ':' ||
	    ulid_parse(&rejected->slot.batch, text, ULID_LEN))
		return -1;
	text += ULID_LEN + 1;
	if (number_take(&text, RECEIVE_INDEX_MAX, &rejected->slot.index) ||
	    number_take(&text, INT16_MAX, &rejected->slot.number))
		return -1;
	len = strcspn(text, ":");
	if (text[len] != ':' || len >= REASON_SIZE)
		return -1;
	memcpy(rejected->reason, text, len);
	rejected->reason[len] = '\0';
	if (!reason_is_known(rejected->reason))
		return -1;
	text += len + 1;
	return user_id_parse(&rejected->slot.user, text, strlen(text));
}

static size_t page_parse(struct recover_coupon *coupon, const redisReply *page,
			 struct rejected list[PAGES_PAGE])
{
	size_t n = 0;

	for (size_t i = 0; i < page->elements; i++) {
		if (rejected_parse(&list[n], page->element[i]->str) == 0) {
			n++;
			continue;
		}
		coupon->recover->counts.unreadable++;
		report_coupon(coupon->recover, "unreadable", coupon->id, "a rejected receive");
	}
	return n;
}

/* The records of their users. */
static redisReply *records_read(struct recover_coupon *coupon, const struct rejected *list,
				size_t n)
{
	const char *hmget[2 + PAGES_PAGE] = { "HMGET" };
	char key[COUPON_KEY_SIZE];
	redisReply *records;

	hmget[1] = coupon_key(coupon->id, COUPON_KEY_USERS, key);
	for (size_t i = 0; i < n; i++)
		hmget[2 + i] = list[i].slot.user.text;
	records = redis_client_call(coupon->recover->redis, (int)n + 2, hmget);
	store_redis_check(coupon->recover->redis, records != NULL);
	return records;
}

static int is_held(const struct slot *slot, const redisReply *records)
{
	struct slot found;

	return records->type == REDIS_REPLY_STRING &&
	       slot_look_up(slot, NULL, records->str, records->len, &found) == SLOT_SAME;
}

static void arrays_fill(struct recover_coupon *coupon, const struct rejected *list, size_t n,
			struct postgres_array arrays[ARRAYS])
{
	redisReply *records = records_read(coupon, list, n);

	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = &list[i].slot;

		postgres_array_add_uuid(&arrays[BATCHES], &slot->batch);
		postgres_array_add_number(&arrays[INDEXES], slot->index);
		postgres_array_add_text(&arrays[USERS], slot->user.text, slot->user.len);
		postgres_array_add_number(&arrays[SLOTS], slot->number);
		postgres_array_add_text(&arrays[REASONS], list[i].reason, strlen(list[i].reason));
		postgres_array_add_number(&arrays[TIMES], held_time(coupon, &slot->batch));
		postgres_array_add_number(&arrays[HOLDS], is_held(slot, records->element[i]));
	}
	freeReplyObject(records);
}

static void page_restore(void *context, const redisReply *page)
{
	struct recover_coupon *coupon = context;
	struct rejected list[PAGES_PAGE];
	size_t n = page_parse(coupon, page, list);
	struct postgres_array arrays[ARRAYS];
	struct postgres_argument arguments[1 + ARRAYS] = { postgres_number(coupon->id) };
	PGresult *added;

	if (n == 0)
		return;
	arrays_fill(coupon, list, n, arrays);
	for (int i = 0; i < ARRAYS; i++)
		arguments[1 + i] = postgres_array(&arrays[i]);
	added = db_query_arguments(coupon->recover->db, sql_query_recover_rejected, 1 + ARRAYS,
				   arguments);
	coupon->recover->counts.rejections += PQntuples(added);
	coupon->recover->counts.rejections_there += (int64_t)n - PQntuples(added);
	PQclear(added);
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_fini(&arrays[i]);
}

void rejected_restore(struct recover_coupon *coupon)
{
	pages_read(coupon->recover->redis, coupon->id, COUPON_KEY_REJECTED, page_restore, coupon);
}

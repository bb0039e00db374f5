#include "ctl/audit/pass.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/id.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SET_MAX (8 * 1000 * 1000) /* 128 MB at most; of more the rest is looked up one by one */
#define OPEN_MAX 50000            /* open slots to collect before they are looked up */
/* for what is in flight to settle, where only that tells whether it was taken at the cut */
#define RESOLVE_WAIT_MS 2000
#define RESOLVE_PAUSE_US 100000
#define CURSOR_SIZE 24

void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how)
{
	if (suspects->n == suspects->size) {
		suspects->size = suspects->size ? suspects->size * 2 : 256;
		suspects->list = realloc(suspects->list, suspects->size * sizeof(*suspects->list));
		check(suspects->list != NULL);
	}
	suspects->list[suspects->n++] = (struct suspect){ .slot = *slot, .how = how };
}

void suspects_fini(struct suspects *suspects)
{
	free(suspects->list);
	memset(suspects, 0, sizeof(*suspects));
}

/* The user coupons of one page, in the order of the page. */
struct page {
	struct slot slots[DB_PAGE];
	const char *keys[DB_PAGE];
	size_t n;
};

static void row_compare(struct pass *pass, const struct slot *slot, const char *key,
			const redisReply *records)
{
	struct slot found;
	enum slot_found how = records_look_up(records, slot, key, &found);

	switch (how) {
	case SLOT_OTHER_KEY:
		suspects_add(&pass->rows, slot, how);
		/* fall through */
	case SLOT_SAME:
		pass->counted += slot_set_add(&pass->set, slot);
		return;
	case SLOT_NONE:
		suspects_add(&pass->rows, slot, how);
		return;
	case SLOT_OTHER: /* found among the open slots */
	case SLOT_MALFORMED:
		return;
	}
}

static void page_compare(struct pass *pass, const struct page *page)
{
	size_t step = users_step(pass->row.limit);

	for (size_t at = 0; at < page->n; at += step) {
		size_t n = page->n - at < step ? page->n - at : step;
		redisReply *records = users_read(pass->audit, pass->coupon, page->slots + at, n);

		for (size_t i = 0; i < n; i++)
			row_compare(pass, &page->slots[at + i], page->keys[at + i],
				    records->element[i]);
		freeReplyObject(records);
	}
}

/* Whether the same receive was there before, or may have been. */
static int is_seen(struct slot_set *receives, const struct slot *slot)
{
	const struct slot receive = { .batch = slot->batch, .index = slot->index };

	return slot_set_has(receives, &receive) || !slot_set_add(receives, &receive);
}

static void page_read(struct pass *pass, const PGresult *result, struct page *page)
{
	int key = PQfnumber(result, "key");
	struct columns columns;

	columns_find(result, &columns);
	page->n = (size_t)PQntuples(result);
	check(page->n <= DB_PAGE && key >= 0);
	for (size_t i = 0; i < page->n; i++) {
		slot_read(result, (int)i, &columns, &page->slots[i]);
		page->keys[i] = PQgetvalue(result, (int)i, key);
		if (page->slots[i].number > pass->row.limit)
			slots_add(&pass->beyond, &page->slots[i]);
		pass->may_be_twice |= is_seen(&pass->receives, &page->slots[i]);
	}
	pass->rows_n += (int64_t)page->n;
}

static void rows_read(struct pass *pass)
{
	static struct page page;
	char id[DB_NUMBER_SIZE];

	db_pages_begin(pass->audit->db, sql_query_audit_rows, 1,
		       (const char *[]){ db_number(pass->coupon, id) });
	do {
		PGresult *result = db_page(pass->audit->db);

		page_read(pass, result, &page);
		if (pass->compared)
			page_compare(pass, &page);
		PQclear(result);
	} while (page.n > 0);
	db_pages_end(pass->audit->db);
}

static void snapshot_read(struct pass *pass)
{
	struct db *db = pass->audit->db;
	char id[DB_NUMBER_SIZE];

	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	audit_row_read(db, pass->coupon, &pass->row);
	audit_generations_read(db, pass->coupon, &pass->row, &pass->generations);
	cut_read_exact(pass->audit, pass->coupon, &pass->cut, &pass->generations);
	/* A Redis that has lost data, or that another generation is in, is told as that. */
	pass->compared = pass->cut.present && !pass->cut.bad && !pass->cut.held &&
			 pass->cut.coupon.generation == pass->row.generation &&
			 (pass->cut.verified || pass->cut.coupon.seq >= pass->row.seq_seen);
	rows_read(pass);
	slot_set_fini(&pass->receives);
	/* Sorting all receives takes as long as all else. */
	if (pass->may_be_twice || pass->row.tombstones > 0)
		pass->twice = db_query(db, sql_query_audit_twice, 1,
				       (const char *[]){ db_number(pass->coupon, id) });
	db_run(db, "COMMIT");
}

/* Whether it was taken at the cut. */
static void time_count(struct pass *pass, int64_t accepted_ms)
{
	pass->by_time++;
	if (accepted_ms < pass->cut.at_ms || (accepted_ms == pass->cut.at_ms && pass->cut.exact))
		pass->counted++;
	else if (accepted_ms == pass->cut.at_ms)
		pass->doubtful++;
}

static void open_resolve(struct pass *pass, struct suspect *suspect, const struct outcome *outcome)
{
	suspect->state = SUSPECT_NEW;
	if (outcome->issued_ms >= 0) {
		time_count(pass, outcome->issued_ms);
		suspect->state = SUSPECT_GONE;
	} else if (outcome->rejected_ms >= 0 && !outcome->is_released) {
		time_count(pass, outcome->rejected_ms);
		pass->pending++;
		suspect->state = SUSPECT_GONE;
	} else if (outcome->rejected_ms >= 0) {
		suspect->state = SUSPECT_HELD;
	}
}

/*
 * By batch, which makes the outbox's questions few; equal ones, which a scan may tell twice, side
 * by side.
 */
static int compare(const void *a, const void *b)
{
	const struct suspect *one = a, *other = b;
	int order = memcmp(&one->slot.batch, &other->slot.batch, sizeof(one->slot.batch));

	return order ? order : slot_compare(&one->slot, &other->slot);
}

static void open_sort(struct suspects *open)
{
	size_t kept = 0;

	if (open->n > 1)
		qsort(open->list, open->n, sizeof(*open->list), compare);
	for (size_t i = 0; i < open->n; i++)
		if (kept == 0 || compare(&open->list[kept - 1], &open->list[i]) != 0 ||
		    !slot_same_receive(&open->list[kept - 1].slot, &open->list[i].slot))
			open->list[kept++] = open->list[i];
	open->n = kept;
}

void pass_open_resolve(struct pass *pass)
{
	static struct outcome outcomes[AUDIT_ASK_MAX];
	static struct slot slots[AUDIT_ASK_MAX];
	struct suspects *open = &pass->open;
	size_t kept = 0;

	for (size_t at = 0; at < open->n; at += AUDIT_ASK_MAX) {
		size_t n = open->n - at < AUDIT_ASK_MAX ? open->n - at : AUDIT_ASK_MAX;

		for (size_t i = 0; i < n; i++)
			slots[i] = open->list[at + i].slot;
		audit_outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
		for (size_t i = 0; i < n; i++) {
			struct suspect *suspect = &open->list[at + i];
			enum suspect_state before = suspect->state;

			open_resolve(pass, suspect, &outcomes[i]);
			if (suspect->state == SUSPECT_GONE)
				continue;
			if (suspect->state == SUSPECT_NEW && before != SUSPECT_HELD)
				suspect->state = before;
			if (suspect->state != before)
				suspect->looks = 0;
			open->list[kept++] = *suspect;
		}
	}
	open->n = kept;
}

static void records_take(struct pass *pass, const redisReply *user, const redisReply *records)
{
	struct slot malformed = { .user = 0 };
	struct slots slots = { 0 };

	if (id_parse(user->str, user->len, &malformed.user) ||
	    slots_add_records(&slots, malformed.user, records->str, records->len))
		slots_add(&pass->malformed, &malformed);
	pass->slots_n += (int64_t)slots.n;
	pass->several_n += slots.n > 1;
	for (size_t i = 0; i < slots.n; i++)
		if (!slot_set_has(&pass->set, &slots.list[i]))
			suspects_add(&pass->open, &slots.list[i], SLOT_SAME);
	slots_fini(&slots);
}

static void users_scan(struct pass *pass)
{
	char cursor[CURSOR_SIZE] = "0", key[CACHE_KEY_SIZE];
	int step = (int)users_step(pass->row.limit);

	cache_key(pass->coupon, ":users", key);
	do {
		redisReply *reply = cache_scan(pass->audit->cache, key, cursor, step);

		audit_redis_need(pass->audit, reply != NULL);
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (size_t i = 0; i + 1 < reply->element[1]->elements; i += 2)
			records_take(pass, reply->element[1]->element[i],
				     reply->element[1]->element[i + 1]);
		freeReplyObject(reply);
		if (pass->open.n > OPEN_MAX && pass->set.n == pass->set.max)
			pass_open_resolve(pass);
	} while (strcmp(cursor, "0") != 0);
	slots_sort(&pass->malformed);
	open_sort(&pass->open);
}

int64_t pass_gone(const struct pass *pass)
{
	int64_t rows = pass->row.issued - pass->rows_n;
	int64_t outcomes = pass->row.generation > 1
				   ? 0
				   : pass->row.settled_sum - pass->rows_n - pass->row.rejected;

	return rows > outcomes ? rows : outcomes;
}

int pass_counts_users(const struct pass *pass)
{
	return pass->row.limit == 1 && pass->cut.coupon.limit == 1 && pass->several_n == 0;
}

static int is_any_new(const struct suspects *open)
{
	for (size_t i = 0; i < open->n; i++)
		if (open->list[i].state == SUSPECT_NEW)
			return 1;
	return 0;
}

void pass_run(struct pass *pass, struct audit *audit, int64_t coupon)
{
	int64_t until_ms;

	memset(pass, 0, sizeof(*pass));
	pass->audit = audit;
	pass->coupon = coupon;
	slot_set_init(&pass->set, SET_MAX);
	slot_set_init(&pass->receives, SET_MAX);
	snapshot_read(pass);
	pass->after = pass->cut;
	if (!pass->compared)
		return;
	users_scan(pass);
	pass_open_resolve(pass);
	for (until_ms = clock_monotonic_ms() + RESOLVE_WAIT_MS; !pass_counts_users(pass) &&
								is_any_new(&pass->open) &&
								clock_monotonic_ms() < until_ms;) {
		usleep(RESOLVE_PAUSE_US);
		pass_open_resolve(pass);
	}
	cut_read(audit, coupon, &pass->after, NULL, 0);
	pass_outbox_read(pass);
}

enum sum_verdict pass_sum(const struct pass *pass)
{
	const struct cache_coupon *a = &pass->cut.coupon, *b = &pass->after.coupon;
	int64_t freed = b->stock + b->seq - a->stock - a->seq + b->lost - a->lost;
	int64_t over = cut_taken(&pass->cut) - pass->counted;
	int64_t most = (int64_t)(pass->open.n + pass->rows.n) + pass->doubtful +
		       (int64_t)pass->malformed.n * pass->row.limit;

	if (!pass->compared)
		return SUM_RIGHT;
	if (pass_counts_users(pass))
		return SUM_AT_CUT;
	if (!pass->after.present || pass->after.bad || a->generation != b->generation ||
	    a->version != b->version || a->reserved != b->reserved || a->late != b->late ||
	    freed < 0)
		return SUM_UNSURE;
	if (over >= 0 && over <= most + freed)
		return SUM_RIGHT;
	/* What the time of acceptance told may be untrue once, when a clock jumped. */
	return freed == 0 && a->seq == b->seq && pass->by_time == 0 && pass->open.n == 0
		       ? SUM_WRONG
		       : SUM_SUSPECT;
}

void pass_fini(struct pass *pass)
{
	PQclear(pass->twice);
	slot_set_fini(&pass->set);
	slot_set_fini(&pass->receives);
	slots_fini(&pass->malformed);
	slots_fini(&pass->beyond);
	suspects_fini(&pass->rows);
	suspects_fini(&pass->open);
	suspects_fini(&pass->outbox);
	free(pass->entries);
}

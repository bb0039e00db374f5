#include "ctl/audit/compare.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "ctl/audit/pass.h"
#include "ctl/audit/redis.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counts a receive by its time of acceptance. */
static void time_count(struct pass *pass, int64_t accepted_ms)
{
	pass->by_time++;
	if (accepted_ms < pass->cut.at_ms || (accepted_ms == pass->cut.at_ms && pass->cut.exact))
		pass->counted++;
	else if (accepted_ms == pass->cut.at_ms)
		pass->doubtful++;
}

static void suspect_resolve(struct pass *pass, struct suspect *suspect,
			    const struct outcome *outcome)
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

/* By batch: then outbox_has() sends one command a batch. */
static int compare(const void *a, const void *b)
{
	const struct suspect *one = a, *other = b;
	int order = memcmp(&one->slot.batch, &other->slot.batch, sizeof(one->slot.batch));

	return order ? order : slot_compare(&one->slot, &other->slot);
}

/* Sorts the open slots by batch and removes duplicates, which a scan may return. */
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

void open_resolve(struct pass *pass)
{
	static struct outcome outcomes[AUDIT_ASK_MAX];
	static struct slot slots[AUDIT_ASK_MAX];
	struct suspects *open = &pass->open;
	size_t kept = 0;

	for (size_t at = 0, n; at < open->n; at += n) {
		n = suspects_slots(open, at, AUDIT_ASK_MAX, slots);
		audit_outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
		for (size_t i = 0; i < n; i++) {
			struct suspect *suspect = &open->list[at + i];
			enum suspect_state before = suspect->state;

			suspect_resolve(pass, suspect, &outcomes[i]);
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

#define OPEN_MAX 50000 /* open slots to collect before their outcomes are read */
#define RESOLVE_WAIT_MS 2000
#define RESOLVE_PAUSE_MS 100

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
	size_t step = records_step(pass->row.limit);

	for (size_t at = 0; at < page->n; at += step) {
		size_t n = page->n - at < step ? page->n - at : step;
		redisReply *records = records_read(pass->audit->redis, pass->coupon,
						   page->slots + at, n);

		for (size_t i = 0; i < n; i++)
			row_compare(pass, &page->slots[at + i], page->keys[at + i],
				    records->element[i]);
		freeReplyObject(records);
	}
}

/* Whether the receive was read before, or may have been. */
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
	/* A Redis that lost data, or has another generation, is a finding of its own. */
	pass->compared = pass->cut.present && !pass->cut.bad && !pass->cut.held &&
			 pass->cut.coupon.generation == pass->row.generation &&
			 (pass->cut.verified || pass->cut.coupon.seq >= pass->row.seq_seen);
	rows_read(pass);
	slot_set_fini(&pass->receives);
	/* This query sorts all receives, which takes as long as the rest of the pass. */
	if (pass->may_be_twice || pass->row.tombstones > 0)
		pass->twice = db_query(db, sql_query_audit_twice, 1,
				       (const char *[]){ db_number(pass->coupon, id) });
	db_run(db, "COMMIT");
}

static void records_take(struct pass *pass, const redisReply *user, const redisReply *records)
{
	struct slot malformed = { 0 };
	struct slots slots = { 0 };

	if (user_id_parse(&malformed.user, user->str, user->len) ||
	    slots_add_records(&slots, &malformed.user, records->str, records->len))
		slots_add(&pass->malformed, &malformed);
	pass->several_n += slots.n > 1;
	for (size_t i = 0; i < slots.n; i++)
		if (!slot_set_has(&pass->set, &slots.list[i]))
			suspects_add(&pass->open, &slots.list[i], SLOT_SAME);
	slots_fini(&slots);
}

static void users_take(void *context, const redisReply *users)
{
	struct pass *pass = context;

	for (size_t i = 0; i + 1 < users->elements; i += 2)
		records_take(pass, users->element[i], users->element[i + 1]);
	if (pass->open.n > OPEN_MAX && pass->set.n == pass->set.max)
		open_resolve(pass);
}

static void users_scan(struct pass *pass)
{
	store_hash_scan(pass->audit->redis, pass->coupon, COUPON_KEY_USERS,
			(int)records_step(pass->row.limit), users_take, pass);
	slots_sort(&pass->malformed);
	open_sort(&pass->open);
}

/* Where only an outcome says whether the cut counts a receive, waits a moment for outcomes. */
static void open_wait(struct pass *pass)
{
	struct audit *audit = pass->audit;
	int64_t until_ms = clock_monotonic_ms() + RESOLVE_WAIT_MS;

	open_resolve(pass);
	while (!pass_counts_users(pass) && suspects_count(&pass->open, SUSPECT_NEW) > 0 &&
	       clock_monotonic_ms() < until_ms && audit->resolve_ms > 0) {
		usleep(RESOLVE_PAUSE_MS * 1000);
		audit->resolve_ms -= RESOLVE_PAUSE_MS;
		open_resolve(pass);
	}
}

void compare_run(struct pass *pass, struct audit *audit, int64_t coupon)
{
	pass_init(pass, audit, coupon);
	snapshot_read(pass);
	pass->after = pass->cut;
	if (!pass->compared)
		return;
	users_scan(pass);
	open_wait(pass);
	cut_read(audit, coupon, &pass->after, NULL, 0);
	if (pass->cut.outbox > 0)
		outbox_read(&pass->outbox, audit, coupon, &pass->open,
			    pass->after.at_ms - audit->grace_ms);
}

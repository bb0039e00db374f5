/* Reads a coupon in both stores, and finds the slots that they do not have alike. */
#include "ctl/audit/audit.h"

#include "common/array.h"
#include "common/clock.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTBOX_ENTRIES_MAX 1000   /* of each kind that are kept */
#define SET_MAX (8 * 1000 * 1000) /* 128 MB at most; what does not fit is looked up one by one */
#define OPEN_MAX 50000            /* open slots to collect before their outcomes are read */
#define RESOLVE_WAIT_MS 2000
#define RESOLVE_PAUSE_MS 100

static void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how)
{
	suspects->list = array_room(suspects->list, suspects->n, &suspects->size,
				    sizeof(*suspects->list));
	suspects->list[suspects->n++] = (struct suspect){ .slot = *slot, .how = how };
}

void suspects_each(struct pass *pass, struct suspects *suspects, size_t step, suspects_fn *fn)
{
	static struct slot slots[COUPON_SLOTS_MAX];
	size_t kept = 0;

	for (size_t at = 0, n; at < suspects->n; at += n) {
		n = suspects->n - at < step ? suspects->n - at : step;
		for (size_t i = 0; i < n; i++)
			slots[i] = suspects->list[at + i].slot;
		fn(pass, suspects->list + at, slots, n);
	}
	for (size_t i = 0; i < suspects->n; i++)
		if (suspects->list[i].state != SUSPECT_GONE)
			suspects->list[kept++] = suspects->list[i];
	suspects->n = kept;
}

int64_t suspects_count(const struct suspects *suspects, enum suspect_state state)
{
	int64_t n = 0;

	for (size_t i = 0; i < suspects->n; i++)
		n += suspects->list[i].state == state;
	return n;
}

/* A scan may return an entry twice. */
static void bad_add(struct pass *pass, const char *batch, const char *error)
{
	if (!pass->bad)
		pass->bad = output_object();
	if (!cJSON_GetObjectItemCaseSensitive(pass->bad, batch) &&
	    cJSON_GetArraySize(pass->bad) < OUTBOX_ENTRIES_MAX)
		output_text(pass->bad, batch, error);
}

static int batch_compare(const void *key, const void *element)
{
	const struct suspect *suspect = element;

	return memcmp(key, &suspect->slot.batch, sizeof(suspect->slot.batch));
}

/* Adds a message whose receives all have an outcome, named by the first of them. */
static void settled_add(struct pass *pass, const struct message *message)
{
	const struct suspects *open = &pass->open, *settled = &pass->settled;
	struct slots slots = { 0 };
	int is_settled;

	/* Most messages are in flight, and PostgreSQL need not be asked about them. */
	if (open->n > 0 &&
	    bsearch(&message->batch, open->list, open->n, sizeof(*open->list), batch_compare))
		return;
	slots_add_message(&slots, message);
	is_settled = slots.n > 0 &&
		     store_keep_open(pass->audit->db, pass->coupon, slots.list, slots.n) == 0;
	for (size_t i = 0; i < settled->n && is_settled; i++)
		is_settled &= !slot_same_receive(&settled->list[i].slot, &slots.list[0]);
	if (is_settled)
		suspects_add(&pass->settled, &slots.list[0], SLOT_SAME);
	slots_fini(&slots);
}

static int entry_take(void *context, const redisReply *batch, const struct message *message,
		      const char *error)
{
	struct pass *pass = context;

	if (error)
		bad_add(pass, batch->str, error);
	else if (message->at_ms < pass->after.at_ms - pass->audit->grace_ms &&
		 pass->settled.n < OUTBOX_ENTRIES_MAX)
		settled_add(pass, message);
	return 0;
}

/* Counts a receive by its time of acceptance. */
static void time_count(struct pass *pass, int64_t accepted_ms)
{
	pass->by_time++;
	if (accepted_ms < pass->cut.at_ms || (accepted_ms == pass->cut.at_ms && pass->cut.exact))
		pass->counted++;
	else if (accepted_ms == pass->cut.at_ms)
		pass->doubtful++;
}

static void suspect_resolve(struct pass *pass, struct suspect *suspect, const PGresult *outcomes,
			    int row)
{
	int is_issued = !db_is_null(outcomes, row, "issued_ms"),
	    is_rejected = !db_is_null(outcomes, row, "rejected_ms");
	enum suspect_state before = suspect->state;

	if (is_issued || (is_rejected && !db_is_true(outcomes, row, "is_freed"))) {
		pass->pending += !is_issued;
		time_count(pass,
			   column_number(outcomes, row, is_issued ? "issued_ms" : "rejected_ms"));
		suspect->state = SUSPECT_GONE;
	} else if (is_rejected) {
		suspect->state = SUSPECT_HELD;
	} else if (before == SUSPECT_HELD) {
		suspect->state = SUSPECT_FLIGHT;
	}
	if (suspect->state != before) {
		suspect->looks = 0;
		suspect->result = LOOK_RIGHT;
	}
}

static void open_resolve(struct pass *pass, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	PGresult *outcomes = outcomes_read(pass, slots, n);

	for (size_t i = 0; i < n; i++)
		suspect_resolve(pass, &suspects[i], outcomes, (int)i);
	PQclear(outcomes);
}

void pass_resolve(struct pass *pass)
{
	suspects_each(pass, &pass->open, COUPON_SLOTS_MAX, open_resolve);
}

/* By batch, for settled_add(). */
static int compare(const void *a, const void *b)
{
	const struct suspect *one = a, *other = b;
	int order = memcmp(&one->slot.batch, &other->slot.batch, sizeof(one->slot.batch));

	if (order == 0)
		order = slot_compare(&one->slot, &other->slot);
	return order ? order : one->slot.index - other->slot.index;
}

static void row_compare(struct pass *pass, const struct slot *slot, const redisReply *records)
{
	enum slot_found how = slot_look_up(slot, slot->tail, records);

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

static void rows_compare(struct pass *pass, const struct slot *slots, size_t n)
{
	size_t step = records_step(pass->row.limit);

	for (size_t at = 0; at < n; at += step) {
		size_t part = n - at < step ? n - at : step;
		redisReply *records = records_read(pass, slots + at, part);

		for (size_t i = 0; i < part; i++)
			row_compare(pass, &slots[at + i], records->element[i]);
		freeReplyObject(records);
	}
}

/* Whether the receive was read before, or may have been. */
static int is_seen(struct slot_set *receives, const struct slot *slot)
{
	const struct slot receive = { .batch = slot->batch, .index = slot->index };

	return slot_set_has(receives, &receive) || !slot_set_add(receives, &receive);
}

static void rows_read(struct pass *pass)
{
	struct slot_set receives = { .max = SET_MAX };
	static struct slot slots[DB_PAGE];
	size_t n;

	db_pages_begin(pass->audit->db, sql_query_audit_rows, postgres_number(pass->coupon));
	do {
		PGresult *rows = db_page(pass->audit->db);

		n = (size_t)PQntuples(rows);
		check(n <= DB_PAGE);
		for (size_t i = 0; i < n; i++) {
			slot_read(rows, (int)i, 0, &slots[i]);
			if (slots[i].number > pass->row.limit)
				slots_add(&pass->beyond, &slots[i]);
			pass->may_be_twice |= is_seen(&receives, &slots[i]);
		}
		pass->rows_n += (int64_t)n;
		if (pass->compared)
			rows_compare(pass, slots, n);
		PQclear(rows);
	} while (n > 0);
	db_pages_end(pass->audit->db);
	slot_set_fini(&receives);
}

static void snapshot_read(struct pass *pass)
{
	struct db *db = pass->audit->db;

	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	row_read(pass, &pass->row, &pass->generations);
	cut_read_exact(pass, &pass->cut, &pass->generations);
	/* A Redis that lost data, or has another generation, is a finding of its own. */
	pass->compared = pass->cut.present && !pass->cut.bad && !pass->cut.held &&
			 pass->cut.coupon.generation == pass->row.generation &&
			 (pass->cut.verified || pass->cut.coupon.seq >= pass->row.seq_seen);
	rows_read(pass);
	/* This query sorts all receives, which takes as long as the rest of the pass. */
	if (pass->may_be_twice || pass->row.tombstones > 0)
		pass->twice = db_ask(db, sql_query_audit_twice, postgres_number(pass->coupon));
	db_run(db, "COMMIT");
}

/* Malformed records count as none. */
static void records_take(struct pass *pass, struct slots *slots, const redisReply *user,
			 const redisReply *records)
{
	struct slot malformed = { 0 };

	slots->n = 0;
	if (slots_add_user(slots, user, records)) {
		(void)user_id_parse(&malformed.user, user->str, user->len);
		slots_add(&pass->malformed, &malformed);
		return;
	}
	pass->several_n += slots->n > 1;
	for (size_t i = 0; i < slots->n; i++)
		if (!slot_set_has(&pass->set, &slots->list[i]))
			suspects_add(&pass->open, &slots->list[i], SLOT_SAME);
}

static int users_take(void *context, const redisReply *users)
{
	struct pass *pass = context;
	struct slots slots = { 0 };

	for (size_t i = 0; i + 1 < users->elements; i += 2)
		records_take(pass, &slots, users->element[i], users->element[i + 1]);
	slots_fini(&slots);
	if (pass->open.n > OPEN_MAX && pass->set.n == pass->set.max)
		pass_resolve(pass);
	return 0;
}

static void users_scan(struct pass *pass)
{
	struct redis_client *redis = pass->audit->redis;

	store_redis_check(redis,
			  coupon_scan(redis, pass->coupon, COUPON_KEY_USERS,
				      (int)records_step(pass->row.limit), users_take, pass) == 0);
	slots_sort(&pass->malformed);
	pass->open.n = list_unique(pass->open.list, pass->open.n, sizeof(*pass->open.list),
				   compare); /* a scan may return one twice */
}

/* Where only an outcome says whether the cut counts a receive, waits a moment for outcomes. */
static void open_wait(struct pass *pass)
{
	struct audit *audit = pass->audit;
	int64_t until_ms = clock_monotonic_ms() + RESOLVE_WAIT_MS;

	pass_resolve(pass);
	while (!pass_counts_users(pass) && suspects_count(&pass->open, SUSPECT_FLIGHT) > 0 &&
	       clock_monotonic_ms() < until_ms && audit->resolve_ms > 0) {
		usleep(RESOLVE_PAUSE_MS * 1000);
		audit->resolve_ms -= RESOLVE_PAUSE_MS;
		pass_resolve(pass);
	}
}

void pass_run(struct pass *pass)
{
	struct redis_client *redis = pass->audit->redis;

	*pass = (struct pass){ .audit = pass->audit,
			       .coupon = pass->coupon,
			       .passes_n = pass->passes_n + 1,
			       .suspected_n = pass->suspected_n,
			       .set.max = SET_MAX };
	snapshot_read(pass);
	pass->after = pass->cut;
	if (!pass->compared)
		return;
	users_scan(pass);
	open_wait(pass);
	cut_read(pass, &pass->after, NULL, 0);
	if (pass->cut.outbox > 0)
		store_redis_check(redis, outbox_scan(redis, pass->coupon, entry_take, pass) == 0);
}

void pass_fini(struct pass *pass)
{
	generations_fini(&pass->generations);
	PQclear(pass->twice);
	slot_set_fini(&pass->set);
	slots_fini(&pass->malformed);
	slots_fini(&pass->beyond);
	free(pass->rows.list);
	free(pass->open.list);
	free(pass->settled.list);
	cJSON_Delete(pass->bad);
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

int64_t pass_outcomes_over(const struct pass *pass)
{
	return pass->rows_n + pass->row.rejected - pass->row.settled_sum;
}

enum sum_state pass_sum(const struct pass *pass)
{
	const struct redis_coupon *a = &pass->cut.coupon, *b = &pass->after.coupon;
	int64_t freed = b->stock + b->seq - a->stock - a->seq + b->lost - a->lost;
	int64_t over = redis_coupon_taken(&pass->cut.coupon) - pass->counted;
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
	/* A time of acceptance may be wrong once, when a clock jumped. */
	return freed == 0 && a->seq == b->seq && pass->by_time == 0 && pass->open.n == 0
		       ? SUM_WRONG
		       : SUM_SUSPECT;
}

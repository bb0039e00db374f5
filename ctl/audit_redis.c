/*
 * Promise P4 on a live system. One attempt reads, in this order:
 *
 *	the coupon in Redis ── counts in PostgreSQL ── users in Redis, in steps ── rows in PostgreSQL ── the coupon again
 *
 * When both readings of the coupon are the same, nothing was given out in between and the slots must add up; when the
 * counts say that all was settled and released before, each slot must be a row and each row a slot. When they differ the
 * number of slots must lie between what both say, which is still enough to find slots that were lost, and it is tried again.
 */
#include "common/id.h"
#include "common/log.h"
#include "common/receive.h"
#include "ctl/audit.h"
#include "ctl/slots.h"
#include "embed.h"

#include <string.h>
#include <unistd.h>

#define ATTEMPTS 5
#define ATTEMPT_PAUSE_US 200000
#define SCAN_COUNT 1000
#define ROWS_PAGE 20000
#define CURSOR_SIZE 24

static void redis_need(const struct audit *audit, int ok)
{
	if (!ok)
		log_fatal("Redis cannot be asked: %s", cache_error(audit->cache));
}

/* What the users' hash holds. */
struct scan {
	struct slots slots;
	struct slots malformed; /* of each, only the user; 0: the user itself is no id */
};

static void users_add(struct scan *scan, const redisReply *pairs)
{
	for (size_t i = 0; i + 1 < pairs->elements; i += 2) {
		const redisReply *user = pairs->element[i], *records = pairs->element[i + 1];
		struct slot malformed = { .user = 0 };

		if (id_parse(user->str, user->len, &malformed.user) ||
		    slots_add_records(&scan->slots, malformed.user, records->str, records->len))
			slots_add(&scan->malformed, &malformed);
	}
}

static void slots_scan(struct audit *audit, int64_t coupon, struct scan *scan)
{
	char cursor[CURSOR_SIZE] = "0";

	do {
		redisReply *reply = cache_users_scan(audit->cache, coupon, cursor, SCAN_COUNT);

		redis_need(audit, reply != NULL);
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		users_add(scan, reply->element[1]);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	slots_sort(&scan->slots);
	slots_sort(&scan->malformed);
}

static void rows_read(struct audit *audit, int64_t coupon, struct slots *rows)
{
	char id[DB_NUMBER_SIZE], user[DB_NUMBER_SIZE] = "0", number[DB_NUMBER_SIZE] = "0", size[DB_NUMBER_SIZE];
	const char *const params[] = { db_number(coupon, id), user, number, db_number(ROWS_PAGE, size) };
	int rows_n;

	do {
		PGresult *page = db_query(audit->db, sql_query_user_slots_page, 4, params);

		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++) {
			struct slot slot = {
				.user = db_int(page, row, "user_id"),
				.number = (int16_t)db_int(page, row, "slot"),
				.index = (int16_t)db_int(page, row, "idx"),
			};

			if (ulid_from_uuid(&slot.batch, db_text(page, row, "batch")))
				log_fatal("PostgreSQL: a batch is no uuid");
			slots_add(rows, &slot);
		}
		if (rows_n > 0) {
			db_number(rows->list[rows->n - 1].user, user);
			db_number(rows->list[rows->n - 1].number, number);
		}
		PQclear(page);
	} while (rows_n == ROWS_PAGE);
}

/* Whether the receive that holds this slot is a recorded rejection. */
static int is_rejected(struct audit *audit, int64_t coupon, const struct slot *slot)
{
	char id[DB_NUMBER_SIZE], user[DB_NUMBER_SIZE], batch[ULID_UUID_SIZE], index[DB_NUMBER_SIZE];
	PGresult *result = db_query(audit->db, sql_query_receive_outcome, 4,
				    (const char *[]){ db_number(coupon, id), db_number(slot->user, user),
						      ulid_to_uuid(&slot->batch, batch), db_number(slot->index, index) });
	int rejected = PQntuples(result) > 0 && strcmp(db_text(result, 0, "state"), "rejected") == 0;

	PQclear(result);
	return rejected;
}

static void slot_wrong(struct audit *audit, int64_t coupon, const struct slot *slot, const char *what)
{
	struct receive receive = { coupon, slot->user, slot->batch, slot->index };
	char text[RECEIVE_SIZE];

	receive_format(&receive, text);
	audit_wrong(audit, "coupon %lld, user %lld, slot %d, receive %s: %s", (long long)coupon, (long long)slot->user,
		    slot->number, text, what);
}

/* Everything is settled: both lists must be the same. */
static void slots_compare(struct audit *audit, int64_t coupon, const struct slots *slots, const struct slots *rows)
{
	size_t a = 0, b = 0;

	while (a < slots->n || b < rows->n) {
		int order = a == slots->n ? 1 : b == rows->n ? -1 : slot_compare(&slots->list[a], &rows->list[b]);

		if (order > 0) {
			slot_wrong(audit, coupon, &rows->list[b++], "issued, and Redis does not have it");
			continue;
		}
		if (order == 0 && !slot_same_receive(&slots->list[a], &rows->list[b]))
			slot_wrong(audit, coupon, &slots->list[a], "taken in Redis, and issued to another receive");
		else if (order < 0)
			slot_wrong(audit, coupon, &slots->list[a],
				   is_rejected(audit, coupon, &slots->list[a]) ?
					   "taken in Redis, and rejected: its slot should have been given back" :
					   "taken in Redis, and neither issued nor rejected");
		a++;
		b += order == 0;
	}
}

static void counts_read(struct audit *audit, int64_t coupon, const struct cache_coupon *cached, struct audit_redis *found)
{
	char id[DB_NUMBER_SIZE];
	PGresult *row = db_query(audit->db, sql_query_coupon_show, 1, (const char *[]){ db_number(coupon, id) });
	int64_t seq;

	found->in_flight = found->unreleased = 0;
	if (PQntuples(row) > 0) {
		seq = db_int(row, 0, "seq_seen");
		if (cached->generation == db_int(row, 0, "generation") && cached->seq > seq)
			seq = cached->seq;
		found->in_flight = seq - db_int(row, 0, "settled_num") + db_int(row, 0, "older_unsettled_num");
		found->unreleased = db_int(row, 0, "unreleased_num");
	}
	PQclear(row);
}

static int is_same(const struct cache_coupon *a, const struct cache_coupon *b)
{
	return a->seq == b->seq && a->generation == b->generation && a->stock == b->stock && a->total == b->total &&
	       a->reserved == b->reserved && a->lost == b->lost;
}

static int64_t taken(const struct cache_coupon *coupon)
{
	return coupon->total - coupon->stock - coupon->reserved - coupon->lost;
}

/* Whether the slots add up: exactly, or within what both readings say. */
static int adds_up(const struct audit_redis *found, const struct cache_coupon *after)
{
	int64_t a = taken(&found->coupon), b = taken(after);

	return found->slots >= (a < b ? a : b) && found->slots <= (a < b ? b : a);
}

static void judge(struct audit *audit, int64_t coupon, const struct scan *scan, const struct slots *rows,
		  const struct cache_coupon *after, struct audit_redis *found)
{
	for (size_t i = 0; i < scan->malformed.n; i++)
		audit_wrong(audit, "coupon %lld, user %lld: malformed in Redis", (long long)coupon,
			    (long long)scan->malformed.list[i].user);
	if (!adds_up(found, after))
		audit_wrong(audit, "coupon %lld: P4: stock %lld + taken slots %lld + reserved %lld + lost %lld is not the total %lld",
			    (long long)coupon, (long long)after->stock, (long long)found->slots,
			    (long long)after->reserved, (long long)after->lost, (long long)after->total);
	if (found->settled)
		slots_compare(audit, coupon, &scan->slots, rows);
}

/* 1 when this attempt has judged; 0 when another might see the coupon at rest. */
static int attempt(struct audit *audit, int64_t coupon, struct audit_redis *found, int last)
{
	struct scan scan = { 0 };
	struct slots rows = { 0 };
	struct cache_coupon after;
	int judged;

	found->loaded = cache_coupon_read(audit->cache, coupon, &found->coupon);
	redis_need(audit, found->loaded >= 0);
	if (!found->loaded)
		return 1;
	counts_read(audit, coupon, &found->coupon, found);
	slots_scan(audit, coupon, &scan);
	if (found->in_flight + found->unreleased == 0)
		rows_read(audit, coupon, &rows);
	redis_need(audit, cache_coupon_read(audit->cache, coupon, &after) >= 0);
	found->slots = (int64_t)scan.slots.n;
	found->consistent = is_same(&found->coupon, &after);
	found->settled = found->consistent && found->in_flight == 0 && found->unreleased == 0;
	judged = last || found->settled || (found->consistent && !adds_up(found, &after));
	if (judged)
		judge(audit, coupon, &scan, &rows, &after, found);
	slots_fini(&scan.slots);
	slots_fini(&scan.malformed);
	slots_fini(&rows);
	return judged;
}

void audit_redis(struct audit *audit, int64_t coupon, struct audit_redis *found)
{
	char run_id[CACHE_RUN_ID_SIZE];

	memset(found, 0, sizeof(*found));
	redis_need(audit, cache_run_id(audit->cache, run_id) == 0);
	for (int i = 1; !attempt(audit, coupon, found, i == ATTEMPTS); i++)
		usleep(ATTEMPT_PAUSE_US);
	found->verified = found->loaded && strcmp(found->coupon.run_id, run_id) == 0;
}

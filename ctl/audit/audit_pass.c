/*
 * Reads a coupon in both stores, and finds the slots that they do not have alike. Changes nothing
 * in either.
 */
#include "common/hash.h"
#include "ctl/audit/audit.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/doctor/vitals.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_USERS 250 /* of one slot each: Redis needs about 0.3 ms */
#define STEP_LEAST 20
#define EXACT_WAIT_MS 100
#define OUTBOX_ENTRIES_MAX 1000   /* of each kind that are kept */
#define SET_MAX (8 * 1000 * 1000) /* 128 MB at most; what does not fit is looked up one by one */
#define OPEN_MAX 50000            /* open slots to collect before their outcomes are read */
#define RESOLVE_WAIT_MS 2000
#define RESOLVE_PAUSE_MS 100

static uint64_t print_make(const struct slot *slot)
{
	struct slot known = { 0 }; /* the slot, and nothing else behind its user */
	uint64_t print;

	memcpy(known.user.text, slot->user.text, slot->user.len);
	known.user.len = slot->user.len;
	known.batch = slot->batch;
	known.number = slot->number;
	known.index = slot->index;
	print = hash_keyed(&known, offsetof(struct slot, key_len));
	return print ? print : 1;
}

/* Where it is, or is to be put. */
static uint64_t *cell_find(const struct slot_set *set, uint64_t print)
{
	size_t i = (size_t)print & (set->size - 1);

	while (set->cells[i] && set->cells[i] != print)
		i = (i + 1) & (set->size - 1);
	return &set->cells[i];
}

int slot_set_add(struct slot_set *set, const struct slot *slot)
{
	uint64_t print = print_make(slot), *cell;

	if (set->n >= set->max)
		return 0;
	if (set->n * 3 >= set->size * 2) {
		struct slot_set old = *set;

		set->size = old.size ? old.size * 2 : 1024;
		set->cells = checked(calloc(set->size, sizeof(*set->cells)));
		for (size_t i = 0; i < old.size; i++)
			if (old.cells[i])
				*cell_find(set, old.cells[i]) = old.cells[i];
		free(old.cells);
	}
	cell = cell_find(set, print);
	set->n += *cell == 0;
	*cell = print;
	return 1;
}

int slot_set_has(const struct slot_set *set, const struct slot *slot)
{
	return set->size > 0 && *cell_find(set, print_make(slot));
}

void slot_set_fini(struct slot_set *set)
{
	free(set->cells);
	*set = (struct slot_set){ 0 };
}

void row_read(const struct pass *pass, struct audit_row *row, struct generations *generations)
{
	struct db *db = pass->audit->db;
	PGresult *result = store_coupon_row(db, sql_query_audit_coupon, pass->coupon);

	*row = (struct audit_row){ .version = column_number(result, 0, "version"),
				   .total = column_number(result, 0, "total_num"),
				   .issued = column_number(result, 0, "issued_num"),
				   .limit = column_number(result, 0, "user_limit"),
				   .begin_ms = column_number(result, 0, "begin_ms"),
				   .end_ms = column_number(result, 0, "end_ms"),
				   .generation = column_number(result, 0, "generation"),
				   .seq_seen = column_number(result, 0, "seq_seen"),
				   .settled = column_number(result, 0, "settled_num"),
				   .idle_ms = INT64_MAX,
				   .rejected = column_number(result, 0, "rejected_num"),
				   .tombstones = column_number(result, 0, "tombstone_num"),
				   .unfreed = column_number(result, 0, "unfreed_num") };
	if (!db_is_null(result, 0, "idle_ms"))
		row->idle_ms = column_number(result, 0, "idle_ms");
	row->settled_sum = row->settled + column_number(result, 0, "older_settled_num");
	snprintf(row->status, sizeof(row->status), "%s", column_text(result, 0, "status"));
	PQclear(result);
	if (!generations)
		return;
	generations->n = 0;
	*generation_find(generations,
			 row->generation) = (struct generation){ .number = row->generation,
								 .high = row->seq_seen,
								 .settled = row->settled,
								 .idle_ms = row->idle_ms };
	result = db_ask(db, sql_query_coupon_generation_page, postgres_number(pass->coupon));
	for (int i = 0; i < PQntuples(result); i++)
		generation_add_row(generations, result, i, 0);
	PQclear(result);
}

void slot_read(const PGresult *rows, int row, int first, struct slot *slot)
{
	if (slot_of_row(slot, rows, row, first))
		log_fatal("PostgreSQL: a user is no valid id, or a batch is not a uuid");
}

PGresult *outcomes_read(const struct pass *pass, const struct slot *slots, size_t n)
{
	PGresult *outcomes = store_slots_ask(pass->audit->db, sql_query_audit_outcomes,
					     pass->coupon, slots, n);

	check((size_t)PQntuples(outcomes) == n);
	return outcomes;
}

size_t records_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < STEP_LEAST ? STEP_LEAST : (size_t)step;
}

redisReply *records_read(const struct pass *pass, const struct slot *slots, size_t n)
{
	struct redis_client *redis = pass->audit->redis;

	return store_reply(redis, coupon_records(redis, pass->coupon, slots, n));
}

/* The keys of a coupon, their types, and what of each is read. */
static const struct {
	enum coupon_key key;
	const char *type, *command;
} keys[] = { { COUPON_KEY_COUPON, "hash", "HGETALL" }, { COUPON_KEY_USERS, "hash", "HLEN" },
	     { COUPON_KEY_OUTBOX, "hash", "HLEN" },    { COUPON_KEY_SEEN, "hash", "HGETALL" },
	     { COUPON_KEY_KNOWN, "set", "SCARD" },     { COUPON_KEY_DEAD, "set", "SCARD" } };

#define KEYS (sizeof(keys) / sizeof(keys[0]))
/* The replies: the types first. */
enum { AT_COUPON = KEYS, AT_USERS, AT_OUTBOX, AT_SEEN, AT_KNOWN, AT_DEAD, AT_TIME, AT_KEEPER, ALL };

void cut_read(const struct pass *pass, struct cut *cut, struct generations *generations, int report)
{
	struct redis_client *redis = pass->audit->redis;
	char key[KEYS][COUPON_KEY_SIZE];
	struct redis_words commands[ALL] = {
		[AT_TIME] = { { "TIME" } }, [AT_KEEPER] = { { "HGETALL", KEEPER_LOCK_KEY } }
	};
	redisReply *reply, **at;

	for (size_t i = 0; i < KEYS; i++) {
		coupon_key(pass->coupon, keys[i].key, key[i]);
		commands[i] = (struct redis_words){ { "TYPE", key[i] } };
		commands[KEYS + i] = (struct redis_words){ { keys[i].command, key[i] } };
	}
	memset(cut, 0, sizeof(*cut));
	reply = store_reply(redis, redis_client_transaction(redis, commands, ALL));
	at = reply->element;
	for (size_t i = 0; i < KEYS; i++) {
		const char *type = at[i]->str;

		if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
			continue;
		cut->bad = 1;
		if (report)
			finding_add(pass, FINDING_KEY_TYPE, NULL,
				    "key %s in Redis is a %s, and has to be a %s", key[i], type,
				    keys[i].type);
	}
	check(redis_reply_time_ms(at[AT_TIME], &cut->at_ms) == 0);
	cut->users = at[AT_USERS]->integer;
	cut->outbox = at[AT_OUTBOX]->integer;
	cut->known = at[AT_KNOWN]->integer;
	cut->keeper = keeper_holds(at[AT_KEEPER], cut->at_ms);
	cut->present = strcmp(at[0]->str, "none") != 0;
	if (cut->present && at[AT_COUPON]->type == REDIS_REPLY_ARRAY) {
		redis_coupon_parse(&cut->coupon, at[AT_COUPON]);
		cut->bad |= cut->coupon.bad_n > 0;
		for (int i = 0; report && i < cut->coupon.bad_n; i++)
			finding_add(pass, FINDING_COUPON_MALFORMED, NULL,
				    "field %s of the coupon in Redis %s", cut->coupon.bad[i].field,
				    cut->coupon.bad[i].what);
		cut->held = redis_coupon_is_held(&cut->coupon);
		cut->verified = strcmp(cut->coupon.run_id, pass->audit->run_id) == 0;
		if (generations && !cut->bad)
			generations_raise(generations, at[AT_COUPON], at[AT_SEEN]);
	}
	freeReplyObject(reply);
}

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

	if (error) {
		if (!pass->bad)
			pass->bad = output_object();
		/* A scan may return an entry twice. */
		if (!cJSON_GetObjectItemCaseSensitive(pass->bad, batch->str) &&
		    cJSON_GetArraySize(pass->bad) < OUTBOX_ENTRIES_MAX)
			output_text(pass->bad, batch->str, error);
	} else if (message->at_ms < pass->after.at_ms - pass->audit->grace_ms &&
		   pass->settled.n < OUTBOX_ENTRIES_MAX) {
		settled_add(pass, message);
	}
	return 0;
}

static void open_resolve(struct pass *pass, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	PGresult *outcomes = outcomes_read(pass, slots, n);

	for (size_t i = 0; i < n; i++) {
		struct suspect *suspect = &suspects[i];
		enum suspect_state before = suspect->state;
		int row = (int)i, is_issued = !db_is_null(outcomes, row, "issued_ms"),
		    is_rejected = !db_is_null(outcomes, row, "rejected_ms");

		if (is_issued || (is_rejected && !db_is_true(outcomes, row, "is_freed"))) {
			int64_t at_ms = column_number(outcomes, row,
						      is_issued ? "issued_ms" : "rejected_ms");

			/* It is counted by its time of acceptance. */
			pass->by_time++;
			if (at_ms < pass->cut.at_ms ||
			    (at_ms == pass->cut.at_ms && pass->cut.exact))
				pass->counted++;
			else if (at_ms == pass->cut.at_ms)
				pass->doubtful++;
			pass->pending += !is_issued;
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
	PQclear(outcomes);
}

void pass_resolve(struct pass *pass)
{
	suspects_each(pass, &pass->open, COUPON_SLOTS_MAX, open_resolve);
}

/* Orders by batch first, for settled_add(). */
static int suspect_compare(const void *a, const void *b)
{
	const struct suspect *one = a, *other = b;
	int order = memcmp(&one->slot.batch, &other->slot.batch, sizeof(one->slot.batch));

	if (order == 0)
		order = slot_compare(&one->slot, &other->slot);
	return order ? order : one->slot.index - other->slot.index;
}

static void rows_compare(struct pass *pass, const struct slot *slots, size_t n)
{
	size_t step = records_step(pass->row.limit);

	for (size_t at = 0; at < n; at += step) {
		size_t part = n - at < step ? n - at : step;
		redisReply *records = records_read(pass, slots + at, part);

		for (size_t i = 0; i < part; i++) {
			const struct slot *slot = &slots[at + i];
			enum slot_found how = slot_look_up(slot, slot->tail, records->element[i]);

			switch (how) {
			case SLOT_OTHER_KEY:
				suspects_add(&pass->rows, slot, how);
				/* fall through */
			case SLOT_SAME:
				pass->counted += slot_set_add(&pass->set, slot);
				break;
			case SLOT_NONE:
				suspects_add(&pass->rows, slot, how);
				break;
			case SLOT_OTHER: /* found among the open slots */
			case SLOT_MALFORMED:
				break;
			}
		}
		freeReplyObject(records);
	}
}

static int users_take(void *context, const redisReply *users)
{
	struct pass *pass = context;
	struct slots slots = { 0 };

	for (size_t i = 0; i + 1 < users->elements; i += 2) {
		const redisReply *user = users->element[i];
		struct slot malformed = { 0 };

		slots.n = 0;
		if (slots_add_user(&slots, user, users->element[i + 1])) {
			/* Malformed records count as none. */
			(void)user_id_parse(&malformed.user, user->str, user->len);
			slots_add(&pass->malformed, &malformed);
			continue;
		}
		pass->several_n += slots.n > 1;
		for (size_t k = 0; k < slots.n; k++)
			if (!slot_set_has(&pass->set, &slots.list[k]))
				suspects_add(&pass->open, &slots.list[k], SLOT_SAME);
	}
	slots_fini(&slots);
	if (pass->open.n > OPEN_MAX && pass->set.n == pass->set.max)
		pass_resolve(pass);
	return 0;
}

void pass_run(struct pass *pass)
{
	static struct slot slots[DB_PAGE];
	struct redis_client *redis = pass->audit->redis;
	struct db *db = pass->audit->db;
	struct audit *audit = pass->audit;
	struct slot_set receives = { .max = SET_MAX };
	int64_t exact_ms, until_ms;
	struct cut next;
	size_t n;

	*pass = (struct pass){ .audit = pass->audit,
			       .coupon = pass->coupon,
			       .passes_n = pass->passes_n + 1,
			       .suspected_n = pass->suspected_n,
			       .set.max = SET_MAX };
	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	row_read(pass, &pass->row, &pass->generations);

	/*
	 * Report what is malformed, and wait at most a tenth of a second for a moment between two
	 * calls of the script.
	 */
	cut_read(pass, &pass->cut, &pass->generations, 1);
	for (exact_ms = pass->cut.at_ms + EXACT_WAIT_MS;
	     pass->cut.present && !pass->cut.bad && pass->cut.at_ms < exact_ms; pass->cut = next) {
		do
			cut_read(pass, &next, &pass->generations, 0);
		while (next.at_ms == pass->cut.at_ms);
		if (!next.present || next.bad)
			break;
		if (next.coupon.seq == pass->cut.coupon.seq &&
		    next.coupon.generation == pass->cut.coupon.generation) {
			pass->cut.exact = 1;
			break;
		}
	}

	/* A Redis that lost data, or has another generation, is a finding of its own. */
	pass->compared = pass->cut.present && !pass->cut.bad && !pass->cut.held &&
			 pass->cut.coupon.generation == pass->row.generation &&
			 (pass->cut.verified || pass->cut.coupon.seq >= pass->row.seq_seen);

	/* The rows of PostgreSQL, a page at a time. */
	db_pages_begin(pass->audit->db, sql_query_audit_rows, postgres_number(pass->coupon));
	do {
		PGresult *rows = db_page(pass->audit->db);

		n = (size_t)PQntuples(rows);
		check(n <= DB_PAGE);
		for (size_t i = 0; i < n; i++) {
			struct slot receive = { 0 };

			slot_read(rows, (int)i, 0, &slots[i]);
			if (slots[i].number > pass->row.limit)
				slots_add(&pass->beyond, &slots[i]);
			/* Whether the receive was read before, or may have been. */
			receive.batch = slots[i].batch;
			receive.index = slots[i].index;
			pass->may_be_twice |= slot_set_has(&receives, &receive) ||
					      !slot_set_add(&receives, &receive);
		}
		pass->rows_n += (int64_t)n;
		if (pass->compared)
			rows_compare(pass, slots, n);
		PQclear(rows);
	} while (n > 0);
	db_pages_end(pass->audit->db);
	slot_set_fini(&receives);

	/* This query sorts all receives, which takes as long as the rest of the pass. */
	if (pass->may_be_twice || pass->row.tombstones > 0)
		pass->twice = db_ask(db, sql_query_audit_twice, postgres_number(pass->coupon));
	db_run(db, "COMMIT");
	pass->after = pass->cut;
	if (!pass->compared)
		return;

	store_redis_check(redis,
			  coupon_scan(redis, pass->coupon, COUPON_KEY_USERS,
				      (int)records_step(pass->row.limit), users_take, pass) == 0);
	slots_sort(&pass->malformed);
	pass->open.n = list_unique(pass->open.list, pass->open.n, sizeof(*pass->open.list),
				   suspect_compare); /* a scan may return one twice */

	/* Where only an outcome says whether the cut counts a receive, waits for outcomes. */
	until_ms = clock_monotonic_ms() + RESOLVE_WAIT_MS;
	pass_resolve(pass);
	while (!pass_counts_users(pass) && suspects_count(&pass->open, SUSPECT_FLIGHT) > 0 &&
	       clock_monotonic_ms() < until_ms && audit->resolve_ms > 0) {
		usleep(RESOLVE_PAUSE_MS * 1000);
		audit->resolve_ms -= RESOLVE_PAUSE_MS;
		pass_resolve(pass);
	}

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

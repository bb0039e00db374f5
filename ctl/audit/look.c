#include "ctl/audit/look.h"

#include "common/clock.h"
#include "ctl/audit/open.h"
#include "ctl/audit/records.h"

#define SKEW_MS 60000 /* a batch that is younger than now by more has no usable age */

static void state_set(struct look *look, struct suspect *suspect, enum suspect_state state)
{
	if (suspect->state != state || suspect->looks == 0) {
		suspect->state = state;
		suspect->looks = 0;
		suspect->since_ms = look->now_ms;
	}
	suspect->looks++;
}

typedef void look_fn(struct look *look, struct suspect *suspects, const struct slot *slots,
		     size_t n);

/* Calls `fn` with parts of the suspects and their slots. Those that are gone leave the list. */
static void parts_look(struct look *look, struct suspects *suspects, look_fn *fn)
{
	static struct slot slots[AUDIT_ASK_MAX];
	size_t step = records_step(look->pass->row.limit);

	for (size_t at = 0, n; at < suspects->n; at += n) {
		n = suspects_slots(suspects, at, step, slots);
		fn(look, suspects->list + at, slots, n);
	}
	suspects_drop_gone(suspects);
}

/* User coupons that still exist, and that Redis does not have, or has with another key. */
static void rows_look(struct look *look, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	static struct outcome outcomes[AUDIT_ASK_MAX];
	struct pass *pass = look->pass;
	redisReply *records;

	audit_outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
	records = records_read(pass->audit->redis, pass->coupon, slots, n);
	for (size_t i = 0; i < n; i++) {
		struct slot found;
		enum slot_found how = records_look_up(records->element[i], &slots[i],
						      outcomes[i].holder_key, &found);

		if (outcomes[i].issued_ms < 0 || outcomes[i].is_late ||
		    (how != SLOT_NONE && how != SLOT_OTHER_KEY)) {
			suspects[i].state = SUSPECT_GONE;
			continue;
		}
		suspects[i].how = how;
		state_set(look, &suspects[i], SUSPECT_DIFFERENT);
	}
	freeReplyObject(records);
}

int look_is_future(int64_t redis_ms, const struct slot *slot)
{
	return ulid_time_ms(&slot->batch) > redis_ms + SKEW_MS;
}

static int is_old(const struct look *look, const struct slot *slot)
{
	return look->ignore_age || look_is_future(look->redis_ms, slot) ||
	       look->redis_ms - ulid_time_ms(&slot->batch) > look->pass->audit->grace_ms;
}

/* Open slots without an outcome, or released, that Redis still has. */
static void open_look(struct look *look, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	redisReply *records = records_read(look->pass->audit->redis, look->pass->coupon, slots, n);
	struct slot found;

	for (size_t i = 0; i < n; i++) {
		struct suspect *suspect = &suspects[i];

		if (records_look_up(records->element[i], &slots[i], NULL, &found) != SLOT_SAME)
			suspect->state = SUSPECT_GONE;
		else if (suspect->state == SUSPECT_HELD)
			state_set(look, suspect, SUSPECT_HELD);
		else if (look->quiet)
			state_set(look, suspect, SUSPECT_QUIET);
		else if (!is_old(look, &suspect->slot))
			state_set(look, suspect, SUSPECT_FLIGHT);
		else
			state_set(look, suspect,
				  suspect->state == SUSPECT_OUTBOX ? SUSPECT_OUTBOX
								   : SUSPECT_OVERDUE);
	}
	freeReplyObject(records);
}

/* Overdue slots: whether their message is in the outbox. */
static void outbox_look(struct look *look, struct suspect *suspects, const struct slot *slots,
			size_t n)
{
	static int has[AUDIT_ASK_MAX];

	outbox_has(look->pass->audit->redis, look->pass->coupon, slots, n, has);
	for (size_t i = 0; i < n; i++)
		if (suspects[i].state == SUSPECT_OVERDUE || suspects[i].state == SUSPECT_OUTBOX)
			state_set(look, &suspects[i], has[i] ? SUSPECT_OUTBOX : SUSPECT_OVERDUE);
}

/*
 * Settled entries that are still in the outbox. A worker that was killed has not removed them; the
 * keeper then publishes them again, and another worker removes them, once they have passed the
 * queue. Dead letters are left to an operator.
 */
static void entries_look(struct look *look, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	static int has[AUDIT_ASK_MAX], dead[AUDIT_ASK_MAX];
	const struct pass *pass = look->pass;
	int waits = !look->keeper || !pass->broker_ok || pass->ready > 0;

	outbox_has(pass->audit->redis, pass->coupon, slots, n, has);
	outbox_dead(pass->audit->redis, pass->coupon, slots, n, dead);
	for (size_t i = 0; i < n; i++) {
		if (has[i] && !dead[i])
			state_set(look, &suspects[i], waits ? SUSPECT_FLIGHT : SUSPECT_OVERDUE);
		else
			suspects[i].state = SUSPECT_GONE;
	}
}

/* Receive numbers without an outcome that no slot names. */
static int64_t unnamed_count(const struct pass *pass, const struct generations *generations,
			     const struct audit_row *row, const struct cut *cut)
{
	int64_t settled_over = pass_outcomes_over(pass), unnamed;

	if (cut->coupon.seq == pass->cut.coupon.seq || !cut->present)
		unnamed = generations_unsettled(generations, 0) - (int64_t)pass->open.n +
			  suspects_count(&pass->open, SUSPECT_HELD);
	else
		unnamed = generations_unsettled(generations, row->generation) - cut->known;
	/* Outcomes that were not counted as settled are a finding of their own. */
	if (settled_over > 0)
		unnamed -= settled_over;
	return unnamed > 0 ? unnamed : 0;
}

/* Read after the outcomes: a receive that is settled in between lowers these counts. */
static void numbers_look(struct look *look)
{
	struct pass *pass = look->pass;
	struct generations generations = { 0 };
	struct audit_row row;
	struct cut cut;
	int64_t unnamed;

	audit_row_read(pass->audit->db, pass->coupon, &row);
	audit_generations_read(pass->audit->db, pass->coupon, &row, &generations);
	/* A number that PostgreSQL has and Redis never gave out is a finding of its own. */
	if (pass->compared)
		generation_find(&generations, row.generation)->high = 0;
	cut_read(pass->audit, pass->coupon, &cut, &generations, 0);
	look->redis_ms = cut.at_ms;
	look->keeper = cut.keeper;
	look->quiet = pass->compared && generations_unsettled(&generations, 0) == 0 &&
		      cut.coupon.generation == row.generation;
	unnamed = unnamed_count(pass, &generations, &row, &cut);
	generations_fini(&generations);
	if (look->unnamed_looks++ == 0)
		look->unnamed_since_ms = look->now_ms;
	if (look->unnamed_looks == 1 || unnamed < pass->unnamed)
		pass->unnamed = unnamed;
}

static void broker_query(struct look *look)
{
	struct pass *pass = look->pass;
	struct broker_look found;
	int is_empty;

	broker_look(pass->audit->broker, &found);
	is_empty = found.ok && found.ready == 0 && found.dead == 0;
	pass->broker_asked = 1;
	pass->broker_ok = found.ok;
	pass->ready = found.ok ? found.ready : 0;
	pass->dead = found.ok ? found.dead : 0;
	look->busy_n = pass->ready > 0 ? look->busy_n + 1 : 0;
	look->empty_n += is_empty;
	look->idle = is_empty && found.consumers == 0;
	pass->locked_ms = locks_look(&look->locks, pass->audit->db, look->now_ms);
	/*
	 * Workers hold the overdue receives while one of them is in a long transaction or has put
	 * off coupons, or another session holds a lock: their time starts again.
	 */
	if (locks_workers_hold(pass->audit->db) || pass->locked_ms > 0) {
		look->unnamed_since_ms = look->now_ms;
		for (size_t i = 0; i < pass->open.n; i++)
			pass->open.list[i].since_ms = look->now_ms;
	}
}

void look_once(struct look *look)
{
	struct pass *pass = look->pass;

	look->now_ms = clock_monotonic_ms();
	parts_look(look, &pass->rows, rows_look);
	open_resolve(pass);
	numbers_look(look);
	parts_look(look, &pass->open, open_look);
	if (suspects_count(&pass->open, SUSPECT_OVERDUE) > 0 ||
	    suspects_count(&pass->open, SUSPECT_OUTBOX) > 0)
		parts_look(look, &pass->open, outbox_look);
	/* RabbitMQ may be on another network: it is queried only when it decides something. */
	if (suspects_count(&pass->open, SUSPECT_OVERDUE) > 0 || pass->outbox.settled.n > 0 ||
	    pass->unnamed > 0)
		broker_query(look);
	parts_look(look, &pass->outbox.settled, entries_look);
}

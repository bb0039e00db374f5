/*
 * Looks at what does not agree in both stores until it does, or is certainly wrong, or cannot be
 * decided; then at what is in flight without progress.
 */
#include "ctl/audit/pass.h"

#include "common/clock.h"
#include "common/rabbit/connection.h"
#include "embed.h"

#include <string.h>

#define SKEW_MS 60000 /* a batch that is younger than now by more has no usable age */
#define LOOKS 3
#define HOLD_MS (2 * RABBIT_HEARTBEAT_S * 1000 + 5000)
#define BUSY_LOOKS 8   /* consecutive ones with messages in the queue: it will not be empty soon */
#define LOCKED_MS 5000 /* a transaction that is open for so long will not end soon */
#define RESENT_AFTER 5 /* times COUPON_RESEND_AFTER_MS: what is overtaken is sent again by then */
#define EXTRA_MS 10000 /* beyond the time that a suspect has to be overdue, for interruptions */

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
	static struct slot slots[COUPON_SLOTS_MAX];
	size_t step = records_step(look->pass->row.limit), kept = 0;

	for (size_t at = 0, n; at < suspects->n; at += n) {
		n = suspects_slots(suspects, at, step, slots);
		fn(look, suspects->list + at, slots, n);
	}
	for (size_t i = 0; i < suspects->n; i++)
		if (suspects->list[i].state != SUSPECT_GONE)
			suspects->list[kept++] = suspects->list[i];
	suspects->n = kept;
}

/* User coupons that still exist, and that Redis does not have, or has with another key. */
static void rows_look(struct look *look, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	static struct outcome outcomes[COUPON_SLOTS_MAX];
	struct pass *pass = look->pass;
	redisReply *records;

	outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
	records = records_read(pass->audit, pass->coupon, slots, n);
	for (size_t i = 0; i < n; i++) {
		enum slot_found how = slot_look_up(&slots[i], outcomes[i].tail,
						   records->element[i]);

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

static int is_future(int64_t redis_ms, const struct slot *slot)
{
	return ulid_time_ms(&slot->batch) > redis_ms + SKEW_MS;
}

static int is_old(const struct look *look, const struct slot *slot)
{
	return look->ignore_age || is_future(look->redis_ms, slot) ||
	       look->redis_ms - ulid_time_ms(&slot->batch) > look->pass->audit->grace_ms;
}

/* Open slots without an outcome, or released, that Redis still has. */
static void open_look(struct look *look, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	static char sent[COUPON_SLOTS_MAX];
	redisReply *records = records_read(look->pass->audit, look->pass->coupon, slots, n);
	int any_old = 0;

	for (size_t i = 0; i < n && !look->quiet; i++)
		any_old |= is_old(look, &slots[i]);
	if (any_old)
		has_read(look->pass->audit, look->pass->coupon, COUPON_KEY_OUTBOX, slots, n, sent);
	for (size_t i = 0; i < n; i++) {
		struct suspect *suspect = &suspects[i];

		if (slot_look_up(&slots[i], NULL, records->element[i]) != SLOT_SAME)
			suspect->state = SUSPECT_GONE;
		else if (suspect->state == SUSPECT_HELD)
			state_set(look, suspect, SUSPECT_HELD);
		else if (look->quiet)
			state_set(look, suspect, SUSPECT_QUIET);
		else if (!is_old(look, &slots[i]))
			state_set(look, suspect, SUSPECT_FLIGHT);
		else
			state_set(look, suspect, sent[i] ? SUSPECT_OUTBOX : SUSPECT_OVERDUE);
	}
	freeReplyObject(records);
}

/*
 * Settled entries that are still in the outbox. A worker that was killed has not removed them; the
 * keeper then publishes them again, and another worker removes them, once they have passed the
 * queue. Dead letters are left to an operator.
 */
static void entries_look(struct look *look, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	static char has[COUPON_SLOTS_MAX], dead[COUPON_SLOTS_MAX];
	const struct pass *pass = look->pass;
	int waits = !look->keeper || !pass->broker.ok || pass->broker.ready > 0;

	has_read(pass->audit, pass->coupon, COUPON_KEY_OUTBOX, slots, n, has);
	has_read(pass->audit, pass->coupon, COUPON_KEY_DEAD, slots, n, dead);
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

	row_read(pass->audit->db, pass->coupon, &row);
	generations_read(pass->audit->db, pass->coupon, &row, &generations);
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
	int is_empty;

	pass->broker = (struct broker_look){ 0 };
	broker_look(pass->audit->broker, &pass->broker);
	pass->broker_asked = 1;
	is_empty = pass->broker.ok && pass->broker.ready == 0 && pass->broker.dead == 0;
	look->busy_n = pass->broker.ok && pass->broker.ready > 0 ? look->busy_n + 1 : 0;
	look->empty_n += is_empty;
	look->idle = is_empty && pass->broker.consumers == 0;
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

/* Updates the state of every suspect, and the counts of the pass that looks find. */
static void look_once(struct look *look)
{
	struct pass *pass = look->pass;

	look->now_ms = clock_monotonic_ms();
	parts_look(look, &pass->rows, rows_look);
	pass_resolve(pass);
	numbers_look(look);
	parts_look(look, &pass->open, open_look);
	/* RabbitMQ may be on another network: it is queried only when it decides something. */
	if (suspects_count(&pass->open, SUSPECT_OVERDUE) > 0 || pass->outbox.settled.n > 0 ||
	    pass->unnamed > 0)
		broker_query(look);
	parts_look(look, &pass->outbox.settled, entries_look);
}

/* How long a slot has to be overdue before it is wrong. */
static int64_t need_ms(const struct look *look, const struct slot *slot)
{
	int64_t grace_ms = look->pass->audit->grace_ms;

	return is_future(look->redis_ms, slot) || grace_ms < HOLD_MS ? grace_ms : HOLD_MS;
}

enum verdict {
	VERDICT_RIGHT,
	VERDICT_LATER, /* another look may decide */
	VERDICT_WRONG,
	VERDICT_NONE, /* cannot be decided */
};

static int is_hopeless(const struct look *look)
{
	const struct pass *pass = look->pass;

	return pass->broker_asked && (!pass->broker.ok || pass->broker.dead > 0 ||
				      look->busy_n >= BUSY_LOOKS || pass->locked_ms >= LOCKED_MS);
}

/* Receives without an outcome: both queues have to be empty. */
static enum verdict overdue_judge(const struct look *look, int64_t since_ms, int64_t wanted_ms,
				  int looks)
{
	if (looks >= LOOKS && look->empty_n >= LOOKS &&
	    (look->idle || look->now_ms - since_ms >= wanted_ms))
		return VERDICT_WRONG;
	if (is_hopeless(look) || look->now_ms - look->begin_ms >= wanted_ms + EXTRA_MS)
		return VERDICT_NONE;
	return VERDICT_LATER;
}

/* A settled outbox entry: the keeper has had the time to publish it again. */
static enum verdict entry_judge(const struct look *look, const struct suspect *entry)
{
	int64_t wanted_ms = need_ms(look, &entry->slot);
	int64_t resent_ms = look->pass->audit->resend_after_ms * RESENT_AFTER;

	if (entry->state != SUSPECT_OVERDUE)
		return VERDICT_RIGHT;
	if (wanted_ms < resent_ms)
		wanted_ms = resent_ms;
	return entry->looks >= LOOKS && look->now_ms - entry->since_ms >= wanted_ms ? VERDICT_WRONG
										    : VERDICT_LATER;
}

static enum verdict open_judge(const struct look *look, const struct suspect *suspect)
{
	switch (suspect->state) {
	case SUSPECT_HELD:
	case SUSPECT_QUIET:
		return suspect->looks >= LOOKS ? VERDICT_WRONG : VERDICT_LATER;
	case SUSPECT_OVERDUE:
		return overdue_judge(look, suspect->since_ms, need_ms(look, &suspect->slot),
				     suspect->looks);
	case SUSPECT_NEW:
	case SUSPECT_FLIGHT:
	case SUSPECT_OUTBOX:
	case SUSPECT_DIFFERENT:
	case SUSPECT_GONE:
		return VERDICT_RIGHT;
	}
	return VERDICT_RIGHT;
}

/* Whether no other look is needed. */
static int is_done(const struct look *look)
{
	struct pass *pass = look->pass;
	int left[VERDICT_NONE + 1] = { 0 };
	enum verdict unnamed;

	for (size_t i = 0; i < pass->rows.n; i++)
		left[VERDICT_LATER] += pass->rows.list[i].looks < LOOKS;
	for (size_t i = 0; i < pass->open.n; i++)
		left[open_judge(look, &pass->open.list[i])]++;
	for (size_t i = 0; i < pass->outbox.settled.n; i++)
		left[entry_judge(look, &pass->outbox.settled.list[i])]++;
	if (pass->unnamed > 0) {
		unnamed = overdue_judge(look, look->unnamed_since_ms, pass->audit->grace_ms,
					look->unnamed_looks);
		left[unnamed]++;
		pass->unnamed_overdue = unnamed == VERDICT_WRONG;
	}
	pass->undecided = left[VERDICT_NONE] > 0;
	return left[VERDICT_LATER] == 0;
}

void look_again(struct look *look)
{
	if (look->done)
		return;
	look_once(look);
	look->done = is_done(look);
}

static void suspects_restart(struct suspects *suspects)
{
	for (size_t i = 0; i < suspects->n; i++)
		suspects->list[i].looks = 0;
}

void look_start(struct look *look, struct pass *pass)
{
	*look = (struct look){
		.pass = pass,
		.begin_ms = clock_monotonic_ms(),
		.ignore_age = pass_gone(pass) > 0,
		.done = !pass->row.known || pass->cut.bad || pass->cut.held,
	};
	suspects_restart(&pass->rows);
	suspects_restart(&pass->open);
	suspects_restart(&pass->outbox.settled);
	look_again(look);
}

int look_found_wrong(const struct pass *pass, const struct suspect *suspect)
{
	switch (suspect->state) {
	case SUSPECT_HELD:
	case SUSPECT_QUIET:
	case SUSPECT_DIFFERENT:
		return suspect->looks >= LOOKS;
	case SUSPECT_OVERDUE:
		return !pass->undecided;
	case SUSPECT_NEW:
	case SUSPECT_FLIGHT:
	case SUSPECT_OUTBOX:
	case SUSPECT_GONE:
		return 0;
	}
	return 0;
}

static int64_t age_ms(int64_t redis_ms, const struct suspect *suspect)
{
	return redis_ms - ulid_time_ms(&suspect->slot.batch);
}

/* A batch that claims to be made in the future has no usable age: it counts as old. */
static int is_aged(const struct pass *pass, int64_t redis_ms, const struct suspect *suspect)
{
	return age_ms(redis_ms, suspect) > pass->audit->stalled_ms ||
	       is_future(redis_ms, &suspect->slot);
}

/* Receive numbers without an outcome in generations without progress. */
static int64_t unnamed_stalled(struct pass *pass, const struct audit_row *row)
{
	struct generations now = { 0 };
	int64_t n = 0;

	if (pass->unnamed == 0 || pass->unnamed_overdue)
		return 0;
	generations_read(pass->audit->db, pass->coupon, row, &now);
	for (size_t i = 0; i < now.n; i++) {
		int64_t then = generation_find(&pass->generations, now.list[i].number)->high;
		int64_t high = then > now.list[i].high ? then : now.list[i].high;

		if (now.list[i].idle_ms > pass->audit->stalled_ms && high > now.list[i].settled)
			n += high - now.list[i].settled;
	}
	generations_fini(&now);
	return n < pass->unnamed ? n : pass->unnamed;
}

/*
 * When the latest receive that has an outcome was made, if it is later by more than the limit than
 * one that has none; 0: it is not.
 */
static int64_t newest_find(const struct pass *pass, int64_t redis_ms)
{
	int64_t oldest_ms = 0, limit_ms = pass->audit->stalled_ms, newest_ms;
	PGresult *result;

	for (size_t i = 0; i < pass->open.n; i++)
		if (is_aged(pass, redis_ms, &pass->open.list[i]) &&
		    age_ms(redis_ms, &pass->open.list[i]) > oldest_ms)
			oldest_ms = age_ms(redis_ms, &pass->open.list[i]);
	if (oldest_ms <= limit_ms)
		return 0;
	result = db_ask(pass->audit->db, sql_query_audit_overtaken, postgres_number(pass->coupon),
			postgres_number(redis_ms - oldest_ms + limit_ms));
	newest_ms = db_int(result, 0, "newest_ms");
	PQclear(result);
	return newest_ms;
}

/*
 * One search for stalled receives; with `stalled` it collects those that have a slot. Outcomes are
 * read last: what has one is not in flight.
 */
static void stalled_find(struct pass *pass, struct slots *stalled)
{
	const int64_t limit_ms = pass->audit->stalled_ms;
	struct stall *stall = &pass->stall;
	struct audit_row row;
	struct cut cut;
	int64_t newest_ms;

	cut_read(pass->audit, pass->coupon, &cut, NULL, 0);
	row_read(pass->audit->db, pass->coupon, &row);
	newest_ms = row.idle_ms > limit_ms ? INT64_MAX : newest_find(pass, cut.at_ms);
	pass_resolve(pass);
	*stall = (struct stall){ .idle_ms = row.idle_ms, .keeper = cut.keeper };
	stall->unnamed = stall->n = unnamed_stalled(pass, &row);
	for (size_t i = 0; i < pass->open.n; i++) {
		const struct suspect *suspect = &pass->open.list[i];

		if (suspect->state == SUSPECT_HELD || look_found_wrong(pass, suspect) ||
		    !is_aged(pass, cut.at_ms, suspect) ||
		    ulid_time_ms(&suspect->slot.batch) + limit_ms >= newest_ms)
			continue;
		if (stall->n++ == stall->unnamed || age_ms(cut.at_ms, suspect) > stall->age_ms) {
			stall->oldest = suspect->slot;
			stall->age_ms = age_ms(cut.at_ms, suspect);
		}
		if (stalled)
			slots_add(stalled, &suspect->slot);
	}
}

/* Where the messages of the stalled receives are. */
static void messages_find(struct pass *pass, const struct slots *stalled)
{
	static char has[COUPON_SLOTS_MAX], dead[COUPON_SLOTS_MAX];

	for (size_t at = 0, n; at < stalled->n; at += n) {
		n = stalled->n - at < COUPON_SLOTS_MAX ? stalled->n - at : COUPON_SLOTS_MAX;
		has_read(pass->audit, pass->coupon, COUPON_KEY_OUTBOX, stalled->list + at, n, has);
		has_read(pass->audit, pass->coupon, COUPON_KEY_DEAD, stalled->list + at, n, dead);
		for (size_t i = 0; i < n; i++) {
			pass->stall.dead += dead[i];
			pass->stall.outbox += has[i] && !dead[i];
		}
	}
}

int stall_search(struct pass *pass)
{
	if (!pass->row.known || pass->cut.bad || pass->cut.held ||
	    (pass->open.n == 0 && pass->unnamed == 0))
		return 0;
	stalled_find(pass, NULL);
	return pass->stall.n > 0;
}

void stall_confirm(struct pass *pass, struct locks *locks)
{
	struct slots stalled = { 0 };

	stalled_find(pass, &stalled);
	messages_find(pass, &stalled);
	slots_fini(&stalled);
	if (pass->stall.n == 0)
		return;
	pass->stall.locked_ms = locks_look(locks, pass->audit->db, clock_monotonic_ms());
	pass->stall.held = locks_workers_hold(pass->audit->db);
	broker_look(pass->audit->broker, &pass->stall.broker);
}

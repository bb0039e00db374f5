#include "ctl/audit/watch.h"

#include "common/clock.h"
#include "common/rabbit/connection.h"
#include "ctl/audit/compare.h"
#include "ctl/audit/pass.h"
#include "ctl/audit/redis.h"

#include <unistd.h>

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
		enum slot_found how = slot_look_up(&slots[i], outcomes[i].holder_key,
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

	for (size_t i = 0; i < n; i++) {
		struct suspect *suspect = &suspects[i];

		if (slot_look_up(&slots[i], NULL, records->element[i]) != SLOT_SAME)
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

/* Updates the state of every suspect, and the counts of the pass that looks find. */
static void look_once(struct look *look)
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

#define LOOKS 3
#define PAUSE_US 250000
#define HOLD_MS (2 * RABBIT_HEARTBEAT_S * 1000 + 5000)
#define BUSY_LOOKS 8   /* consecutive ones with messages in the queue: it will not be empty soon */
#define LOCKED_MS 5000 /* a transaction that is open for so long will not end soon */
#define RESENT_AFTER 5 /* times COUPON_RESEND_AFTER_MS: what is overtaken is sent again by then */
#define EXTRA_MS 10000 /* beyond the time that a suspect has to be overdue, for interruptions */

/* How long a slot has to be overdue before it is wrong. */
static int64_t need_ms(const struct look *look, const struct slot *slot)
{
	int64_t grace_ms = look->pass->audit->grace_ms;

	return look_is_future(look->redis_ms, slot) || grace_ms < HOLD_MS ? grace_ms : HOLD_MS;
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

	return pass->broker_asked && (!pass->broker_ok || pass->dead > 0 ||
				      look->busy_n >= BUSY_LOOKS || pass->locked_ms >= LOCKED_MS);
}

/* Receives without an outcome: both queues have to be empty. */
static enum verdict overdue_judge(const struct look *look, int64_t begin_ms, int64_t since_ms,
				  int64_t wanted_ms, int looks)
{
	if (looks >= LOOKS && look->empty_n >= LOOKS &&
	    (look->idle || look->now_ms - since_ms >= wanted_ms))
		return VERDICT_WRONG;
	if (is_hopeless(look) || look->now_ms - begin_ms >= wanted_ms + EXTRA_MS)
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

static enum verdict open_judge(const struct look *look, int64_t begin_ms,
			       const struct suspect *suspect)
{
	switch (suspect->state) {
	case SUSPECT_HELD:
	case SUSPECT_QUIET:
		return suspect->looks >= LOOKS ? VERDICT_WRONG : VERDICT_LATER;
	case SUSPECT_OVERDUE:
		return overdue_judge(look, begin_ms, suspect->since_ms,
				     need_ms(look, &suspect->slot), suspect->looks);
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
static int is_done(const struct look *look, int64_t begin_ms)
{
	struct pass *pass = look->pass;
	int left[VERDICT_NONE + 1] = { 0 };
	enum verdict unnamed;

	for (size_t i = 0; i < pass->rows.n; i++)
		left[VERDICT_LATER] += pass->rows.list[i].looks < LOOKS;
	for (size_t i = 0; i < pass->open.n; i++)
		left[open_judge(look, begin_ms, &pass->open.list[i])]++;
	for (size_t i = 0; i < pass->outbox.settled.n; i++)
		left[entry_judge(look, &pass->outbox.settled.list[i])]++;
	if (pass->unnamed > 0) {
		unnamed = overdue_judge(look, begin_ms, look->unnamed_since_ms,
					pass->audit->grace_ms, look->unnamed_looks);
		left[unnamed]++;
		pass->unnamed_overdue = unnamed == VERDICT_WRONG;
	}
	pass->undecided = left[VERDICT_NONE] > 0;
	return left[VERDICT_LATER] == 0;
}

void watch_start(struct watch *watch, struct pass *pass)
{
	*watch = (struct watch){
		.look = { .pass = pass, .ignore_age = pass_gone(pass) > 0 },
		.begin_ms = clock_monotonic_ms(),
		.done = !pass->row.known || pass->cut.bad || pass->cut.held,
	};
	suspects_restart(&pass->rows);
	suspects_restart(&pass->open);
	suspects_restart(&pass->outbox.settled);
	watch_look(watch);
}

void watch_look(struct watch *watch)
{
	if (watch->done)
		return;
	look_once(&watch->look);
	watch->done = is_done(&watch->look, watch->begin_ms);
}

void watch_pause(void)
{
	usleep(PAUSE_US);
}

int watch_found_wrong(const struct pass *pass, const struct suspect *suspect)
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

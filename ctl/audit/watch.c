/*
 * What does not agree is looked at again, for two readings of a system at work are never of one
 * moment. A state counts when it was found at LOOKS looks in a row. What is only old must stay so
 * for as long as a worker that hangs may keep a message: of those messages RabbitMQ tells nothing.
 * It takes them back when no heartbeat came for twice AMQP_LINK_HEARTBEAT_S.
 */
#include "ctl/audit/pass.h"

#include "common/rabbit/connection.h"
#include "common/clock.h"
#include "ctl/rabbit.h"

#include <string.h>
#include <unistd.h>

#define LOOKS 3
#define PAUSE_US 250000
#define HOLD_MS (2 * AMQP_LINK_HEARTBEAT_S * 1000 + 5000)
#define BUSY_LOOKS 8   /* in a row, with messages in the queue: it will not be empty soon */
#define EXTRA_MS 10000 /* beyond the time that something has to be overdue, for interruptions */
#define SKEW_MS 60000  /* a batch that is younger than now by more tells no age */

/* One round of looks at everything. */
struct watch {
	struct pass *pass;
	int64_t now_ms, begin_ms; /* monotonic */
	int64_t redis_ms;         /* by Redis' clock */
	int quiet;                /* all numbers that were given out have an outcome */
	/* PostgreSQL's own counts say that an outcome is gone: young slots too are looked into */
	int must_tell;
	int empty_n, busy_n; /* looks that found the queues empty; that found messages, in a row */
	int idle;            /* and there is no consumer */
	int unnamed_looks;
	int64_t unnamed_since_ms;
};

static void state_set(struct watch *watch, struct suspect *suspect, enum suspect_state state)
{
	if (suspect->state != state || suspect->looks == 0) {
		suspect->state = state;
		suspect->looks = 0;
		suspect->since_ms = watch->now_ms;
	}
	suspect->looks++;
}

static void gone_drop(struct suspects *suspects)
{
	size_t kept = 0;

	for (size_t i = 0; i < suspects->n; i++)
		if (suspects->list[i].state != SUSPECT_GONE)
			suspects->list[kept++] = suspects->list[i];
	suspects->n = kept;
}

typedef void look_fn(struct watch *watch, struct suspect *suspects, const struct slot *slots,
		     size_t n);

/*
 * Hands the suspects to `look` in parts, each with its slots side by side; those that are gone
 * leave the list.
 */
static void parts_look(struct watch *watch, struct suspects *suspects, look_fn *look)
{
	static struct slot slots[AUDIT_ASK_MAX];
	size_t step = users_step(watch->pass->row.limit);

	for (size_t at = 0; at < suspects->n; at += step) {
		size_t n = suspects->n - at < step ? suspects->n - at : step;

		for (size_t i = 0; i < n; i++)
			slots[i] = suspects->list[at + i].slot;
		look(watch, suspects->list + at, slots, n);
	}
	gone_drop(suspects);
}

/* User coupons: is it still one, and does Redis still not have it so? */
static void rows_look(struct watch *watch, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	static struct outcome outcomes[AUDIT_ASK_MAX];
	struct pass *pass = watch->pass;
	redisReply *records;

	audit_outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
	records = users_read(pass->audit, pass->coupon, slots, n);
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
		state_set(watch, &suspects[i], SUSPECT_DIFFERENT);
	}
	freeReplyObject(records);
}

static int64_t batch_ms(const struct ulid *batch)
{
	int64_t ms = 0;

	for (int i = 0; i < 6; i++)
		ms = ms << 8 | batch->bytes[i];
	return ms;
}

static int is_of_the_future(const struct watch *watch, const struct slot *slot)
{
	return batch_ms(&slot->batch) > watch->redis_ms + SKEW_MS;
}

static int is_old(const struct watch *watch, const struct slot *slot)
{
	return watch->must_tell || is_of_the_future(watch, slot) ||
	       watch->redis_ms - batch_ms(&slot->batch) > watch->pass->audit->grace_ms;
}

/* How long something has to be overdue before it is told. */
static int64_t need_ms(const struct watch *watch, const struct slot *slot)
{
	int64_t grace_ms = watch->pass->audit->grace_ms;

	return is_of_the_future(watch, slot) || grace_ms < HOLD_MS ? grace_ms : HOLD_MS;
}

/* Open slots that have no outcome, or gave theirs back: does Redis still have them? */
static void open_look(struct watch *watch, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	redisReply *records = users_read(watch->pass->audit, watch->pass->coupon, slots, n);
	struct slot found;

	for (size_t i = 0; i < n; i++) {
		struct suspect *suspect = &suspects[i];

		if (records_look_up(records->element[i], &slots[i], NULL, &found) != SLOT_SAME)
			suspect->state = SUSPECT_GONE;
		else if (suspect->state == SUSPECT_HELD)
			state_set(watch, suspect, SUSPECT_HELD);
		else if (watch->quiet)
			state_set(watch, suspect, SUSPECT_QUIET);
		else if (!is_old(watch, &suspect->slot))
			state_set(watch, suspect, SUSPECT_FLIGHT);
		else
			state_set(watch, suspect,
				  suspect->state == SUSPECT_OUTBOX ? SUSPECT_OUTBOX
								   : SUSPECT_OVERDUE);
	}
	freeReplyObject(records);
}

/* Of what is overdue: is its message still in the outbox? */
static void outbox_look(struct watch *watch, struct suspect *suspects, const struct slot *slots,
			size_t n)
{
	static int has[AUDIT_ASK_MAX];

	outbox_has(watch->pass->audit, watch->pass->coupon, slots, n, has);
	for (size_t i = 0; i < n; i++)
		if (suspects[i].state == SUSPECT_OVERDUE || suspects[i].state == SUSPECT_OUTBOX)
			state_set(watch, &suspects[i], has[i] ? SUSPECT_OUTBOX : SUSPECT_OVERDUE);
}

/* Entries of the outbox that should have left it. */
static void entries_look(struct watch *watch, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	static int has[AUDIT_ASK_MAX];

	outbox_has(watch->pass->audit, watch->pass->coupon, slots, n, has);
	for (size_t i = 0; i < n; i++) {
		if (has[i])
			state_set(watch, &suspects[i], SUSPECT_OVERDUE);
		else
			suspects[i].state = SUSPECT_GONE;
	}
}

static int64_t state_count(const struct suspects *suspects, enum suspect_state state)
{
	int64_t n = 0;

	for (size_t i = 0; i < suspects->n; i++)
		n += suspects->list[i].state == state;
	return n;
}

/* After the outcomes: so a number that is settled in between makes these fewer, never more. */
static void numbers_look(struct watch *watch)
{
	struct pass *pass = watch->pass;
	struct generations generations;
	struct audit_row row;
	struct cut cut;
	int64_t unnamed, unsettled;

	audit_row_read(pass->audit->db, pass->coupon, &row);
	audit_generations_read(pass->audit->db, pass->coupon, &row, &generations);
	/* A number that PostgreSQL has and Redis never gave out is a finding of its own. */
	if (pass->compared)
		generation_find(&generations, row.generation)->high = 0;
	cut_read(pass->audit, pass->coupon, &cut, &generations, 0);
	watch->redis_ms = cut.at_ms;
	unsettled = generations_unsettled(&generations, 0);
	watch->quiet = pass->compared && unsettled == 0 && cut.coupon.generation == row.generation;
	if (cut.coupon.seq == pass->cut.coupon.seq || !cut.present)
		unnamed = unsettled - (int64_t)pass->open.n +
			  state_count(&pass->open, SUSPECT_HELD);
	else
		unnamed = generations_unsettled(&generations, row.generation) - cut.known;
	/* What was settled without being counted is told as that. */
	if (pass->rows_n + pass->row.rejected > pass->row.settled_sum)
		unnamed -= pass->rows_n + pass->row.rejected - pass->row.settled_sum;
	if (watch->unnamed_looks++ == 0)
		watch->unnamed_since_ms = watch->now_ms;
	if (watch->unnamed_looks == 1 || unnamed < pass->unnamed)
		pass->unnamed = unnamed > 0 ? unnamed : 0;
}

/* Only when something is overdue: RabbitMQ may be on another network. */
static void broker_ask(struct watch *watch)
{
	struct pass *pass = watch->pass;
	struct broker_look look;

	broker_look(pass->audit->broker, &look);
	pass->broker_asked = 1;
	pass->broker_ok = look.ok;
	pass->ready = look.ok ? look.ready : 0;
	pass->dead = look.ok ? look.dead : 0;
	watch->busy_n = look.ok && look.ready > 0 ? watch->busy_n + 1 : 0;
	watch->empty_n += look.ok && look.ready == 0 && look.dead == 0;
	watch->idle = look.ok && look.ready == 0 && look.dead == 0 && look.consumers == 0;
	/* A worker in a long transaction holds what is overdue: the time begins anew. */
	if (audit_workers_slow(pass->audit->db)) {
		watch->unnamed_since_ms = watch->now_ms;
		for (size_t i = 0; i < pass->open.n; i++)
			pass->open.list[i].since_ms = watch->now_ms;
	}
}

static int is_hopeless(const struct watch *watch)
{
	const struct pass *pass = watch->pass;

	return pass->broker_asked &&
	       (!pass->broker_ok || pass->dead > 0 || watch->busy_n >= BUSY_LOOKS);
}

/* 1: it has been overdue long enough; 0: not yet; -1: that will not be told. */
static int overdue_judge(const struct watch *watch, int64_t since_ms, int64_t wanted_ms, int looks)
{
	if (looks >= LOOKS && watch->empty_n >= LOOKS &&
	    (watch->idle || watch->now_ms - since_ms >= wanted_ms))
		return 1;
	return is_hopeless(watch) || watch->now_ms - watch->begin_ms >= wanted_ms + EXTRA_MS ? -1
											     : 0;
}

/*
 * The same of an entry of the outbox: that a worker has settled it is known, so the queue does not
 * matter.
 */
static int entry_judge(const struct watch *watch, const struct suspect *entry)
{
	if (!watch->pass->broker_ok)
		return -1;
	return entry->looks >= LOOKS &&
	       watch->now_ms - entry->since_ms >= need_ms(watch, &entry->slot);
}

/* Whether nothing is left that another look could tell more about. */
static int is_done(struct watch *watch)
{
	struct pass *pass = watch->pass;
	int done = 1, told;

	pass->undecided = 0;
	for (size_t i = 0; i < pass->rows.n; i++)
		done &= pass->rows.list[i].looks >= LOOKS;
	for (size_t i = 0; i < pass->open.n; i++) {
		const struct suspect *suspect = &pass->open.list[i];

		if (suspect->state == SUSPECT_HELD || suspect->state == SUSPECT_QUIET) {
			done &= suspect->looks >= LOOKS;
		} else if (suspect->state == SUSPECT_OVERDUE) {
			told = overdue_judge(watch, suspect->since_ms,
					     need_ms(watch, &suspect->slot), suspect->looks);
			done &= told != 0;
			pass->undecided |= told < 0;
		}
	}
	for (size_t i = 0; i < pass->outbox.n; i++) {
		told = entry_judge(watch, &pass->outbox.list[i]);
		done &= told != 0;
		pass->undecided |= told < 0;
	}
	if (pass->unnamed > 0) {
		told = overdue_judge(watch, watch->unnamed_since_ms, pass->audit->grace_ms,
				     watch->unnamed_looks);
		done &= told != 0;
		pass->undecided |= told < 0;
		pass->unnamed_overdue = told > 0;
	}
	return done;
}

static int is_overdue(const struct pass *pass)
{
	return state_count(&pass->open, SUSPECT_OVERDUE) > 0 || pass->outbox.n > 0 ||
	       pass->unnamed > 0;
}

void pass_watch(struct pass *pass)
{
	struct watch watch = { .pass = pass, .begin_ms = clock_monotonic_ms() };

	if (!pass->row.known || pass->cut.bad || pass->cut.held)
		return;
	watch.must_tell = pass_gone(pass) > 0;
	for (;;) {
		watch.now_ms = clock_monotonic_ms();
		parts_look(&watch, &pass->rows, rows_look);
		pass_open_resolve(pass);
		numbers_look(&watch);
		parts_look(&watch, &pass->open, open_look);
		if (state_count(&pass->open, SUSPECT_OVERDUE) +
			    state_count(&pass->open, SUSPECT_OUTBOX) >
		    0)
			parts_look(&watch, &pass->open, outbox_look);
		parts_look(&watch, &pass->outbox, entries_look);
		if (is_overdue(pass))
			broker_ask(&watch);
		if (is_done(&watch))
			return;
		usleep(PAUSE_US);
	}
}

int suspect_is_wrong(const struct pass *pass, const struct suspect *suspect)
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

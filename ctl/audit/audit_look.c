/*
 * Looks at what does not agree in both stores until it does, or is certainly wrong, or cannot be
 * decided; then at what is in flight without progress.
 */
#include "ctl/audit/audit.h"

#include "common/clock.h"
#include "common/rabbit/connection.h"
#include "ctl/store.h"
#include "embed.h"

#define SKEW_MS 60000 /* a batch that is younger than now by more has no usable age */
#define LOOKS 3
#define HOLD_MS (2 * RABBIT_HEARTBEAT_S * 1000 + 5000)
#define BUSY_LOOKS 8   /* consecutive ones with messages in the queue: it will not be empty soon */
#define LOCKED_MS 5000 /* a transaction that is open for so long will not end soon */
#define RESENT_AFTER 5 /* times COUPON_RESEND_AFTER_MS: what is overtaken is sent again by then */
#define EXTRA_MS 10000 /* beyond the time that a suspect has to be overdue, for interruptions */

static void state_set(struct pass *pass, struct suspect *suspect, enum suspect_state state)
{
	if (suspect->state != state || suspect->looks == 0) {
		suspect->state = state;
		suspect->looks = 0;
		suspect->since_ms = pass->look.now_ms;
	}
	suspect->looks++;
}

/* User coupons that still exist, and that Redis does not have, or has with another key. */
static void rows_look(struct pass *pass, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	PGresult *outcomes = outcomes_read(pass, slots, n);
	redisReply *records = records_read(pass, slots, n);

	for (size_t i = 0; i < n; i++) {
		enum slot_found how = slot_look_up(&slots[i],
						   column_text(outcomes, (int)i, "holder_key"),
						   records->element[i]);
		int is_wrong = !db_is_null(outcomes, (int)i, "issued_ms") &&
			       !db_is_true(outcomes, (int)i, "is_late") &&
			       (how == SLOT_NONE || how == SLOT_OTHER_KEY);

		suspects[i].how = how;
		state_set(pass, &suspects[i], is_wrong ? SUSPECT_DIFFERENT : SUSPECT_GONE);
	}
	PQclear(outcomes);
	freeReplyObject(records);
}

static int64_t age_ms(int64_t redis_ms, const struct slot *slot)
{
	return redis_ms - ulid_time_ms(&slot->batch);
}

/* A batch that claims to be made in the future has no usable age: it counts as old. */
static int is_aged(int64_t redis_ms, const struct slot *slot, int64_t limit_ms)
{
	return age_ms(redis_ms, slot) > limit_ms || age_ms(redis_ms, slot) < -SKEW_MS;
}

static int is_old(const struct pass *pass, const struct slot *slot)
{
	return pass->look.ignore_age || is_aged(pass->look.redis_ms, slot, pass->audit->grace_ms);
}

/* Open slots without an outcome, or freed, that Redis still has. */
static void open_look(struct pass *pass, struct suspect *suspects, const struct slot *slots,
		      size_t n)
{
	static char sent[COUPON_SLOTS_MAX];
	redisReply *records = records_read(pass, slots, n);
	int any_old = 0;

	for (size_t i = 0; i < n && !pass->look.quiet; i++)
		any_old |= is_old(pass, &slots[i]);
	if (any_old)
		store_has(pass->audit->redis, pass->coupon, COUPON_KEY_OUTBOX, slots, n, sent);
	for (size_t i = 0; i < n; i++) {
		enum suspect_state state = SUSPECT_OVERDUE;

		if (slot_look_up(&slots[i], NULL, records->element[i]) != SLOT_SAME)
			state = SUSPECT_GONE;
		else if (suspects[i].state == SUSPECT_HELD)
			state = SUSPECT_HELD;
		else if (pass->look.quiet)
			state = SUSPECT_QUIET;
		else if (!is_old(pass, &slots[i]) || sent[i])
			state = SUSPECT_FLIGHT;
		state_set(pass, &suspects[i], state);
	}
	freeReplyObject(records);
}

/*
 * Settled entries that are still in the outbox. A worker that was killed has not removed them; the
 * keeper then publishes them again, and another worker removes them, once they have passed the
 * queue. Dead letters are left to an operator.
 */
static void entries_look(struct pass *pass, struct suspect *suspects, const struct slot *slots,
			 size_t n)
{
	static char has[COUPON_SLOTS_MAX], dead[COUPON_SLOTS_MAX];
	int waits = !pass->look.keeper || !pass->broker.ok || pass->broker.ready > 0;

	store_has(pass->audit->redis, pass->coupon, COUPON_KEY_OUTBOX, slots, n, has);
	store_has(pass->audit->redis, pass->coupon, COUPON_KEY_DEAD, slots, n, dead);
	for (size_t i = 0; i < n; i++)
		state_set(pass, &suspects[i],
			  !has[i] || dead[i] ? SUSPECT_GONE
			  : waits            ? SUSPECT_FLIGHT
					     : SUSPECT_OVERDUE);
}

/* Receives that no store has may come back from a gateway. */
static void gateways_look(struct pass *pass)
{
	cJSON *gateways = store_gateways_lacking(pass->audit->db, pass->audit->redis);

	store_gateways_text(gateways, pass->gateways);
	cJSON_Delete(gateways);
}

/* How long a slot has to be overdue before it is wrong. */
static int64_t need_ms(const struct pass *pass, const struct slot *slot)
{
	int64_t grace_ms = pass->audit->grace_ms;

	return age_ms(pass->look.redis_ms, slot) < -SKEW_MS || grace_ms < HOLD_MS ? grace_ms
										  : HOLD_MS;
}

/* Judges receives without an outcome: they are lost only if both queues are empty. */
static enum look_result overdue_judge(const struct pass *pass, int64_t since_ms, int64_t wanted_ms,
				      int looks)
{
	const struct look *look = &pass->look;
	int is_hopeless = pass->broker_asked && (!pass->broker.ok || pass->broker.dead > 0 ||
						 look->busy_n >= BUSY_LOOKS ||
						 pass->locked_ms >= LOCKED_MS || *pass->gateways);

	if (looks >= LOOKS && look->empty_n >= LOOKS && !*pass->gateways &&
	    (look->idle || look->now_ms - since_ms >= wanted_ms))
		return LOOK_WRONG;
	if (is_hopeless || look->now_ms - look->begin_ms >= wanted_ms + EXTRA_MS)
		return LOOK_NONE;
	return LOOK_LATER;
}

/* Judges a settled outbox entry: wrong when the keeper has had the time to publish it again. */
static enum look_result entry_judge(const struct pass *pass, const struct suspect *entry)
{
	int64_t wanted_ms = need_ms(pass, &entry->slot);
	int64_t resent_ms = pass->audit->resend_after_ms * RESENT_AFTER;

	if (entry->state != SUSPECT_OVERDUE)
		return LOOK_RIGHT;
	if (wanted_ms < resent_ms)
		wanted_ms = resent_ms;
	return entry->looks >= LOOKS && pass->look.now_ms - entry->since_ms >= wanted_ms
		       ? LOOK_WRONG
		       : LOOK_LATER;
}

/* Judges a slot or a user coupon. */
static enum look_result slot_judge(const struct pass *pass, const struct suspect *suspect)
{
	switch (suspect->state) {
	case SUSPECT_HELD:
	case SUSPECT_QUIET:
	case SUSPECT_DIFFERENT:
		return suspect->looks >= LOOKS ? LOOK_WRONG : LOOK_LATER;
	case SUSPECT_OVERDUE:
		return overdue_judge(pass, suspect->since_ms, need_ms(pass, &suspect->slot),
				     suspect->looks);
	case SUSPECT_FLIGHT:
	case SUSPECT_GONE:
		break;
	}
	return LOOK_RIGHT;
}

void look_again(struct pass *pass)
{
	struct suspects *all[] = { &pass->rows, &pass->open, &pass->settled };
	size_t step = records_step(pass->row.limit);
	int left[LOOK_NONE + 1] = { 0 };
	struct look *look = &pass->look;
	enum look_result unnamed;
	struct generations generations = { 0 };
	struct audit_row row;
	struct cut cut;
	int64_t settled_over, lacking;

	if (look->done)
		return;

	/* Updates the state of every suspect, and the counts of the pass that looks find. */
	look->now_ms = clock_monotonic_ms();
	suspects_each(pass, &pass->rows, step, rows_look);
	pass_resolve(pass);

	/*
	 * Count receive numbers without an outcome that no slot names. Read after the outcomes: a
	 * receive that is settled in between lowers these counts.
	 */
	settled_over = pass_outcomes_over(pass);
	row_read(pass, &row, &generations);
	/* A number that PostgreSQL has and Redis never gave out is a finding of its own. */
	if (pass->compared)
		generation_find(&generations, row.generation)->high = 0;
	cut_read(pass, &cut, &generations, 0);
	look->redis_ms = cut.at_ms;
	look->keeper = cut.keeper;
	look->quiet = pass->compared && generations_unsettled(&generations, 0) == 0 &&
		      cut.coupon.generation == row.generation;
	if (cut.coupon.seq == pass->cut.coupon.seq || !cut.present)
		lacking = generations_unsettled(&generations, 0) - (int64_t)pass->open.n +
			  suspects_count(&pass->open, SUSPECT_HELD);
	else
		lacking = generations_unsettled(&generations, row.generation) - cut.known;
	/* Outcomes that were not counted as settled are a finding of their own. */
	if (settled_over > 0)
		lacking -= settled_over;
	if (lacking < 0)
		lacking = 0;
	generations_fini(&generations);
	if (look->unnamed_looks++ == 0)
		look->unnamed_since_ms = look->now_ms;
	if (look->unnamed_looks == 1 || lacking < pass->unnamed)
		pass->unnamed = lacking;

	suspects_each(pass, &pass->open, step, open_look);
	/* RabbitMQ may be on another network: it is queried only when it decides something. */
	if (suspects_count(&pass->open, SUSPECT_OVERDUE) > 0 || pass->settled.n > 0 ||
	    pass->unnamed > 0) {
		int is_empty;

		broker_look(&pass->audit->broker, &pass->broker);
		pass->broker_asked = 1;
		is_empty = pass->broker.ok && pass->broker.ready == 0 && pass->broker.dead == 0;
		look->busy_n = pass->broker.ok && pass->broker.ready > 0 ? look->busy_n + 1 : 0;
		look->empty_n += is_empty;
		look->idle = is_empty && pass->broker.consumers == 0;
		pass->locked_ms = locks_look(&look->locks, pass->audit->db, look->now_ms);
		gateways_look(pass);
		/*
		 * Workers hold the overdue receives while one of them is in a long transaction or
		 * has put off coupons, or another session holds a lock: their time starts again.
		 */
		if (locks_workers_hold(pass->audit->db) || pass->locked_ms > 0) {
			look->unnamed_since_ms = look->now_ms;
			for (size_t i = 0; i < pass->open.n; i++)
				pass->open.list[i].since_ms = look->now_ms;
		}
	}
	suspects_each(pass, &pass->settled, step, entries_look);

	for (size_t list = 0; list < 3; list++)
		for (size_t i = 0; i < all[list]->n; i++) {
			struct suspect *suspect = &all[list]->list[i];

			suspect->result = all[list] == &pass->settled ? entry_judge(pass, suspect)
								      : slot_judge(pass, suspect);
			left[suspect->result]++;
		}
	if (pass->unnamed > 0) {
		unnamed = overdue_judge(pass, look->unnamed_since_ms, pass->audit->grace_ms,
					look->unnamed_looks);
		left[unnamed]++;
		pass->unnamed_overdue = unnamed == LOOK_WRONG;
	}
	pass->undecided = left[LOOK_NONE] > 0;
	look->done = left[LOOK_LATER] == 0;
}

void look_start(struct pass *pass)
{
	struct suspects *all[] = { &pass->rows, &pass->open, &pass->settled };

	pass->look = (struct look){
		.begin_ms = clock_monotonic_ms(),
		.ignore_age = pass_gone(pass) > 0,
		.done = pass->cut.bad || pass->cut.held,
	};
	for (size_t list = 0; list < 3; list++)
		for (size_t i = 0; i < all[list]->n; i++)
			all[list]->list[i].looks = 0;
	look_again(pass);
}

int look_found_wrong(const struct pass *pass, const struct suspect *suspect)
{
	return suspect->result == LOOK_WRONG &&
	       (suspect->state != SUSPECT_OVERDUE || !pass->undecided);
}

/*
 * When the latest receive that has an outcome was made, if it is later by more than the limit than
 * one that has none; 0: it is not.
 */
static int64_t newest_find(const struct pass *pass, int64_t redis_ms)
{
	int64_t oldest_ms = 0, limit_ms = pass->audit->stalled_ms;

	for (size_t i = 0; i < pass->open.n; i++)
		if (age_ms(redis_ms, &pass->open.list[i].slot) > oldest_ms)
			oldest_ms = age_ms(redis_ms, &pass->open.list[i].slot);
	if (oldest_ms <= limit_ms)
		return 0;
	return db_value(pass->audit->db, sql_query_audit_overtaken, postgres_number(pass->coupon),
			postgres_number(redis_ms - oldest_ms + limit_ms));
}

int stall_search(struct pass *pass, struct locks *locks)
{
	static char has[COUPON_SLOTS_MAX], dead[COUPON_SLOTS_MAX];
	struct redis_client *redis = pass->audit->redis;
	const int64_t limit_ms = pass->audit->stalled_ms;
	struct stall *stall = &pass->stall;
	struct generations now = { 0 };
	struct slots stalled = { 0 }; /* the stalled receives that have one */
	struct audit_row row;
	struct cut cut;
	int64_t newest_ms;

	if (pass->cut.bad || pass->cut.held || (pass->open.n == 0 && pass->unnamed == 0))
		return 0;

	/* Outcomes are read last: what has one is not in flight. */
	cut_read(pass, &cut, NULL, 0);
	row_read(pass, &row, &now);
	newest_ms = row.idle_ms > limit_ms ? INT64_MAX : newest_find(pass, cut.at_ms);
	pass_resolve(pass);
	*stall = (struct stall){ .idle_ms = row.idle_ms, .keeper = cut.keeper };

	/* Receive numbers without an outcome in generations without progress. */
	for (size_t i = 0; i < now.n && !pass->unnamed_overdue; i++) {
		int64_t then = generation_find(&pass->generations, now.list[i].number)->high;
		int64_t high = then > now.list[i].high ? then : now.list[i].high;

		if (now.list[i].idle_ms > limit_ms && high > now.list[i].settled)
			stall->unnamed += high - now.list[i].settled;
	}
	if (stall->unnamed > pass->unnamed)
		stall->unnamed = pass->unnamed;
	stall->n = stall->unnamed;
	generations_fini(&now);
	for (size_t i = 0; i < pass->open.n; i++) {
		const struct suspect *suspect = &pass->open.list[i];

		if (suspect->state == SUSPECT_HELD || look_found_wrong(pass, suspect) ||
		    !is_aged(cut.at_ms, &suspect->slot, limit_ms) ||
		    ulid_time_ms(&suspect->slot.batch) + limit_ms >= newest_ms)
			continue;
		if (stall->n++ == stall->unnamed ||
		    age_ms(cut.at_ms, &suspect->slot) > stall->age_ms) {
			stall->oldest = suspect->slot;
			stall->age_ms = age_ms(cut.at_ms, &suspect->slot);
		}
		slots_add(&stalled, &suspect->slot);
	}

	if (locks && stall->n > 0) {
		/* Where the messages of the stalled receives are, and what else is known. */
		for (size_t at = 0, n; at < stalled.n; at += n) {
			n = stalled.n - at < COUPON_SLOTS_MAX ? stalled.n - at : COUPON_SLOTS_MAX;
			store_has(redis, pass->coupon, COUPON_KEY_OUTBOX, stalled.list + at, n,
				  has);
			store_has(redis, pass->coupon, COUPON_KEY_DEAD, stalled.list + at, n, dead);
			for (size_t i = 0; i < n; i++) {
				stall->dead += dead[i];
				stall->outbox += has[i] && !dead[i];
			}
		}
		stall->locked_ms = locks_look(locks, pass->audit->db, clock_monotonic_ms());
		stall->held = locks_workers_hold(pass->audit->db);
		gateways_look(pass);
		broker_look(&pass->audit->broker, &stall->broker);
	}
	slots_fini(&stalled);
	return stall->n > 0;
}

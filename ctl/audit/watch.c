#include "ctl/audit/watch.h"

#include "common/clock.h"
#include "common/rabbit/connection.h"

#include <unistd.h>

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

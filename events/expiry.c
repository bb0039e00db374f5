#include "events/expiry.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "common/thread.h"
#include "embed.h"
#include "keeper/keeper.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define PART 5000     /* user coupons whose coupon is locked while their events are written */
#define EVERY_MS 2000 /* until it is looked again what is due */
#define NICE 10

#define CONNECT_TIMEOUT_MS 3000
#define STATEMENT_TIMEOUT_MS 600000 /* it reads all user coupons of a campaign */
#define GRACE_MS 1000               /* the server's timeout expires before ours */
#define LOCK_TIMEOUT_MS 200         /* for the coupon: one that is locked has its next turn */

struct expiry {
	struct thread thread;
	struct postgres *postgres; /* blocking */
	int64_t after;             /* the campaign of the last step: they take turns */
	int has_told;              /* a step of this turn of all has succeeded */
};

static int is_over(void *context)
{
	return ((struct expiry *)context)->thread.stops || !keeper_state().elected;
}

/*
 * Does a step of the next campaign that is due. Whether to go on at once: after the last campaign,
 * only if a step has succeeded since the first.
 */
static int step(struct expiry *expiry)
{
	const struct postgres_patience patience = { .timeout_ms = STATEMENT_TIMEOUT_MS + GRACE_MS,
						    .waiting = is_over,
						    .context = expiry };
	PGresult *due, *told;
	int goes_on;

	/* PostgreSQL is the one that Redis follows. */
	if (!keeper_state().elected || !relation_is_followed(keeper_state().relation)) {
		postgres_close(expiry->postgres);
		return 0;
	}
	if (postgres_open(expiry->postgres))
		return 0;
	due = postgres_ask(expiry->postgres, sql_query_expiring_due,
			   POSTGRES_ARGUMENTS(postgres_number(expiry->after)), &patience);
	if (!due || PQntuples(due) == 0) {
		goes_on = expiry->has_told;
		expiry->after = 0;
		expiry->has_told = 0;
		PQclear(due);
		return goes_on;
	}
	expiry->after = number_at(due, 0, 0);
	told = postgres_ask(expiry->postgres, sql_query_expiring_tell,
			    POSTGRES_ARGUMENTS(postgres_number(expiry->after),
					       postgres_number(PART)),
			    &patience);
	fault_point(FAULT_EXPIRING_STEP);
	/* Nothing was returned: another session is at it. */
	if (told && PQntuples(told) > 0)
		expiry->has_told = 1;
	PQclear(told);
	PQclear(due);
	return 1;
}

static void *run(void *argument)
{
	struct expiry *expiry = argument;

	/* Settling goes first. The nice value is this thread's alone; a failure does no harm. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (!expiry->thread.stops)
		if (!step(expiry))
			thread_pause(&expiry->thread, clock_monotonic_ms() + EVERY_MS, NULL, 0);
	postgres_close(expiry->postgres);
	return NULL;
}

struct expiry *expiry_start(const struct config *config)
{
	struct expiry *expiry = checked(calloc(1, sizeof(*expiry)));

	expiry->postgres = postgres_new(&(struct postgres_options){
		.url = config->database_url,
		.application_name = "coupon-expiry",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = STATEMENT_TIMEOUT_MS,
		.lock_timeout_ms = LOCK_TIMEOUT_MS,
		.lost_event = "expiry_database_lost",
		.unreachable_event = "expiry_database_unreachable",
		.notice_event = "expiry_database_notice",
	});
	thread_start(&expiry->thread, run, expiry);
	return expiry;
}

void expiry_stop(struct expiry *expiry)
{
	thread_stop(&expiry->thread);
	postgres_free(expiry->postgres);
	free(expiry);
}

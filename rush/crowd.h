/*
 * The users of an open loop: who comes, waits, gives up and presses again. No I/O.
 *
 *	              ┌──── again, after a pause: no answer in time, or no connection ────┐
 *	              ▼                                                                   │
 *	schedule ──▶ due ── a slot is free ──▶ in a slot ── give_up_us after it was due ──┤
 *	              │                            │                                      │
 *	              └─ no slot was free in time  └─ an answer, of whatever kind         └─ retries
 *	                                              ends it                                end
 *
 * Who cannot be started in time is not started at all: a user who begins when his patience is about
 * to end asks the gateway for what nobody waits for.
 *
 * A user in a slot has a connection of its own, which has the slot's number. Its request has the
 * user's number in rush_requests, and is open from its first attempt until it ends. The time that
 * an answer took begins when the user came, whatever attempt was answered.
 */
#pragma once

#include "rush/tally.h"

#define RUSH_START_LATE_US 100000 /* after a user was due, for want of a slot or of time */

struct rush_press {
	int64_t due_us;
	uint32_t user;
	uint8_t end; /* of the attempt before, enum rush_end */
};

/* Users who press again, in the order in which they are due. */
struct rush_presses {
	struct rush_press *list;
	size_t first, n, size;
};

struct rush_slot {
	uint32_t user;
	uint32_t attempt; /* from 0 on */
	int is_sent;      /* set by the owner when the request is sent: it may be accepted then */
	int64_t due_us;
	uint32_t older, newer; /* in the order in which they were due */
};

/* One second of the run. */
struct rush_second {
	uint32_t offered;    /* users who came */
	uint32_t attempts;   /* that began */
	uint32_t good;       /* answers with a decision */
	uint32_t refused;    /* others: busy, unavailable, unknown */
	uint32_t unanswered; /* attempts that ended without an answer */
};

struct rush_crowd {
	struct rush_requests *requests;
	const struct rush_plan *plan;
	struct rush_arrivals arrivals;
	int64_t arrival_us;                              /* of the next user */
	int is_stopped;                                  /* nobody comes or presses any more */
	struct rush_presses again[RUSH_RETRIES_MAX + 1]; /* by attempt; [0] is not used */
	struct rush_slot *slots;                         /* of plan->connections_n */
	uint32_t *free, free_n;
	uint32_t oldest, newest;
	struct rush_second *seconds;
	uint32_t seconds_n;

	uint32_t open_most; /* connections at once */
	uint32_t started;   /* users of whom an attempt began */
	int64_t attempts;
	int64_t good;                              /* answers with a decision, in time */
	int64_t answered_at[RUSH_RETRIES_MAX + 1]; /* answers to each attempt */
	int64_t gave_up;                           /* attempts: no answer in time */
	int64_t gave_up_connecting;                /* or no connection */
	int64_t refused;                           /* the connection was refused */
	int64_t lost;                              /* it was cut */
	int64_t no_room;                           /* this program had no port or descriptor */
};

void rush_crowd_init(struct rush_crowd *crowd, struct rush_requests *requests);
void rush_crowd_fini(struct rush_crowd *crowd);

/* The slot in which a user begins an attempt now, or RUSH_NONE. */
int rush_crowd_start(struct rush_crowd *crowd, int64_t now_us);

/* Each of these ends the attempt in a slot, which is then free. */

/*
 * 0; RUSH_NONE: it came too late. RUSH_WRONG: it is no answer to this user's request, and the
 * attempt goes on.
 */
int rush_crowd_answer(struct rush_crowd *crowd, uint32_t slot, const struct client_reply *reply,
		      int64_t now_us);
/* The connection has ended with this errno. */
void rush_crowd_lost(struct rush_crowd *crowd, uint32_t slot, int error, int64_t now_us);
/* One whose time is over: its slot, or RUSH_NONE. */
int rush_crowd_expire(struct rush_crowd *crowd, int64_t now_us);

/* Nobody comes or presses any more; who is in a slot still waits. */
void rush_crowd_stop(struct rush_crowd *crowd);
int rush_crowd_is_over(const struct rush_crowd *crowd);
/* When there is something to start or to expire; INT64_MAX: it is over. */
int64_t rush_crowd_wake_us(const struct rush_crowd *crowd);

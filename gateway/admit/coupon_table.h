/*
 * The coupons that a process of the gateway remembers, up to a limit. For a new one, the least
 * recently used one that nothing depends on is forgotten. Part of admission.
 */
#ifndef GATEWAY_ADMIT_COUPON_TABLE_H
#define GATEWAY_ADMIT_COUPON_TABLE_H

#include "common/hash.h"
#include "gateway/admit/admission_port.h"
#include "gateway/listen/request.h"

struct coupon {
	int64_t id;
	UT_hash_handle hh;
	TAILQ_ENTRY(coupon) by_use;
	/* Of the call queue. */
	STAILQ_ENTRY(coupon) ready; /* in its list of those with something to send */
	int is_ready;
	int is_busy; /* as last reported to the port */
	int64_t calls;
	size_t open; /* receives waiting, in a call, being looked up, or not confirmed */
	struct request_list waiting;
	/* Redis does not have the coupon: these wait for a look-up in PostgreSQL. */
	struct request_list parked;
	int looking;
	/* The highest that Redis has named, see below. */
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t report_after_ms; /* not reported again before */
	int64_t ask_after_ms;    /* the keeper is not asked for it again before */
	TAILQ_ENTRY(coupon) next_unreported;
	int is_unreported; /* in that list */
	/* A losing answer that is repeated until then. */
	enum answer memory;
	int64_t memory_until_ms;
	int64_t doubt_until_ms; /* a call whose outcome is unknown may still take effect */
};

TAILQ_HEAD(coupons_by_use, coupon);
TAILQ_HEAD(coupons_unreported, coupon);

struct coupon_table {
	struct coupon *coupons;
	struct coupons_by_use by_use; /* least recently used first */
	/* To be reported to a new process of Redis, see below; none of them is forgotten. */
	struct coupons_unreported unreported;
	size_t max;
};

void coupon_table_init(struct coupon_table *table, size_t max);
void coupon_table_fini(struct coupon_table *table); /* frees every coupon */

struct coupon *coupon_table_find(const struct coupon_table *table, int64_t id); /* NULL: none */
/* The coupon, now the most recently used, or a new one; NULL when no more can be remembered. */
struct coupon *coupon_table_get(struct coupon_table *table, int64_t id, int64_t now_ms);

/* Whether requests for it wait or are in a call. */
int coupon_has_requests(const struct coupon *coupon);

/* Remembers a losing answer that is true for every user of the coupon. */
void coupon_remember(struct coupon *coupon, enum answer answer, int64_t until_ms);
/* Whether it answers the request; never one with a key, which may be known already. */
int coupon_remembers(const struct coupon *coupon, const struct request *request, int64_t now_ms);

/*
 * The highest generation of a coupon that Redis has named to this process, and the highest seq in
 * it. They are sent with every call, so that a Redis that has fallen behind refuses it. They are
 * also reported, for the keeper, to a Redis that refuses the coupon or may have lost data.
 */

/* Redis named this generation and seq in a reply with a decision. */
void seen_raise(const struct admission_port *port, struct coupon *coupon, int64_t generation,
		int64_t seq);

/* Redis refuses the coupon: reports what was seen, unless a report was sent a moment ago. */
void seen_report(const struct admission_port *port, struct coupon *coupon);
/* Tells the keeper that a client asks for this coupon, unless it was told a moment ago. */
void seen_ask(const struct admission_port *port, struct coupon *coupon);

/*
 * To a new connection all that was seen is reported, a few coupons at a time, the most recently
 * used ones first. Those that are left from an earlier beginning are reported once.
 */
void seen_report_begin(struct coupon_table *table);
/* Reports some of what is left. Returns whether more is left. */
int seen_report_some(const struct admission_port *port, struct coupon_table *table, size_t most);

#endif

/*
 * Which action a coupon needs, from its state in PostgreSQL and its state in Redis. Pure.
 */
#ifndef KEEPER_JUDGE_H
#define KEEPER_JUDGE_H

#include "common/redis/redis.h"

#include <stdint.h>

enum coupon_status { COUPON_OPEN, COUPON_PAUSED, COUPON_CLOSED };

/* A coupon as PostgreSQL has it. */
struct coupon_row {
	int64_t id;
	enum coupon_status status;
	int64_t version; /* of the terms */
	int64_t total;
	int64_t issued;
	int64_t limit;
	int64_t begin_ms; /* 0: no bound */
	int64_t end_ms;
	int64_t generation; /* 0: never loaded */
	int64_t seq_seen;
	int64_t settled;
	int pending;           /* rejected receives of it are not released yet */
	int is_settled;        /* closed, and marked as settled */
	int64_t revocation;    /* the last revocation of exchange codes; 0: none */
	int late;              /* outcomes of older generations wait to be counted in Redis */
	int64_t rebuild_asked; /* how many rebuilds couponctl has requested, */
	int64_t rebuild_done;  /* and how many of them are done */
};

/* The same coupon as Redis has it. */
struct coupon_look {
	int present; /* the coupon's hash exists; else the members up to `reported` are not set */
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t version;
	int64_t generation;
	int64_t fence;
	int64_t seq;
	int64_t total;
	int64_t stock;
	int64_t reserved;
	int64_t lost;
	int64_t placeholder;  /* not 0: left by an unfinished rebuild */
	int64_t flagged;      /* not 0: a script has requested a rebuild */
	int64_t revocation;   /* up to which Redis has those of PostgreSQL */
	int64_t reported;     /* the highest number of this generation that gateways reported */
	int64_t kept_version; /* of the row that is kept in Redis (lua/keep_terms.lua) */
	int users_present;
	int64_t outbox_n;
	int broken; /* Redis refused to read a key of it, for instance of a wrong type */
};

enum coupon_action {
	COUPON_KEEP, /* nothing to do */
	COUPON_LOAD, /* Redis never had the coupon: load it under its first generation */
	/* Redis has lost or miscounted something: rebuild it under a new generation */
	COUPON_REBUILD,
	COUPON_COMPARE, /* couponctl requested a rebuild: done only if something differs */
	COUPON_VERIFY,  /* Redis was restarted: compare it with PostgreSQL before it is used */
	/*
	 * Redis has a later generation than PostgreSQL: PostgreSQL has lost data
	 */
	COUPON_FOREIGN,
	COUPON_REVOKE, /* PostgreSQL has revoked codes, and Redis does not know */
	COUPON_TERMS   /* PostgreSQL has newer terms */
};

enum coupon_action keeper_judge(const struct coupon_row *row, const struct coupon_look *look,
				const char *run_id);

/* The status as Redis stores it. */
const char *coupon_status_text(enum coupon_status status);

#endif

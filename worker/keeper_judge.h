/* What the keeper has to do about a coupon: PostgreSQL's view and Redis' view in, one action out. Pure. */
#ifndef WORKER_KEEPER_JUDGE_H
#define WORKER_KEEPER_JUDGE_H

#include <stdint.h>

#define KEEPER_RUN_ID_SIZE 41

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
	int pending; /* rejected receives of it are not given back yet */
};

/* The same coupon as Redis has it. */
struct coupon_cache {
	int present; /* the coupon's hash is there; else what follows, to `lost`, means nothing */
	char run_id[KEEPER_RUN_ID_SIZE];
	int64_t version;
	int64_t generation;
	int64_t fence;
	int64_t seq;
	int64_t total;
	int64_t stock;
	int64_t reserved;
	int64_t lost;
	int users_present;
	int64_t outbox_n;
	int broken; /* a key of it is not what it should be: nothing is done */
};

enum coupon_action {
	COUPON_KEEP,    /* nothing to do */
	COUPON_LOAD,    /* Redis never had it, or nothing has become of it: load it under a new generation */
	COUPON_MISSING, /* Redis has lost what was known: only a rebuild helps */
	COUPON_VERIFY,  /* Redis was started anew: compare before it is used */
	COUPON_FOREIGN, /* Redis has another generation than PostgreSQL gave out last */
	COUPON_TERMS    /* PostgreSQL has newer terms */
};

enum coupon_action keeper_judge(const struct coupon_row *row, const struct coupon_cache *cache, const char *run_id);

/* The word that Redis uses. */
const char *coupon_status_text(enum coupon_status status);

#endif

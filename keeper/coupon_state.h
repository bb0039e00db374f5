/*
 * What a coupon is in PostgreSQL and in Redis, and which action it needs by that. Coupons are read
 * up to KEEPER_PAGE at a time. One thread.
 */
#pragma once

#include "common/redis/redis_client.h"
#include "keeper/keeper_database.h"

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
	int pending;           /* rejected receives of it are not freed yet */
	int is_settled;        /* closed, and marked as settled */
	int64_t revocation;    /* the last revocation of exchange codes; 0: none */
	int late;              /* outcomes of older generations wait to be counted in Redis */
	int64_t rebuild_asked; /* how many rebuilds couponctl has requested, */
	int64_t rebuild_done;  /* and how many of them are done */
};

/* A coupon as Redis has it. */
struct coupon_look {
	int present; /* the coupon's hash exists; else the members up to `revocation` are not set */
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
	int64_t users_n;
	int64_t outbox_n;
	int broken; /* Redis refused to read a key of it, for instance of a wrong type */
};

enum coupon_action {
	COUPON_KEEP, /* nothing to do */
	COUPON_LOAD, /* Redis never had the coupon: load it under its first generation */
	/* Redis has lost or miscounted something: rebuild it under a new generation */
	COUPON_REBUILD,
	/* couponctl requested a rebuild, or users seem gone: done only if something differs */
	COUPON_COMPARE,
	COUPON_VERIFY,  /* Redis was restarted: compare it with PostgreSQL before it is used */
	COUPON_FOREIGN, /* Redis has a later generation: PostgreSQL has lost data */
	COUPON_REVOKE,  /* PostgreSQL has revoked codes, and Redis does not know */
	COUPON_TERMS    /* PostgreSQL has newer terms */
};

/* The action that is due first, on this process of Redis. Pure. */
enum coupon_action coupon_action(const struct coupon_row *row, const struct coupon_look *look,
				 const char *run_id);
int64_t coupon_taken(const struct coupon_look *look); /* slots, by the counts. Pure. */
/*
 * Whether stock + taken + reserved + lost = total (P4) by the counts. Taken are the issued
 * receives, those in flight of this generation (`seq` - settled), and `known` receives of older
 * ones. Each store is read atomically, and neither settling nor issuing changes the difference, so
 * the two stores need not be read at the same time. Pure.
 */
int coupon_adds_up(const struct coupon_row *row, const struct coupon_look *look, int64_t known);
/* Whether Redis has it verified, in the generation that PostgreSQL has. Pure. */
int coupon_is_verified(const struct coupon_row *row, const struct coupon_look *look,
		       const char *run_id);
/*
 * Whether gateways or PostgreSQL, whose row was read first, have seen more receives of this
 * generation than Redis has given numbers to. Pure.
 */
int coupon_lacks(const struct coupon_row *row, const struct coupon_look *look);
/* Whether couponctl has requested a rebuild that is not done. Pure. */
int coupon_rebuild_is_due(const struct coupon_row *row);

/* The status as Redis stores it. */
const char *coupon_status_text(enum coupon_status status);
/* Reads a row with the columns of sql_query_coupon_page. */
void coupon_row_read(const PGresult *result, int i, struct coupon_row *row);

/* What is done for a coupon together with others of its page. */
enum page_state {
	PAGE_LEFT,   /* nothing: it is left to keeper_coupon_step(), or to the next round */
	PAGE_APART,  /* the same, since it is put off, or something else comes first */
	PAGE_CHOSEN, /* for page_rebuild() */
	PAGE_WAITS,  /* for the reports of gateways */
	PAGE_DONE    /* opened: its row is as it is after that */
};

/* Some coupons, at most KEEPER_PAGE. */
struct coupon_page {
	size_t n;
	struct coupon_row rows[KEEPER_PAGE];
	struct coupon_look looks[KEEPER_PAGE]; /* after coupon_page_look() */
	enum page_state states[KEEPER_PAGE];   /* of the caller */
};

/* A position in the list of expiring coupons, by time and id. All zero: at first. */
struct coupon_expiring {
	char at[48]; /* as PostgreSQL writes it */
	int64_t coupon;
};

/*
 * Each of the next two sets `n` and `rows`, and waits on no row lock. 0, or -1: it failed, as
 * keeper/keeper_database.h says.
 */

/* The watched coupons after `after`; of these alone, at most KEEPER_PAGE, if `n` is not 0. */
int coupon_page_read(struct coupon_page *page, struct keeper_database *database, int64_t after,
		     const int64_t *ids, size_t n);
/*
 * Settled coupons whose keys have not expired yet, after `*after`, which is advanced. Only id,
 * generation and seq_seen are set.
 */
int coupon_page_expiring(struct coupon_page *page, struct keeper_database *database,
			 struct coupon_expiring *after);

/* Reads the coupons in Redis, in one round trip. 0, or -1: the connection is lost. */
int coupon_page_look(struct coupon_page *page, struct redis_client *redis);
/*
 * The number of known receives: of older generations, in flight, with a slot in Redis. 0, or -1 as
 * of redis_client_integer().
 */
int coupon_known(struct redis_client *redis, int64_t coupon, int64_t *n);

/*
 * Makes a process of the gateway known to the keeper, which after a restart of Redis must not open
 * coupons before every process has reported what it has seen:
 *
 *	PostgreSQL  a row, at each new connection and every 5 s; gone when it ends
 *	Redis       the mark: the process of Redis to which it has reported everything
 *
 * The mark is written after Redis has answered all reports, and only while all connections lead to
 * that process: over one to an earlier process a reply with higher numbers could still arrive.
 *
 * Redis may lose the mark with its data and keep the connections. So the process reads it several
 * times a second, and reports everything again if it is gone.
 *
 * With the mark it reads the number of the last change that an operator's command has made, and
 * waits for (ctl/store.h). When that is another one, it forgets the losing answers that it
 * remembers, and asks the stores for API keys and sets of codes. Then it writes the number:
 *
 *	couponmq:knows  its id to "TERMS KEYS CODES": up to which change it knows each
 *
 * It also tells the keeper once a second, through Redis, what it has refused (lua/refused.lua).
 * Counts that Redis does not get are lost. And how many receives it has that neither RabbitMQ nor
 * Redis has (coupon/copies.h): while they are more than none, couponctl gives no receives up.
 * Every 10 s, and when it ends, it tells which API keys were used, for couponctl key.
 *
 * The process issues nothing before it is known: before PostgreSQL has its row or, while PostgreSQL
 * is away, keepers have had the time to read its mark.
 *
 * Event-loop thread only.
 */
#pragma once

#include "common/api_key_watch.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/claim/claim.h"
#include "gateway/read/catalogue.h"
#include "gateway/read/lookup.h"
#include "gateway/store_checks.h"

#define PRESENCE_PLACE_SIZE 512
#define SHA_SIZE 41

enum report_state { REPORT_NONE, REPORT_RUNNING, REPORT_MARKING, REPORT_FAILED };

struct presence {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct admission *admission;
	const struct copies *copies;
	struct key_watch *key_watch;
	struct claim *claim;
	struct catalogue *catalogue;
	const struct comparison *comparison; /* between both stores */
	char id[ULID_UUID_SIZE];
	char place[PRESENCE_PLACE_SIZE];

	/* Private. */
	enum report_state report;
	uint64_t redis_connects;   /* to which it reports, or has reported */
	size_t reports;            /* in flight */
	int has_failed;            /* one of them, since it began */
	char report_sha[SHA_SIZE]; /* hash of lua/report.lua, once Redis has named it; or empty */
	int64_t again_ms;          /* REPORT_FAILED: when it begins anew */
	char run_id[REDIS_RUN_ID_SIZE]; /* for the mark; empty: none is written */
	char marked[REDIS_RUN_ID_SIZE]; /* the last mark that was answered */
	int is_other;                   /* another one than that is reported to */
	int64_t marked_ms;              /* when the first mark was answered; 0: it was not */
	int is_looking;                 /* whether the mark is still there, and for news */
	int64_t news;                   /* the number in Redis, when it was last looked at */
	/* The look, the question and the look that began after that. */
	uint64_t news_terms, news_keys, news_codes;
	int64_t knows_terms, knows_keys, knows_codes; /* as Redis was told last */
	uint64_t lookup_connects;                     /* over which the row was written */
	int64_t alive_ms;                             /* when the row is written again */
	int is_asking;
	int is_recorded;      /* since the start */
	int64_t refused_ms;   /* when refusals are told next */
	size_t uncopied;      /* as Redis was told last */
	int64_t keys_used_ms; /* when uses of API keys are told next */
	int64_t leave_ms;
	size_t leaving; /* answers that it waits for before it leaves */
};

/* `process` is its number among those of the gateway. The other members are set by the caller. */
void presence_init(struct presence *presence, const char *listen, size_t process);
void presence_tick(struct presence *presence, int64_t now_ms);
/*
 * Sends some of the reports that are left, and after the last answer the mark. To be called once at
 * the end of every loop turn.
 */
void presence_flush(struct presence *presence);
int presence_is_busy(const struct presence *presence, int64_t now_ms); /* the next tick is urgent */
/*
 * Reports to Redis the highest seq seen of a generation (lua/report.lua); to another process than
 * before also whether the coupon was given receives recently, which this one may lack. The report
 * may be lost.
 */
void presence_report(struct presence *presence, int64_t coupon, int64_t generation, int64_t seq,
		     int is_recent);

/* Whether requests may be decided. */
int presence_may_issue(const struct presence *presence, int64_t now_ms);
/* At the end, when nothing is left to do. Returns whether it has left; it is called until then. */
int presence_leave(struct presence *presence, int64_t now_ms);

/*
 * What a process of the gateway and the stores have to know of each other before anything is
 * decided: whether PostgreSQL and Redis belong together, which processes there are, and whether the
 * stores keep what they are told. Event-loop thread only.
 */
#pragma once

#include "common/changes.h"
#include "common/program/durability.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/read/key_records.h"
#include "gateway/read/lookup.h"
#include "gateway/claim/catalogue.h"

/*
 * Compares the numbers of PostgreSQL with their copy in Redis (common/changes.h), over each new
 * connection to PostgreSQL: it may have been put back to an earlier moment, and what it says then
 * is not final. The comparison is repeated, often while PostgreSQL is behind, since a worker may
 * copy the number of a COMMIT a while after it, and a pooler may replace PostgreSQL behind a
 * connection that stays.
 *
 * With the numbers goes the id of the installation. Where they differ, PostgreSQL says nothing
 * about what Redis has. The first comparison of a gateway looks at the id in Redis more often, also
 * while PostgreSQL is away: a Redis that has lost its data gets the id from those who knew it
 * before, not from whoever comes first.
 */
struct comparison {
	struct redis_pool *redis;
	struct lookup *lookup;
	int is_first; /* of the gateway: it adopts, and logs */

	/* Its own. */
	struct changes copy;
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL, as last read; empty: never */
	enum relation relation;
	uint64_t connects;       /* the connections to PostgreSQL that are compared, or were */
	uint64_t redis_connects; /* the connections to Redis over which `copy` was read */
	uint64_t asked_connects;
	int is_asking;
	int is_look;      /* only Redis is asked */
	int64_t due_ms;   /* the next comparison */
	int64_t look_ms;  /* the next look */
	int64_t adopt_ms; /* Redis may be adopted from then on */
};

void comparison_tick(struct comparison *comparison, int64_t now_ms);

/* Whether a connection waits for its first comparison. */
int comparison_is_due(const struct comparison *comparison);

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
 *
 * The process issues nothing before it is known: before PostgreSQL has its row or, while PostgreSQL
 * is away, keepers have had the time to read its mark.
 */

#define KNOWN_PLACE_SIZE 512
#define SHA_SIZE 41

enum known_report { REPORT_NONE, REPORT_RUNNING, REPORT_MARKING, REPORT_FAILED };

struct known {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct admission *admission;
	const struct copies *copies;
	struct key_records *key_records;
	struct catalogue *catalogue;
	const struct comparison *comparison; /* of these */
	char id[ULID_UUID_SIZE];
	char place[KNOWN_PLACE_SIZE];

	/* Its own. */
	enum known_report report;
	uint64_t redis_connects;        /* to which it reports, or has reported */
	size_t reports;                 /* in flight */
	int has_failed;                 /* one of them, since it began */
	char report_sha[SHA_SIZE];      /* of lua/report.lua, once Redis has named it; or empty */
	int64_t again_ms;               /* REPORT_FAILED: when it begins anew */
	char run_id[REDIS_RUN_ID_SIZE]; /* for the mark; empty: none is written */
	char marked[REDIS_RUN_ID_SIZE]; /* of the last mark that was answered */
	int is_other;                   /* another one than that is reported to */
	int64_t marked_ms;              /* when the first mark was answered; 0: it was not */
	int is_looking;                 /* whether the mark is still there, and for news */
	int64_t news;                   /* the number in Redis, when it was last looked at */
	uint64_t news_keys, news_codes; /* the question and the look that began after that */
	int64_t knows_terms, knows_keys, knows_codes; /* as Redis was told last */
	uint64_t lookup_connects;                     /* over which the row was written */
	int64_t alive_ms;                             /* when the row is written again */
	int is_asking;
	int is_recorded;    /* since the start */
	int64_t refused_ms; /* when refusals are told next */
	size_t uncopied;    /* as Redis was told last */
	int64_t leave_ms;
	size_t leaving; /* answers that it waits for before it leaves */
};

/* `process` is its number among those of the gateway. The other members are set by the caller. */
void known_init(struct known *known, const char *listen, size_t process);
void known_tick(struct known *known, int64_t now_ms);
/*
 * Sends some of the reports that are left, and after the last answer the mark. To be called once at
 * the end of every loop turn.
 */
void known_flush(struct known *known);
int known_is_busy(const struct known *known, int64_t now_ms); /* the next tick is urgent */
/*
 * Reports to Redis the highest seq seen of a generation (lua/report.lua); to another process than
 * before also whether the coupon was given receives recently, which this one may lack. The report
 * may be lost.
 */
void known_report(struct known *known, int64_t coupon, int64_t generation, int64_t seq,
		  int is_recent);

/*
 * Whether Redis may be told of accepted receives: it does not belong to another installation, as
 * read over the present connection.
 */
int known_may_report(const struct known *known);
/* Whether requests may be decided. */
int known_may_issue(const struct known *known, int64_t now_ms);
/* At the end, when nothing is left to do. Returns whether it has left; it is called until then. */
int known_leave(struct known *known, int64_t now_ms);

/* Reads the settings that promises depend on, over each new connection and once a minute. */
struct weak_settings {
	struct redis_pool *redis;
	int has_sentinels;
	struct lookup *lookup;

	/* Its own. */
	struct durability durability;
	struct {
		uint64_t connects; /* that were read over */
		int64_t due_ms;    /* read again */
	} parts[2];                /* by enum durability_part */
};

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms);

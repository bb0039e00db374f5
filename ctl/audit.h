/* What the parts of an audit share: the connections, and where what is wrong goes. */
#ifndef CTL_AUDIT_H
#define CTL_AUDIT_H

#include "ctl/cache.h"
#include "ctl/db.h"
#include "ctl/output.h"

struct audit {
	struct db *db;
	struct cache *cache;
	cJSON *wrong;   /* with --json: an array of sentences; NULL: they are printed at once */
	int64_t wrong_n;
};

/* How Redis stood with one coupon. */
struct audit_redis {
	int loaded;
	int verified;
	int consistent;      /* nothing was given out while its slots were counted */
	int settled;         /* nothing was in flight or unreleased either: then each slot was compared with its row */
	struct cache_coupon coupon;
	int64_t slots;       /* counted */
	int64_t in_flight;
	int64_t unreleased;  /* rejected receives whose slot was not given back yet */
};

void audit_wrong(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Promise P4 of one coupon. */
void audit_redis(struct audit *audit, int64_t coupon, struct audit_redis *found);

#endif

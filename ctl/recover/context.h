/* What the parts of couponctl recover share. Each ends the process when a store fails. */
#ifndef CTL_RECOVER_CONTEXT_H
#define CTL_RECOVER_CONTEXT_H

#include "common/message/receive.h"
#include "common/redis/client.h"
#include "common/redis/user_records.h"
#include "ctl/output.h"
#include "ctl/postgres.h"

#include <stddef.h>
#include <stdint.h>

struct recover {
	struct db *db; /* has the lock */
	struct redis_client *redis;
	int is_dry;   /* everything is done in transactions that are rolled back */
	int gives_up; /* --accept-loss */
	int is_json;
	struct progress progress;
	int64_t users_n, users_done; /* of all coupons in Redis */
	struct recover_counts {
		int64_t coupons, created, changed, deleted, left;
		int64_t receives, receives_there, receives_rejected, receives_lost;
		int64_t rejections, rejections_there;
		int64_t unreadable;
	} counts;
};

/* When batches were accepted, by Redis' clock. All zero at first: 24 bytes for each batch. */
struct times {
	struct time_of {
		struct ulid batch;
		int64_t at_ms;
	} * list;
	size_t n, size;
};

/* A coupon as Redis has it. */
struct recover_coupon {
	struct recover *recover;
	int64_t id;
	int has_hash;    /* and it is no placeholder; else all numbers but the generation are 0 */
	char status[16]; /* open, paused or closed */
	int64_t generation; /* 0: none */
	int64_t seq, reserved, fence, version, total, begin_ms, end_ms, limit, revocation;
	struct postgres_array generations, highs; /* of all generations, this one included */

	int64_t settling; /* the generation in PostgreSQL, of receives to be settled */
	struct times settled, outbox;
	int times_are_read;
	/* Receives without an outcome that will get one from their messages. */
	int64_t own_owed, older_owed;
};

/* A slot in the users' hash. */
struct held {
	struct user_id user;
	struct user_record record; /* lent */
};

#endif

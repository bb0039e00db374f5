#include "ctl/behind.h"

#include "common/changes.h"
#include "common/log/log.h"
#include "embed.h"

/*
 * The copy first: it must not be newer than what it is compared with. 0, or -1. Ends the process if
 * they are of different installations.
 */
static int both_read(struct db *db, struct redis_client *redis, struct changes *changes,
		     struct changes *copy)
{
	PGresult *rows;

	if (changes_copy_read(copy, redis))
		return -1;
	rows = db_query(db, sql_query_change_counts, 0, NULL);
	changes_take(changes, rows);
	PQclear(rows);
	if (changes_relate(RELATION_UNKNOWN, changes, copy) == RELATION_FOREIGN)
		log_fatal("nothing was done, because PostgreSQL, which DATABASE_URL names, is of "
			  "installation %s, and Redis, which REDIS_URL names, belongs to %s; see "
			  "couponctl installation",
			  changes->installation, copy->installation);
	return 0;
}

int64_t behind_read(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;

	return both_read(db, redis, &changes, &copy) ? -1 : changes_behind(&changes, &copy);
}

int behind_copy(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;

	return both_read(db, redis, &changes, &copy) ? -1
						     : changes_copy_raise(redis, &changes, &copy);
}

void behind_refuse(struct db *db, struct redis_client *redis)
{
	int64_t behind = behind_read(db, redis);

	if (behind < 0)
		log_fatal(
			"nothing was changed, because Redis, which REDIS_URL names and which knows "
			"whether PostgreSQL was put back to an earlier moment, cannot be read: %s",
			redis_client_error(redis));
	if (behind > 0)
		log_fatal(BEHIND_TEXT, (long long)behind);
}

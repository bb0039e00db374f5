/*
 * The numbers of PostgreSQL's table change_count, and their copy in Redis. They only grow, and the
 * copy is made after COMMIT: a PostgreSQL with a number below its copy was put back to an earlier
 * moment.
 */
#ifndef COMMON_CHANGES_H
#define COMMON_CHANGES_H

#include "common/redis/client.h"

#include <libpq-fe.h>
#include <stdint.h>

#define CHANGES_STRIPES 64

struct changes {
	int64_t num[CHANGES_STRIPES]; /* 0: none */
};

/* Adds 'STRIPE:NUM', as change_note() returns it. 0, or -1 when it is malformed. */
int changes_add(struct changes *changes, const char *text);
/* Raises each number to that of `by`. */
void changes_raise(struct changes *changes, const struct changes *by);

/*
 * Reads the copy, which is to be read before PostgreSQL. 0, or -1: the connection is lost, or Redis
 * refuses, for instance while it loads its data. A key of another type, to which something else was
 * written, is no copy.
 */
int changes_copy_read(struct changes *copy, struct redis_client *redis);
/* The same with the reply to HGETALL of CHANGES_KEY. */
int changes_copy_take(struct changes *copy, const redisReply *reply);
/* Raises the copies of the numbers that have grown: lua/changes.lua. 0, or -1. */
int changes_copy_raise(struct redis_client *redis, const struct changes *changes,
		       const struct changes *copy);
/* Takes the rows of sql/query/change_counts.sql. */
void changes_take(struct changes *changes, const PGresult *rows);

/* How many transactions PostgreSQL is behind its copy, at least; 0: it is not. */
int64_t changes_behind(const struct changes *changes, const struct changes *copy);

#endif

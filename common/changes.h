/*
 * The numbers of PostgreSQL's table change_count, and their copy in Redis. They only grow, and the
 * copy is made after COMMIT: a PostgreSQL with a number below its copy was put back to an earlier
 * moment.
 *
 * With them goes the id of the installation: a PostgreSQL and a Redis with different ones do not
 * belong together, and their numbers cannot be compared. A Redis that has none is empty, or new.
 */
#pragma once

#include "common/redis/client.h"

#include <libpq-fe.h>
#include <stdint.h>

#define CHANGES_STRIPES 64

#define INSTALLATION_SIZE 37 /* a UUID */

struct changes {
	int64_t num[CHANGES_STRIPES];         /* 0: none */
	char installation[INSTALLATION_SIZE]; /* empty: none, or not known */
};

/* What the Redis of a program is to its PostgreSQL. */
enum relation {
	RELATION_UNKNOWN,   /* one of them was never reached */
	RELATION_UNCLAIMED, /* Redis has no id: nothing is copied */
	RELATION_OWN,
	RELATION_FOREIGN /* of another installation: nothing is changed anywhere */
};

#define RELATION_FOREIGN_TEXT "Redis belongs to another installation than PostgreSQL"

/* Adds 'STRIPE:NUM', as change_note() returns it. 0, or -1 when it is malformed. */
int changes_add(struct changes *changes, const char *text);
/* Raises each number to that of `by`, and takes its id when it has one. */
void changes_raise(struct changes *changes, const struct changes *by);

/*
 * Reads the copy, which is to be read before PostgreSQL. 0, or -1: the connection is lost, or Redis
 * refuses, for instance while it loads its data. A key of another type, to which something else was
 * written, is no copy.
 */
int changes_copy_read(struct changes *copy, struct redis_client *redis);
/* The same with the reply to HGETALL of CHANGES_KEY. */
int changes_copy_take(struct changes *copy, const redisReply *reply);
/*
 * Raises the copies of the numbers that have grown: lua/changes.lua. RELATION_OWN: they are copied,
 * or none has grown; RELATION_UNKNOWN: Redis has failed, and may have copied them; else nothing was
 * copied.
 */
enum relation changes_copy(struct redis_client *redis, const struct changes *changes,
			   const struct changes *copy);
/*
 * The same. 0, also when Redis belongs to nobody; or -1: also when it belongs to another
 * installation.
 */
int changes_copy_raise(struct redis_client *redis, const struct changes *changes,
		       const struct changes *copy);
/*
 * Gives Redis the id of this installation, if it has none; with `instead_of` also if it has that
 * one. Returns the relation then; RELATION_UNKNOWN: Redis has failed.
 */
enum relation changes_claim(struct redis_client *redis, const char *installation,
			    const char *instead_of);
/* The relation by the word that lua/changes.lua replied. */
enum relation changes_replied(const char *word);
/* Takes the rows of sql_query_change_counts. */
void changes_take(struct changes *changes, const PGresult *rows);

/*
 * The relation of Redis to PostgreSQL, after `before`: a program that was foreign stays so while
 * Redis has no id, since others will claim it.
 */
enum relation changes_relate(enum relation before, const struct changes *changes,
			     const struct changes *copy);

/* How many transactions PostgreSQL is behind its copy, at least; 0: it is not. */
int64_t changes_behind(const struct changes *changes, const struct changes *copy);

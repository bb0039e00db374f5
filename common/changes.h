/*
 * The numbers of PostgreSQL's table change_count, and their copy in Redis. They only grow, and the
 * copy is made after COMMIT: a PostgreSQL with a number below its copy was put back to an earlier
 * moment.
 *
 * The id of the installation goes with them: a PostgreSQL and a Redis with different ids do not
 * belong together, and their numbers cannot be compared. A Redis without an id is empty, or new.
 *
 * Redis follows one server: its cluster, and its timeline, which grows with each promotion of a
 * standby. A new server is followed before its numbers are compared: from then on the server before
 * it can copy nothing (lua/changes.lua). So what that server commits in vain is removed from no
 * outbox, and what it had copied until then is compared.
 */
#pragma once

#include "common/message/number.h"
#include "common/redis/redis_client.h"

#include <libpq-fe.h>
#include <stdint.h>

#define CHANGES_STRIPES 128
#define CHANGES_SETTLED 64 /* the stripes from here on count transactions of settle() */

#define INSTALLATION_SIZE 37 /* a UUID */

#define SYSTEM_SIZE 21 /* a bigint */

struct postgres_server {
	char system[SYSTEM_SIZE]; /* of its cluster, pg_control_system(); empty: not known */
	int64_t timeline;         /* 0: it is a standby */
};

#define SERVER_TEXT_SIZE (SYSTEM_SIZE + NUMBER_SIZE)

#define CLUSTERS_MAX 32 /* of which the copy is read; Redis judges the servers of others */

struct changes {
	int64_t num[CHANGES_STRIPES];         /* 0: none */
	char installation[INSTALLATION_SIZE]; /* empty: none, or not known */
	struct postgres_server server;        /* of a copy: the one that is followed */
	char former[SERVER_TEXT_SIZE];        /* of a copy: the one before it; empty: none */
	/* of a copy: the highest timeline that was followed of each cluster */
	struct postgres_server highest[CLUSTERS_MAX];
	size_t highest_n;
};

/* Whether a PostgreSQL counts for what is in Redis. */
enum relation {
	RELATION_UNKNOWN,   /* one of them was never reached */
	RELATION_UNADOPTED, /* Redis has no id: nothing is copied */
	RELATION_OWN,       /* it counts, once its server is followed */
	RELATION_BEHIND,  /* it was put back: nothing is issued or settled until it is recovered */
	RELATION_FOREIGN, /* of another installation: nothing is changed anywhere */
	RELATION_OLD,     /* an old server, and another is followed: nothing is changed anywhere */
	RELATION_STANDBY, /* it cannot be changed */
	RELATION_OTHER    /* Redis replied: of a cluster that is not followed, with FOLLOW_NEWER */
};

#define RELATION_FOREIGN_TEXT "Redis belongs to another installation than PostgreSQL"
#define RELATION_OLD_TEXT                                                                       \
	"this PostgreSQL is an old primary: Redis follows another server that was promoted or " \
	"took its place"
#define SERVER_STANDBY_TEXT "PostgreSQL is a standby, which cannot be changed"
#define SERVER_OLD_MEND                                                                         \
	"stop this server, or correct DATABASE_URL; if it is to replace the other server, run " \
	"couponctl recover --all --this-server"

/* Which server Redis may follow from now on, beside the one that it follows, and the first. */
enum follow {
	FOLLOW_NONE,  /* as it is: Redis is not asked */
	FOLLOW_NEWER, /* one with a higher timeline, of the same cluster */
	FOLLOW_OTHER, /* also one of another cluster that is not behind */
	FOLLOW_ANY    /* also an old one */
};

/* What a program may do with its PostgreSQL. */
struct standing {
	enum relation relation;
	/*
	 * With RELATION_OWN and RELATION_BEHIND: how Redis has to follow the server, before the
	 * numbers are compared with a copy that is read after that; FOLLOW_NONE: the relation holds
	 */
	enum follow follow;
	int64_t behind; /* the transactions that it lacks, at least */
};

/* Adds 'STRIPE:NUM', as change_note() returns it. 0, or -1 when it is malformed. */
int changes_add(struct changes *changes, const char *text);
/* Raises each number to that of `by`, and takes its id and its server when it has them. */
void changes_raise(struct changes *changes, const struct changes *by);

/*
 * Reads the copy, which is to be read before PostgreSQL. 0, or -1: the connection is lost, or Redis
 * refuses, for instance while it loads its data. A key of another type, to which something else was
 * written, is no copy.
 */
int changes_copy_read(struct changes *copy, struct redis_client *redis);
/* Takes the copy from the reply to HGETALL of CHANGES_KEY. Returns as changes_copy_read(). */
int changes_copy_take(struct changes *copy, const redisReply *reply);
/*
 * Raises the copies of the numbers that have grown (lua/changes.lua). RELATION_OWN: they are
 * copied, or none has grown and the copy is of this server. RELATION_UNKNOWN: Redis has failed, and
 * may have copied them. Any other relation: nothing was copied.
 */
enum relation changes_copy(struct redis_client *redis, const struct changes *changes,
			   const struct changes *copy);
/*
 * As changes_copy(). Returns 0, also when Redis belongs to no installation; or -1, also when it
 * belongs to another installation or follows another server.
 */
int changes_copy_raise(struct redis_client *redis, const struct changes *changes,
		       const struct changes *copy);
/*
 * Gives Redis the id of this installation, if it has none; with `instead_of` also if it has that
 * one. Returns the relation then; RELATION_UNKNOWN: Redis has failed.
 */
enum relation changes_adopt(struct redis_client *redis, const char *installation,
			    const char *instead_of);
/*
 * Has Redis follow this server, no standby. RELATION_OWN: it does, and what the copy has from then
 * on is final for all servers before it; RELATION_UNKNOWN: Redis has failed.
 */
enum relation changes_follow(struct redis_client *redis, const struct changes *changes,
			     enum follow follow);
int server_equals(const struct postgres_server *server, const struct postgres_server *other);
/* 'SYSTEM:TIMELINE'; "" of a standby and of none. Returns `text`. */
const char *server_text(const struct postgres_server *server, char text[SERVER_TEXT_SIZE]);
/* The relation by the word that lua/changes.lua replied. */
enum relation changes_replied(const char *word);
/* Takes the rows of sql_query_change_counts. */
void changes_take(struct changes *changes, const PGresult *rows);

/*
 * The relation of Redis to PostgreSQL, after `before`, by their ids alone: a program that was
 * foreign stays so while Redis has no id, since others will adopt it.
 */
enum relation changes_relate(enum relation before, const struct changes *changes,
			     const struct changes *copy);
/*
 * Judges a PostgreSQL by its id, its server and its numbers, by the copy, which was read before
 * them, and by the relation before. docs/about/lifecycle.md has the table.
 */
struct standing changes_stand(enum relation before, const struct changes *changes,
			      const struct changes *copy);
/* Redis belongs to this PostgreSQL and follows its server, which may be behind. */
int relation_is_followed(enum relation relation);
/*
 * Logs what has changed since `before`: installation_differs, postgresql_old, postgresql_behind,
 * and that each is over.
 */
void relation_log(enum relation before, enum relation relation, const struct changes *changes,
		  const struct changes *copy);

/* How many transactions PostgreSQL is behind its copy, at least; 0: it is not. */
int64_t changes_behind(const struct changes *changes, const struct changes *copy);
/*
 * How many of these did not settle receives: they changed terms, codes or generations, or voided
 * receives. A version that does not tell them apart counts all of them here.
 */
int64_t changes_behind_others(const struct changes *changes, const struct changes *copy);

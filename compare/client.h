/*
 * What is sold, to whom, and over which services; and the connections of one client to these,
 * opened at their first use. An error ends the program.
 */
#pragma once

#include "common/rabbit/connection.h"
#include "lock/lock.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>

#define MARKET_ITEMS_MAX 100
#define MARKET_CLIENTS_MAX 10000

/* The settings of a run. */
struct market {
	int users;
	int items;       /* each user wants one of them */
	int stock;       /* pieces of each item */
	int clients;     /* requests at once */
	int connections; /* that carry them, to each store */
	int lease_ms;    /* of locks */
	int pause_ms;    /* a holder of a lock stops for so long… */
	int pause_every; /* …at every so many-th sale; 0: never */
	unsigned seed;
	/* of the services, from the environment */
	const char *postgres, *postgres_locks, *redis, *rabbit, *zookeeper, *gateway;
	/* of couponmq's coupons, by item; the last is of the connections' first sales */
	int64_t coupons[MARKET_ITEMS_MAX + 2];
};

/* One request of a user. Both numbers are from 1. */
struct request {
	int user, item;
};

#define NONE (-1) /* instead of a number: no row, no key, or EXEC did nothing */
#define STATEMENTS_MAX 16

struct way;

struct client {
	struct market *market;
	const struct way *way;
	unsigned random; /* for rand_r() */
	long long fence; /* of the lock that it holds; 0: none */
	void *own;       /* what the way keeps for a connection; freed with the client */
	/* the stores */
	PGconn *postgres;
	const char *statements[STATEMENTS_MAX]; /* that are prepared */
	redisContext *redis;
	amqp_connection_state_t queue;
	uint64_t queue_tag; /* of the message that was taken last */
	int is_consuming;
	struct lock_owner *locks;
	FILE *gateway_in, *gateway_out;
};

struct client *client_new(struct market *market, const struct way *way);
void client_free(struct client *client);

_Noreturn void client_fail(const char *store, const char *what, const char *why);

/*
 * A statement, with numbers for $1, $2 and so on. Returns the first column of the first row as a
 * number, NONE without a row, or the number of the rows that it changed. It is prepared once.
 */
#define sql(client, statement, ...)                                             \
	sql_run(client, statement, (const long long[]){ 0, ##__VA_ARGS__ } + 1, \
		(int)(sizeof((const long long[]){ 0, ##__VA_ARGS__ }) / sizeof(long long)) - 1)
long long sql_run(struct client *client, const char *statement, const long long *numbers, int n);

/* With a number for $1 and an array for $2. `out`: NULL, or gets the first column of `n` rows. */
void sql_many(struct client *client, const char *statement, long long number, const long long *many,
	      int n, long long *out);

/*
 * One statement in pipeline mode, and a transaction of its own. Answers come in the order of the
 * statements, as of sql(). From then on the connection is for this statement only.
 */
#define sql_ask(client, statement, ...)                                          \
	sql_send(client, statement, (const long long[]){ 0, ##__VA_ARGS__ } + 1, \
		 (int)(sizeof((const long long[]){ 0, ##__VA_ARGS__ }) / sizeof(long long)) - 1)
void sql_send(struct client *client, const char *statement, const long long *numbers, int n);
long long sql_answer(struct client *client);
/* Statements that return nothing. */
void sql_script(struct client *client, const char *script);

/*
 * A command, as of redisCommand(). Returns its number; of a text reply the number in it, of an
 * array its length, of OK and QUEUED 1; NONE for nil.
 */
long long redis_run(struct client *client, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same in two steps: commands are sent together when the first answer is waited for. */
void redis_ask(struct client *client, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
long long redis_answer(struct client *client);

/* For EVALSHA. */
#define REDIS_SHA_SIZE 41
void redis_script_load(struct client *client, const char *script, char sha[REDIS_SHA_SIZE]);

/*
 * The connections of one client to the stores, opened at their first use. An error ends the
 * program.
 */
#ifndef COMPARE_CLIENT_H
#define COMPARE_CLIENT_H

#include "compare/market.h"
#include "lock/lock.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>

#define NONE (-1) /* instead of a number: no row, no key, or EXEC did nothing */
#define STATEMENTS_MAX 16

struct queue;

struct client {
	struct market *market;
	unsigned random; /* for rand_r() */
	void *own;       /* what the way keeps for a connection; freed with the client */
	/* the stores */
	PGconn *postgres;
	const char *statements[STATEMENTS_MAX]; /* that are prepared */
	redisContext *redis;
	struct queue *queue;
	struct lock_owner *locks;
	FILE *gateway_in, *gateway_out;
};

struct client *client_new(struct market *market);
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

/* The queue of a pipeline: durable, with persistent messages of one request each. */
void queue_publish(struct client *client, const struct request *request);
/* Waits so long for a message. 0: there was none. */
#define QUEUE_MOMENT_US 20000
int queue_take(struct client *client, struct request *request, int wait_us);
/* Of the message that was taken last, or with `multiple` also of all before it. */
void queue_ack(struct client *client, int multiple);
void queue_clear(struct client *client);
void queue_close(struct queue *queue);

/* Connects to couponmq's gateway. */
void gateway_open(struct client *client);

/* Waits for a lock of lock/, with the lease of the market; it is watched unless holders stop. */
struct lock *client_lock(struct client *client, enum lock_backend_id store, enum lock_kind kind,
			 const char *name);

#endif

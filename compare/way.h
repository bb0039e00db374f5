/*
 * What is sold, to whom, and over which services; and the ways of selling: of each way the code
 * that serves one request, and what the comparison must know to run it and to judge it. The code is
 * as plain as the idea. Any error of a store ends the program: faults are not what is compared
 * here.
 */
#pragma once

#include "common/rabbit/connection.h"
#include "lock/lock.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>

struct way;
struct sales;

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
	int pause_ms;    /* for which a client that has read stops, */
	int pause_every; /* at every such sale; 0: never */
	int is_meeting;  /* no client writes before all others that are served have read */
	unsigned seed;
	/* of the services, from the environment */
	const char *postgres, *postgres_locks, *redis, *rabbit, *zookeeper, *gateway;
	/* of couponmq's coupons, by item; the last is of the connections' first sales */
	int64_t coupons[MARKET_ITEMS_MAX + 2];
};

/* One request of a user. Both numbers are from 1. */
struct sale_request {
	int user, item;
};

#define NONE (-1) /* instead of a number: no row, no key, or EXEC did nothing */
#define STATEMENTS_MAX 16

/* A connection that serves requests, and the connections to the stores that it needs for that. */
struct seller {
	struct market *market;
	const struct way *way;
	unsigned random; /* for rand_r() */
	long long fence; /* of the lock that it holds; 0: none */
	void *own;       /* what the way keeps for a connection; freed with the seller */
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

/* The connections to the stores are opened at their first use. */
struct seller *seller_new(struct market *market, const struct way *way);
void seller_free(struct seller *seller);

_Noreturn void store_fail(const char *store, const char *what, const char *why);

/*
 * A statement, with numbers for $1, $2 and so on. Returns the first column of the first row as a
 * number, NONE without a row, or the number of the rows that it changed. It is prepared once.
 */
#define sql(seller, statement, ...)                                             \
	sql_run(seller, statement, (const long long[]){ 0, ##__VA_ARGS__ } + 1, \
		(int)(sizeof((const long long[]){ 0, ##__VA_ARGS__ }) / sizeof(long long)) - 1)
long long sql_run(struct seller *seller, const char *statement, const long long *numbers, int n);

/* With a number for $1 and an array for $2. `out`: NULL, or gets the first column of `n` rows. */
void sql_many(struct seller *seller, const char *statement, long long number, const long long *many,
	      int n, long long *out);

/*
 * One statement in pipeline mode, and a transaction of its own. Answers come in the order of the
 * statements, as of sql(). From then on the connection is for this statement only.
 */
#define sql_ask(seller, statement, ...)                                          \
	sql_send(seller, statement, (const long long[]){ 0, ##__VA_ARGS__ } + 1, \
		 (int)(sizeof((const long long[]){ 0, ##__VA_ARGS__ }) / sizeof(long long)) - 1)
void sql_send(struct seller *seller, const char *statement, const long long *numbers, int n);
long long sql_answer(struct seller *seller);
/* Statements that return nothing. */
void sql_script(struct seller *seller, const char *script);

/*
 * A command, as of redisCommand(). Returns its number; of a text reply the number in it, of an
 * array its length, of OK and QUEUED 1; NONE for nil.
 */
long long redis_run(struct seller *seller, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* redis_run() in two steps: commands are sent together when the first answer is waited for. */
void redis_ask(struct seller *seller, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
long long redis_answer(struct seller *seller);

/* For EVALSHA. */
#define REDIS_SHA_SIZE 41
void redis_script_load(struct seller *seller, const char *script, char sha[REDIS_SHA_SIZE]);

enum sale_outcome {
	SOLD,
	SOLD_OUT,
	HAS_ONE, /* the user bought one before */
	FAILED   /* it may be tried again */
};

/* Where the sales are in the end. */
enum ledger {
	IN_POSTGRES, /* the tables item and sale: judge() */
	IN_REDIS,    /* they never reach PostgreSQL */
	IN_COUPONMQ  /* couponmq's own tables */
};

/* A request that waits for its answer. */
struct sale_asked {
	const struct sale_request *request;
	int number; /* of sales_next() */
};

struct way {
	const char *id; /* "3b" */
	const char *name;
	const char *may; /* its known flaws: oversold, miscounted, over_limit, unsold; NULL: none */
	const char *wrong; /* why they come */
	enum ledger ledger;
	int is_unique; /* PostgreSQL refuses a second sale to a user: a unique index */
	int is_batch;  /* a transaction commits many sales */
	/* NULL, or run once before the clients start, on fresh tables and an empty Redis */
	const char *script; /* of SQL */
	void (*prepare)(struct seller *seller);
	/*
	 * Serves one request: one in flight on a connection. What has FAILED is tried again, so
	 * often at most and for so long; 0: without end.
	 */
	enum sale_outcome (*buy)(struct seller *seller, const struct sale_request *request);
	int tries, tries_ms;
	/*
	 * Instead of buy(): a request for each client of the connection is in flight. flush() is
	 * NULL, or sends what ask() has written. answer() waits for the one that was asked first;
	 * if another one is answered before it, it stores the number of that.
	 */
	void (*ask)(struct seller *seller, const struct sale_asked *asked);
	void (*flush)(struct seller *seller);
	enum sale_outcome (*answer)(struct seller *seller, struct sale_asked *asked);
	/* NULL, or before the clock runs, for work() and watch(): PostgreSQL is open already */
	void (*open)(struct seller *seller);
	/* NULL, or a worker behind a queue, until sales_are_written() */
	void (*work)(struct seller *seller, struct sales *sales);
	int workers; /* 0: one for each connection */
	/* NULL, or one thread that waits for the last COMMIT of others */
	void (*watch)(struct seller *seller, struct sales *sales);
	/* What distinguishes ways that have functions in common: */
	const char *take; /* the statement that takes a piece of the item $1… */
	int segments;     /* …from the segment $2, trying so many of them; 0: there are none */
	/* The lock: of the item, of all of them, or of the user's item. */
	enum { LOCK_OF_ITEM, LOCK_OF_SHOP, LOCK_OF_USER } lock_of;
	enum lock_backend_id lock_store;
	enum lock_kind lock_kind;
	const char *ack; /* of requests to the gateway */
};

/* The ways of docs/about/ways.md, by where they sell. The last of each has no id. */
extern const struct way ways_postgres[], ways_locks[], ways_redis[], ways_queue[], ways_couponmq[];

/*
 * Between what a client has read and what it writes because of that: it stops there as the market
 * says, and meets the others.
 */
void gap(const struct market *market, const struct sale_request *request);

/*
 * Reads the stock, and writes it back less one. The holder of a lock may stop in between, as the
 * market says. FAILED: a higher fence than the seller's was here meanwhile.
 */
enum sale_outcome sell_read_then_write(struct seller *seller, const struct sale_request *request);
/* Has the user one? If not: takes a piece if there is one. */
enum sale_outcome sell_checked(struct seller *seller, const struct sale_request *request);
/* Copies the users of those requests that want the item. Returns how many. */
int buyers_of(const struct sale_request *requests, int n, int item, long long *buyers);

struct sales_result {
	long long requests, told_sold, told_failed; /* requests by their outcomes */
	long long attempts, attempts_failed;        /* 0: the way does not try again */
	int64_t answered_us, committed_us;          /* from the first request to the last… */
	int64_t latency_p50_us, latency_p99_us;     /* of the requests that were sold */
	/* by what the stores have in the end, whatever clients were told */
	long long stock, sold; /* what is left, and what users have */
	long long oversold;    /* sold beyond the stock that there was */
	long long miscounted;  /* sales that the stock does not show */
	long long over_limit;  /* users with several */
	long long unsold;      /* there was stock, and users who asked got none */
};

/* Makes the requests by this way, until all are answered and committed. */
void sales_run(struct market *market, const struct way *way, struct sales_result *result);

/* For workers and watchers, in any thread. */

/* All are answered, and no more than so many were sold. */
int sales_are_over(const struct sales *sales, long long sold);
int sales_are_written(const struct sales *sales); /* than were written */
/* Notes that the sales that were answered so far are committed now. */
void sales_committed(struct sales *sales);
/* Notes that this sale is committed now. */
void sales_written(struct sales *sales, const struct sale_request *request);

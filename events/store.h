/*
 * The queue of deliveries to webhooks in PostgreSQL, over a connection of its own. Each function
 * waits for the end of its statement, for a few seconds at most. One thread.
 */
#ifndef EVENTS_STORE_H
#define EVENTS_STORE_H

#include "common/program/config.h"
#include "events/post.h"

#include <libpq-fe.h>
#include <stdint.h>

struct store;

struct store *store_new(const struct config *config);
void store_free(struct store *store);

/* Connects when it is not connected. 0, or -1: not yet. */
int store_open(struct store *store);
int store_fd(const struct store *store); /* -1: not connected */
/* Whether new deliveries were announced since the last call; also after each new connection. */
int store_notified(struct store *store);

/* A delivery that this worker is to send. The texts are those of the result. */
struct claimed {
	int64_t delivery;
	int lease;
	int64_t webhook;
	int64_t attempts; /* before this one */
	struct post_request request;
};

/* Takes at most `most` deliveries: rows for store_claimed(), to be cleared; NULL: it failed. */
PGresult *store_claim(struct store *store, size_t most, int64_t lease_ms);
void store_claimed(const PGresult *rows, int row, struct claimed *claimed);

/* What became of a delivery. */
struct finish {
	int64_t delivery;
	int lease;
	enum post_end end;
	const struct post_result *result;
	int64_t retry_ms;
};

/* Where a sentence is written on why the webhook was disabled; "": it was not. */
#define STORE_DISABLED_SIZE 128

/* 1: recorded; 0: it is another worker's by now, or removed; -1: it failed, try again. */
int store_finish(struct store *store, const struct finish *finish,
		 char disabled[STORE_DISABLED_SIZE]);

/* Of all webhooks. */
struct store_counts {
	int64_t waiting, failed, oldest_ms, disabled, dropped;
};

int store_counts(struct store *store, struct store_counts *counts); /* 0, or -1 */
int store_expire(struct store *store);                              /* 0, or -1 */

#endif

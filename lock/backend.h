/*
 * What a store must offer. A session holds one lock at a time; an owner uses as many sessions as it
 * holds locks at once, and keeps them for later locks. Calls of one session do not overlap.
 */
#pragma once

#include "lock/lock.h"

enum lock_reply {
	LOCK_REPLY_YES,  /* taken, renewed or released */
	LOCK_REPLY_NO,   /* another owner has it, or this one does not have it any more */
	LOCK_REPLY_DOWN, /* unknown: the store cannot be reached */
	LOCK_REPLY_ERROR /* the store refuses the command */
};

struct lock_request {
	const char *name; /* lent until it is released */
	enum lock_kind kind;
	int64_t lease_ms;
};

struct lock_grant {
	int64_t fence;
	int64_t asked_ms; /* by lock_clock_ms(), before the request that was granted */
};

/* Milliseconds since this machine was started, also while it was suspended. */
int64_t lock_clock_ms(void);

struct lock_backend {
	const char *name;
	/* 0, or -1 with what is wrong with the URL; open() needs a right one. NULL: it does not. */
	int (*url_check)(const char *url, char *why, size_t size);
	void *(*open)(const char *url); /* does not connect */
	/* A lock that the session holds is free now, or at the end of its lease. */
	void (*close)(void *session);
	/* Waits for at most `wait_ms`. After DOWN the same request may be made again. */
	enum lock_reply (*take)(void *session, const struct lock_request *request, int64_t wait_ms,
				struct lock_grant *grant);
	enum lock_reply (*renew)(void *session);
	enum lock_reply (*release)(void *session); /* NO when it is released already */
	const char *(*why)(const void *session);   /* of the last DOWN or ERROR */
};

extern const struct lock_backend lock_redis, lock_postgres, lock_zookeeper;

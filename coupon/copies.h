/*
 * The second copy of each message. A receive that was answered "accepted" is in the outbox of Redis
 * and with a holder: the gateway that accepted it, until RabbitMQ has confirmed it, and a worker
 * that it was delivered to, until it is settled. If Redis loses its data, or a part of it, the
 * holder writes the outbox entry again, so that the receive does not depend on one process or one
 * store.
 *
 *	THERE ──a look shows that Redis lacks it──▶ LOST ──lua/restore.lua──▶ RESTORING ──▶ THERE
 *	                                              ▲                            │
 *	                                              └── refused, or no reply ◀───┘
 *
 * Redis is asked for the numbers of a coupon when a message of it has been held for COPIES_LOOK_MS,
 * and again after each such time: a FLUSHALL, for instance, ends no connection. A message is
 * written once for each filling of the coupon and each process of Redis, because a worker may
 * remove the entry again while the holder does not know yet that it is settled. Pure decisions:
 * Redis and the time are behind the port. One thread.
 */
#pragma once

#include "common/hash.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "common/redis/redis.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define COPIES_LOOK_MS 1000
#define COPIES_HURRY_MS 200    /* the same while the process ends */
#define COPIES_MESSAGES_MAX 16 /* in one call, as of lua/restore.lua */
#define COPIES_BYTES_MAX 65536 /* of their bodies, unless the first has more */
#define COPIES_PROCESS_SIZE 64 /* the name of a process of Redis */
/* A gateway that PostgreSQL has not heard of for so long is taken for dead. */
#define COPIES_SILENT_S 600

enum copy_state { COPY_THERE, COPY_LOST, COPY_RESTORING };

/* A message that its holder has. The holder sets the first members, and embeds it. */
struct copy {
	struct ulid batch;
	int64_t coupon;
	int64_t generation, seq; /* of its last receive */
	size_t receives;
	const char *body; /* lent until it is removed */
	size_t body_len;

	/* Set by copies.c. */
	TAILQ_ENTRY(copy) next;
	struct copies_coupon *of; /* NULL: it was not added */
	enum copy_state state;
	int64_t added_ms;
	int64_t filling, process_n; /* that it was written to */
};

/* The state of a coupon in Redis. */
struct copies_look {
	int is_present;
	int is_placeholder; /* held for a rebuild, without data */
	int64_t generation;
	int64_t seq;
	int is_alone; /* its replicas are not known to have what it had then */
};

enum copies_result {
	COPIES_WRITTEN, /* Redis has the messages, or their receives have outcomes */
	COPIES_ALONE,   /* Redis has them, and its replicas are not known to have them */
	COPIES_MISSING, /* it does not have the coupon at present */
	COPIES_FAILED   /* it refused the script, for instance without memory, or did not reply */
};

/* A coupon that Redis is asked for, or whose messages are written, until the end is reported. */
struct copies_coupon;

struct copies_port {
	int64_t (*now_ms)(void); /* monotonic */
	/* Asks for the coupon. Ends in copies_looked(), within the call or later. */
	void (*look)(void *context, struct copies_coupon *asked, int64_t coupon);
	/*
	 * Writes messages again. The bodies are lent during the call. Ends in copies_written(),
	 * within the call or later.
	 */
	void (*write)(void *context, struct copies_coupon *asked, int64_t coupon,
		      const struct copy *const *messages, size_t n);
	void *context;
};

struct copies;

struct copies *copies_new(const struct copies_port *port);
void copies_free(struct copies *copies); /* NULL is allowed */

/* The outbox has the message at present. */
void copies_add(struct copies *copies, struct copy *copy);
/* Its holder has it no longer, or RabbitMQ or PostgreSQL has it. Without effect if not added. */
void copies_remove(struct copies *copies, struct copy *copy);

/* Asks for coupons that are due, some at a time. To be called regularly. */
void copies_tick(struct copies *copies);
/* Asks for this coupon, or for all, in the next tick. */
void copies_look_soon(struct copies *copies, int64_t coupon);
void copies_look_all(struct copies *copies);
/* From now on it asks every COPIES_HURRY_MS. */
void copies_hurry(struct copies *copies);
/* When the next tick asks for something; INT64_MAX: not before something changes. */
int64_t copies_due_ms(const struct copies *copies);

/*
 * The end of port.look(): the reply of this process of Redis; `look` is NULL: there was none. What
 * Redis has alone is not THERE, and what it lacks is written all the same.
 */
void copies_looked(struct copies *copies, struct copies_coupon *asked, const char *process,
		   const struct copies_look *look);
/* The end of port.write(). */
void copies_written(struct copies *copies, struct copies_coupon *asked, enum copies_result result);

size_t copies_lost(const struct copies *copies); /* receives that Redis is known to lack */
/*
 * Receives that Redis is not known to have, by what it has shown since this time. Calls `each` for
 * their messages, unless it is NULL.
 */
size_t copies_unsafe(const struct copies *copies, int64_t since_ms,
		     void (*each)(void *context, const struct copy *copy), void *context);

/*
 * What it asks Redis and tells it, as commands and replies:
 *
 *	HMGET of the coupon ──▶ restore_look_take() ──▶ lua/restore.lua ──▶ restore_result_take()
 *
 * The script judges again, so that nothing happens if the coupon has changed in between. No I/O.
 */

/* The words of the command whose reply restore_look_take() reads. */
#define RESTORE_LOOK_WORDS(key) "HMGET", key, "generation", "seq", "placeholder"
#define RESTORE_LOOK_WORDS_N 5

/* 0, or -1: the reply is none to that command. */
int restore_look_take(struct copies_look *look, const redisReply *reply);

/* Reads the reply to lua/restore.lua; NULL: none was received. */
enum copies_result restore_result_take(const redisReply *reply);

/* EVAL of lua/restore.lua. The words point into it, so it must not be copied. */
struct restore_command {
	int n;
	const char *words[3 + 4 + 4 * COPIES_MESSAGES_MAX];
	size_t lengths[3 + 4 + 4 * COPIES_MESSAGES_MAX];
	struct coupon_keys keys;
	struct {
		char batch[ULID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	} texts[COPIES_MESSAGES_MAX];
};

/* The script and the bodies are lent to the command. */
void restore_command_make(struct restore_command *command, int64_t coupon, const char *script,
			  const struct copy *const *messages, size_t n);

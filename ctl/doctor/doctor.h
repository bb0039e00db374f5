/*
 * couponctl doctor: a line for each thing that the promises or a rush need, of the stores, of this
 * machine and of the programs that run. Each look prints its lines, and ends no process: what it
 * cannot read is unknown, with the reason.
 *
 *	cmd_doctor ──▶ look_redis, look_postgresql, look_rabbitmq: one store each, and its clients
 *	           ──▶ look_machine: kernel, descriptors, files of certificates
 *
 * To see how long a disk takes, Redis gets a key that ends after a second, PostgreSQL a message in
 * its WAL that no table has, RabbitMQ messages in a queue of this connection. Nothing else is
 * written.
 */
#pragma once

#include "common/program/config.h"
#include "common/rabbit/connection.h"
#include "common/redis/redis_client.h"
#include "ctl/database.h"

#include <openssl/x509.h>

enum health { HEALTH_OK, HEALTH_WARNING, HEALTH_WRONG, HEALTH_UNKNOWN, HEALTH_N };

struct doctor {
	const struct config *config;
	int as_json;
	int lines_n[HEALTH_N], away_n;
	/* NULL: the store is away. */
	struct redis_client *redis;
	struct db *db;
	amqp_connection_state_t rabbit;
};

/* A line but for its value. `why` and `mend` are left out of one that is ok. NULL: none. */
struct sign {
	const char *name;
	enum health health;
	const char *wanted;
	const char *why;  /* what follows from it, or why it is not known */
	const char *mend; /* a command, or what to do */
};

/* Prints the line with its value; an empty one is none. */
void doctor_say(struct doctor *doctor, const struct sign *sign, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Prints that it cannot be read, and why. */
void doctor_unknown(struct doctor *doctor, const char *name, const char *mend, const char *format,
		    ...) __attribute__((format(printf, 4, 5)));

/* What all stores have in common. */

void store_away(struct doctor *doctor, const char *name, const char *where, const char *why,
		const char *mend);
/* Compares a version, as "Redis 7.0.15", with those that are supported. */
void version_say(struct doctor *doctor, const char *name, const char *version);
/*
 * Prints the median of `n` calls, which are warned about above `most_ms`. A call that fails returns
 * HEALTH_WRONG, or HEALTH_UNKNOWN for the lack of a right, with the reason in `why`.
 */
struct timed {
	const char *name, *wanted, *what; /* what takes so long */
	const char *mend;
	int n, most_ms;
	int is_ping; /* without a reply the store is away */
	enum health (*once)(struct doctor *doctor, const void *context, char *why, size_t size);
	const void *context;
};

void time_say(struct doctor *doctor, const struct timed *timed);
/* Prints how far a clock is ahead. */
void clock_say(struct doctor *doctor, const char *name, int64_t ahead_ms);
/* Prints how many of a number are used; many are warned about. */
void share_say(struct doctor *doctor, const char *name, int64_t used, int64_t most, const char *why,
	       const char *mend);
/* Prints a setting that the service shows. */
struct durability_setting;
void durability_say(struct doctor *doctor, const char *name, const struct durability_setting *one,
		    const char *mend);
/* Prints the space of the disk that has the folder. */
void disk_say(struct doctor *doctor, const char *name, const char *folder);
/* Prints the days of one certificate. `of` is what has it. */
void certificate_say(struct doctor *doctor, const char *name, const char *of,
		     const X509 *certificate);
/* Reads and prints the certificate that a server presents, which is not verified. */
void presented_say(struct doctor *doctor, const char *name, const char *host, int port);

#define DISK_MEND "make space, or give the store a larger disk"
#define LATENCY_MEND                                                                            \
	"put the programs nearer to the store, and look what keeps its machine or the network " \
	"busy"
#define SYNC_MEND "give the store a faster disk, or one that nothing else writes to"

void look_redis(struct doctor *doctor);
void look_postgresql(struct doctor *doctor);
void look_rabbitmq(struct doctor *doctor);
void look_machine(struct doctor *doctor);

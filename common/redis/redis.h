/*
 * What all connections to Redis have in common: the names of the keys, the address, and the meaning
 * of replies. No I/O but a line of the log.
 */
#pragma once

#include <hiredis/hiredis.h>
#include <stdint.h>

/* All keys of one coupon carry the hash tag {ID}, so that one script may use them. */

#define COUPON_KEY_SIZE 80
#define COUPON_KEYS_MAX 10

/* A set of them is passed as one number. Scripts get the keys of a set in this order. */
enum coupon_key {
	COUPON_KEY_COUPON = 1 << 0, /* hash: terms, counts, generation, fence */
	COUPON_KEY_USERS = 1 << 1,  /* hash: user to the records of its slots */
	COUPON_KEY_OUTBOX = 1 << 2, /* hash: batch to message body */
	COUPON_KEY_KNOWN = 1 << 3,  /* set: receives of older generations that have their slot */
	COUPON_KEY_SEEN = 1 << 4,   /* hash: generation to the highest seq that gateways saw */
	COUPON_KEY_DEAD = 1 << 5,   /* set: batches in the dead-letter queue */
	/* What PostgreSQL has, should it be put back to an earlier moment: */
	COUPON_KEY_SETTLED = 1 << 6,  /* list: "BATCH:AT", the time of each settled batch, in ms */
	COUPON_KEY_REJECTED = 1 << 7, /* list: "BATCH:INDEX:SLOT:REASON:USER" */
	COUPON_KEY_TERMS = 1 << 8,    /* string: "VERSION JSON", the row of the coupon */
	/* hash: claimed exchange code to its user, and revoked code to "" */
	COUPON_KEY_CODES = 1 << 9,
	/* string: "FILLED ROWS MS", how far a rebuild is; in no set */
	COUPON_KEY_FILLED = 1 << 10
};

#define COUPON_KEYS_ISSUE (COUPON_KEY_COUPON | COUPON_KEY_USERS | COUPON_KEY_OUTBOX)
#define COUPON_KEYS_CLAIM (COUPON_KEYS_ISSUE | COUPON_KEY_CODES)
#define COUPON_KEYS_PLACE \
	(COUPON_KEYS_ISSUE | COUPON_KEY_KNOWN | COUPON_KEY_SEEN | COUPON_KEY_CODES)
#define COUPON_KEYS_SLOT_FREE (COUPON_KEYS_ISSUE | COUPON_KEY_REJECTED | COUPON_KEY_CODES)
#define COUPON_KEYS_SETTLED (COUPON_KEY_OUTBOX | COUPON_KEY_SETTLED | COUPON_KEY_REJECTED)
#define COUPON_KEYS_RESTORE \
	(COUPON_KEY_COUPON | COUPON_KEY_OUTBOX | COUPON_KEY_SEEN | COUPON_KEY_DEAD)
#define COUPON_KEYS_ALL                                                                   \
	(COUPON_KEYS_PLACE | COUPON_KEY_DEAD | COUPON_KEY_SETTLED | COUPON_KEY_REJECTED | \
	 COUPON_KEY_TERMS)

#define KEEPER_LOCK_KEY "couponmq:lock:{keeper}"   /* hash: see lua/lock.lua */
#define CHANGES_KEY "couponmq:changes"             /* hash: a copy of the table change_count */
#define CHANGES_USES_KEY "{couponmq:changes}:uses" /* list: lua/uses.lua */
#define GATEWAYS_KEY "couponmq:gateways" /* hash: gateway to the process that it reported to */
#define GATEWAYS_NEWS "news"             /* its field: the number of the last change (presence.h) */
#define KNOWS_KEY "couponmq:knows" /* hash: gateway to the numbers up to which it knows changes */
#define UNCOPIED_KEY "couponmq:uncopied"   /* hash: gateway to receives that Redis lacks */
#define KEYS_KEY "couponmq:keys"           /* hash: API key to its record; `version` */
#define KEYS_USED_KEY "couponmq:keys_used" /* hash: API key to its last use, Unix time in ms */
#define MASTER_LEASE_KEY "couponmq:lease"  /* hash: see lua/master_lease.lua */
#define REPLICAS_KEY "couponmq:replicas"   /* string: empty; what WAIT waits for */
#define ASKED_KEY "couponmq:asked"         /* set: coupons that clients ask for in vain */
#define REFUSED_KEY "couponmq:refused"     /* hash: see lua/refused.lua */

/* The name of one key. Returns `out`. */
const char *coupon_key(int64_t coupon, enum coupon_key key, char out[COUPON_KEY_SIZE]);
/* The temporary name under which a rebuild fills the key. Returns `out`. */
const char *coupon_key_filling(int64_t coupon, int64_t generation, enum coupon_key key,
			       char out[COUPON_KEY_SIZE]);

/* `names` point into `texts`, so the struct must not be copied. */
struct coupon_keys {
	int n;
	const char *names[COUPON_KEYS_MAX];
	char texts[COUPON_KEYS_MAX][COUPON_KEY_SIZE];
};

void coupon_keys_make(struct coupon_keys *keys, int64_t coupon, unsigned set);

/*
 * The address of Redis, percent-encoding allowed in user and password:
 *
 *	redis://[user:password@]host[:port][/database]
 *	redis+sentinel://[user:password@]sentinel[:port],…/name[/database]
 *
 * or rediss:// and rediss+sentinel:// with TLS. User and password are those of Redis.
 */

#define REDIS_SENTINELS_MAX 9

struct redis_host {
	char *name;
	int port;
};

struct redis_url {
	int is_tls;
	char *host; /* NULL: its Sentinels tell where it is */
	int port;
	char *user;     /* NULL: none */
	char *password; /* NULL: none */
	int database;
	size_t sentinels_n; /* 0: none */
	struct redis_host sentinels[REDIS_SENTINELS_MAX];
	char *name; /* what the Sentinels call the master */
};

/* 0, or -1 when it is not such a URL. */
int redis_url_parse(struct redis_url *url, const char *text);
#define REDIS_URL_WHY_SIZE 320
/*
 * As redis_url_parse(), and -1 also for TLS where hiredis has none. `why` says how the URL is
 * wrong, with nothing secret of it, and follows the name of a setting: "is not of the form …".
 */
int redis_url_read(struct redis_url *url, const char *text, char why[REDIS_URL_WHY_SIZE]);
/* Parses the setting REDIS_URL. What redis_url_read() refuses ends the process with a sentence. */
void redis_url_need(struct redis_url *url, const char *text);
void redis_url_fini(struct redis_url *url);
int redis_url_has_sentinels(const char *text); /* for a URL that is valid */

#define REDIS_RUN_ID_SIZE 41
#define REDIS_WORD_SIZE 16

/*
 * Whether an error concerns the state of the server, so that any other command would fail as well:
 * it is loading, busy, read-only, out of connections. Any other error concerns this command and the
 * keys that it names.
 */
int redis_error_is_of_server(const char *error);
/*
 * Whether the error means that the command or script did not run, or had no effect. After any other
 * error that is unknown.
 */
int redis_error_means_not_run(const char *error);

/* The number in a reply, as an integer or as text; 0 when it is neither. */
int64_t redis_reply_number(const redisReply *reply);
/* The word that a script replied, alone or first of a list; empty when it is none. */
void redis_reply_word(const redisReply *reply, char word[REDIS_WORD_SIZE]);

/* The reply to TIME. 0, or -1 when it is something else. */
int redis_reply_time_ms(const redisReply *reply, int64_t *time_ms);
#define REDIS_VERSION_SIZE 32
/*
 * The reply to INFO server: the product, "Redis" or "Valkey", and its version; empty when it is
 * absent. Valkey also states the version of Redis that it is compatible with.
 */
const char *redis_reply_version(const redisReply *reply, char version[REDIS_VERSION_SIZE]);
/* The reply to INFO persistence: how much was written since the last save. 0, or -1. */
int redis_reply_writes(const redisReply *reply, int64_t *writes);
/* Whether it is a reply to HSCAN: a cursor, and an array of fields and values. */
int redis_reply_is_scan(const redisReply *reply);

#define REDIS_PROCESS_LEN 32 /* digits of the run id before its term */

/*
 * The handshake of a connection: what to send next, and what the replies mean. It is the same for
 * every connection, and does no I/O. A command is sent when the one before it is answered:
 *
 *	login    AUTH ──▶ SELECT           AUTH only with a password
 *	process  HMGET ──▶ INFO            MASTER_LEASE_KEY, only under Redis Sentinel;
 *	                                   first, because the process of a later one may be another
 *	script   SCRIPT LOAD ──▶ EVALSHA   without arguments: whether the script may be run
 *
 * The script comes last. Redis resets the connection of a stranger who sends so long a text, and
 * its NOAUTH or WRONGPASS is lost. A handshake has the steps from `first` to `last`.
 */
enum redis_step {
	REDIS_STEP_AUTH,
	REDIS_STEP_SELECT,
	REDIS_STEP_LEASE,
	REDIS_STEP_PROCESS,
	REDIS_STEP_LOAD,
	REDIS_STEP_PROBE,
	REDIS_STEPS
};

#define REDIS_HANDSHAKE_WORDS 6
#define REDIS_SHA_SIZE 41
#define REDIS_WHY_SIZE 256

struct redis_handshake {
	const struct redis_url *url;
	const char *script; /* for the last two steps */

	enum redis_step step, last;
	int is_awaited; /* the reply to `step` is */
	struct {
		char process[REDIS_PROCESS_LEN + 1]; /* "": there is none */
		int64_t term;
		int64_t from_ms, until_ms; /* by the master's clock */
	} lease;
	char database[12];
	/*
	 * The results, which a later handshake of the connection keeps until it has others.
	 * `run_id`: of this process as a master, 16 digits of its own run id, 16 of the id of its
	 * replication history (master_replid), and 8 for the term of its lease, 0 if it has none.
	 * It is another one after each restart, and each time that the process becomes the master
	 * again. "": not known. `uptime_s`: for how long it has certainly been the master.
	 */
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s;
	int lease_holds; /* at the time of INFO, by the master's clock; or there are no Sentinels */
	/* As scripts take it from gateways: `run_id`, or "RUN_ID:FROM:UNTIL" under Sentinels. */
	char lease_argument[REDIS_RUN_ID_SIZE + 48];
	char sha[REDIS_SHA_SIZE]; /* identifies the script */

	/* set when a handshake has failed */
	char why[REDIS_WHY_SIZE];
	int is_replica;
	int is_refused; /* by an error that does not concern the state of the server */
};

void redis_handshake_begin(struct redis_handshake *handshake, enum redis_step first,
			   enum redis_step last);
/*
 * Takes the reply to the command of before (NULL: none was received; ignored at first). Returns how
 * many words the next command has, 0 when the handshake has ended, or -1 when it has failed. The
 * words are lent by the handshake. The version of Redis is logged (service_version_log()).
 */
int redis_handshake_next(struct redis_handshake *handshake, const redisReply *reply,
			 const char *words[REDIS_HANDSHAKE_WORDS]);

/*
 * PostgreSQL and Redis as the settings name them, for all commands. Every function here ends the
 * process with one sentence when its store cannot be reached or refuses.
 */
#pragma once

#include "common/changes.h"
#include "coupon/slot.h"
#include "ctl/ctl.h"
#include "ctl/database.h"

#include <cjson/cJSON.h>

/* The database that DATABASE_URL names. */
struct db *store_postgres_open(const struct ctl *ctl);

/* Opens the database as the owner of the tables, where DATABASE_ADMIN_URL names one. */
struct db *store_admin_open(const struct ctl *ctl);

/*
 * Opens both stores for changes, by --by. Ends the process while PostgreSQL is behind Redis.
 * `redis` NULL: the caller needs only PostgreSQL.
 */
struct db *store_changing_open(const struct ctl *ctl, struct redis_client **redis);

/* Leaves an old primary for the next one of several servers. `redis` tells which is followed. */
void store_server_find(struct db *db, struct redis_client *redis);

/* The option of a command that changes something. */
#define BY_OPTION                                                                     \
	OPTION("by", "NAME",                                                          \
	       "who makes the change, for the history, 1 to 100 bytes; default: the " \
	       "user and the host of the system")

/*
 * Records who makes the changes that follow in this session. The first call of a process also
 * records the command; its exit status is recorded at the end.
 */
void store_by_set(struct db *db, const struct ctl *ctl);

/* The command is not done twice with the same key. */
#define KEY_OPTION                                                                                \
	OPTION("key", "KEY",                                                                      \
	       "idempotency key, 1 to 255 bytes of printable ASCII: repeated with the same key, " \
	       "the command changes nothing more, and prints what it printed")

#define KEY_OPTION_AGAIN                                                                        \
	OPTION("key", "KEY",                                                                    \
	       "idempotency key, 1 to 255 bytes of printable ASCII: the command is refused if " \
	       "the "                                                                           \
	       "key was given before with other arguments or options")

/*
 * Records --key, in the transaction of what the command makes. Returns NULL if there is no --key,
 * or if it is new. Otherwise the command was done before: returns what it printed, without secrets;
 * an empty object if that was not recorded. Ends the process if the key was given with other words.
 * Waits for another command with the same key. `file`: one whose content counts as a word, or NULL.
 */
cJSON *store_key_take(struct db *db, const struct ctl *ctl, const char *file);
/* Records what the command is about to print, before the COMMIT. Does nothing without --key. */
void store_key_answer(struct db *db, const struct ctl *ctl, const cJSON *answer);
/*
 * BEGIN and store_key_take(). If the command was done before, the transaction is rolled back.
 * Otherwise store_key_commit() follows.
 */
cJSON *store_key_begin(struct db *db, const struct ctl *ctl);
/* store_key_answer() and COMMIT. Frees the answer. */
void store_key_commit(struct db *db, const struct ctl *ctl, cJSON *answer);
/* Records --key for a command that may be repeated safely: only other words are refused. */
void store_key_bind(struct db *db, const struct ctl *ctl, const char *file);

/* The row of a coupon, by a query whose only parameter is its id. No row ends the process. */
PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon);

/*
 * A query of receives, here of one: `n` is RECEIVE_ARGS_N, or 2 for all receives of its user for
 * its coupon.
 */
PGresult *store_receive_ask(struct db *db, const char *sql, int n, const struct receive *receive);

/* The arguments of a statement on slots: arrays of one length. */
struct slot_arrays {
	struct postgres_array users, numbers, batches, indexes;
	struct postgres_array generations, times; /* added by the caller */
};

void slot_arrays_init(struct slot_arrays *arrays);
void slot_arrays_add(struct slot_arrays *arrays, const struct slot *slots, size_t n);
void slot_arrays_fini(struct slot_arrays *arrays);

/* A query of the slots of a coupon: their users, numbers, batches and indexes. */
PGresult *store_slots_ask(struct db *db, const char *sql, int64_t coupon, const struct slot *slots,
			  size_t n);

/* Keeps the slots whose receives have no outcome, and returns how many there are. */
size_t store_keep_open(struct db *db, int64_t coupon, struct slot *list, size_t n);
/*
 * Records their receives as rejected (lost), each of its generation in `arrays`, with its time of
 * acceptance, and ends `arrays`. Keeps those that had no outcome until then, and returns how many
 * there are. The keeper then frees their slots in Redis.
 */
size_t store_lost_record(struct db *db, int64_t coupon, struct slot *list, size_t n,
			 struct slot_arrays *arrays);

/*
 * Writes the receive of a row with the columns `user_id`, `batch` and `idx`; "" without a user,
 * which is copied as it is, even if it is no valid id. Returns `out`.
 */
#define STORE_RECEIVE_SIZE (2 * RECEIVE_SIZE)
char *store_receive_text(const PGresult *rows, int row, int64_t coupon,
			 char out[STORE_RECEIVE_SIZE]);

/*
 * Calls `take` for each row of a query of coupons, at most `count` times. The parameters of the
 * query are the id after which to begin and a number of rows; its first column is the id. The rows
 * are read in pages, without a transaction. Returns the number of rows.
 */
typedef void store_row_fn(void *context, const PGresult *page, int row);
int64_t store_coupons_read(struct db *db, const char *sql, int64_t after, int64_t count,
			   store_row_fn *take, void *context);

/* The Redis that REDIS_URL names. To be freed with redis_client_free(). */
struct redis_client *store_redis_open(const struct ctl *ctl);

/* Ends the process unless `ok`; the last command on this connection has failed then. */
void store_redis_check(const struct redis_client *redis, int ok);
/* Returns the reply; NULL, a failure, ends the process. */
redisReply *store_reply(const struct redis_client *redis, redisReply *reply);
/* coupon_has(); a failure ends the process. */
void store_has(struct redis_client *redis, int64_t coupon, enum coupon_key which,
	       const struct slot *slots, size_t n, char *has);

/* The run id of the Redis process. */
void store_run_id_read(struct redis_client *redis, char run_id[REDIS_RUN_ID_SIZE]);

/*
 * Gateways that may have accepted receives which neither RabbitMQ nor Redis has: they have told
 * Redis so, or have not reported to it since it was started or lost its data. An array of objects:
 * `gateway`, its place; `receives`, if it has told how many; `silent_s`. Without those that were
 * not heard of for COPIES_SILENT_S: they are taken for dead.
 */
cJSON *store_gateways_lacking(struct db *db, struct redis_client *redis);
/* "127.0.0.1:7411 (30 receives), …". Returns `out`. */
#define STORE_GATEWAYS_SIZE 512
char *store_gateways_text(const cJSON *gateways, char out[STORE_GATEWAYS_SIZE]);

/*
 * Waits, after a change is in both stores, until every gateway that is there knows it: so the next
 * request of the operator finds it. Gateways read its number in Redis, and say there up to which
 * number they know changes of the kind (gateway/presence.h). Returns 0; or CTL_UNKNOWN after a
 * warning that names those that have not said so in STORE_NEWS_WAIT_MS. One that PostgreSQL has not
 * heard of for 7 s is left out; with STORE_NEWS_KEYS it is named for COPIES_SILENT_S, because a
 * process that hangs may still answer the owner of a revoked key once.
 */
enum store_news { STORE_NEWS_TERMS, STORE_NEWS_KEYS, STORE_NEWS_CODES };
#define STORE_NEWS_WAIT_MS 5000
int store_gateways_wait(struct db *db, struct redis_client *redis, enum store_news kind);

/*
 * PostgreSQL is behind Redis if it was put back to an earlier moment. Then only `couponctl recover`
 * may change anything; see docs/guides/backup.md. Each function ends the process if Redis belongs
 * to another installation than PostgreSQL, or if PostgreSQL is a standby or an old primary. If
 * Redis belongs to no installation, nothing is copied.
 */
#define BEHIND_TEXT                                                                                \
	"PostgreSQL is behind Redis by at least %lld transactions: it was put back to an earlier " \
	"moment. Run couponctl recover --all, or couponctl recover --accept-loss"

/*
 * Returns by how many transactions PostgreSQL is behind, at least; 0: it is not behind; -1: Redis
 * cannot be read, and redis_client_error() says why. Redis is read first.
 */
int64_t behind_read(struct db *db, struct redis_client *redis);
/*
 * Like behind_read(), for recover: makes Redis follow this server, and then reads the numbers. From
 * then on, nothing that the former server commits is removed from Redis. FOLLOW_ANY: an old primary
 * may be followed too. If `is_dry`, or if the server is of a cluster that is not to be followed,
 * nothing is changed.
 */
int64_t behind_read_any(struct db *db, struct redis_client *redis, enum follow follow, int is_dry,
			struct changes *changes, struct changes *copy);

/*
 * Copies the numbers of PostgreSQL to Redis, after a change and before Redis acts on it. So it is
 * noticed if PostgreSQL is put back to before the change. Returns 0, or -1 like behind_read().
 */
int behind_copy(struct db *db, struct redis_client *redis);

/* Ends the process if PostgreSQL is behind, or if that is unknown: nothing may be changed then. */
void behind_refuse(struct db *db, struct redis_client *redis);

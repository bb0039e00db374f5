/*
 * Authenticates and authorizes requests: the identity of a request, what its key or token allows,
 * and how often. No I/O: key_records.h feeds the watch of API keys, and the owner of the event loop
 * looks at the file of token keys.
 *
 *	            ┌─ a key: its roles, its coupons, its rate
 *	presented ──┤
 *	            └─ a token of a user: for himself, its coupons, the rates of users and addresses
 *	nothing: with COUPON_AUTH=off everything, at the rate of addresses; else `ping` only
 *
 * A client is never told what was wrong with what it presented; the log and the metrics are.
 */
#pragma once

#include "common/api_key_watch.h"
#include "common/program/config.h"
#include "gateway/auth/limits.h"
#include "gateway/listen/request.h"

#include <event2/buffer.h>
#include <sys/types.h>

struct auth;

/* Ends the process with a sentence if a setting is wrong. */
void auth_check(const struct config *config);

struct auth *auth_new(const struct config *config);
struct key_watch *auth_key_watch(struct auth *auth);
int auth_is_required(const struct auth *auth); /* COUPON_AUTH=required */
/* The id of the key that a user of this machine stands for (COUPON_UNIX_KEYS), or NULL. */
const char *auth_key_of_uid(const struct auth *auth, uid_t uid);

/* Looks at the file of token keys, once a second. */
void auth_tick(struct auth *auth, int64_t now_ms);
/* Loads it now, changed or not. */
void auth_reload(struct auth *auth);
/* Whether it can say whose a request is: no key is needed, or a store has told of keys. */
int auth_can_judge(const struct auth *auth, int64_t now_ms);
/* Why the file of token keys is not in use, or why keys cannot be judged; NULL: all is well. */
const char *auth_trouble(const struct auth *auth, int64_t now_ms);

/* The verdict about a request. Only with ANSWER_RATE_LIMITED it says how long to wait. */
struct auth_answer {
	enum answer answer;
	int may_be_new;                   /* auth_identify(): a key that a store may have by now */
	struct limit limits[LIMIT_KINDS]; /* that were looked at */
	size_t limits_n;
	struct limit_verdict verdict; /* of these */
};

/*
 * Replaces the identity of the responder by the one that a text, a key or a token, proves. The
 * answer is ANSWER_OK, or the reason why the responder is nobody's now: ANSWER_UNAUTHORIZED,
 * ANSWER_RATE_LIMITED, or ANSWER_UNAVAILABLE for a key while no store can be asked.
 *
 * A key that is not known, or has another secret, may have been made just now. Then `may_be_new` is
 * set, unless the address has presented too many wrong ones: the caller asks the stores, and calls
 * again with `is_asked` 1; or -1 if they were asked in vain, for which the answer is
 * ANSWER_UNAVAILABLE.
 */
void auth_identify(struct auth *auth, struct responder *responder, const char *text, size_t len,
		   int is_asked, struct auth_answer *answer);
/*
 * Replaces the identity of the responder by the key with this id, which was proved otherwise: by a
 * certificate, or by a user id. ANSWER_OK also when there is no such key: then the responder is
 * nobody's.
 */
enum answer auth_identify_by_id(struct auth *auth, struct responder *responder, const char *id);

/*
 * Whether the request may be done. ANSWER_OK; or ANSWER_UNAUTHORIZED, ANSWER_FORBIDDEN,
 * ANSWER_RATE_LIMITED, ANSWER_UNAVAILABLE.
 */
void auth_admit(struct auth *auth, const struct request *request, struct auth_answer *answer);
/* Whether it may see what operators see: metrics, and the details of readiness. */
enum answer auth_monitor(struct auth *auth, struct responder *responder);

/*
 * How often each API key was used, and when last: metrics of a gateway, over all its processes. The
 * first KEY_USES_MAX keys that are used after the start have an entry each; the others share one,
 * KEY_USE_OTHERS.
 */

#define KEY_USES_MAX 1000
#define KEY_USE_OTHERS "others"

/* Before the processes are started. */
void key_uses_init(void);
/* The place of the key with this id, for key_use(). */
size_t key_use_place(const char *id);
/* One request; `is_refused`: by its roles, coupons or rate. */
void key_use(size_t place, int64_t now_ms, int is_refused);
void key_uses_prometheus(struct evbuffer *out);

/* Takes the last uses since they were taken before, by any process. Returns their number. */
size_t key_uses_take(struct key_last_use *uses, size_t most);

/*
 * Who may do what: the identity of a request, what its key or token allows, and how often. No I/O:
 * key_records.h hands over the API keys of the stores, and the owner of the event loop looks at the
 * file of token keys.
 *
 *	            ┌─ a key: its roles, its coupons, its rate
 *	presented ──┤
 *	            └─ a token of a user: for himself, its coupons, the rates of users and addresses
 *	nothing: with COUPON_AUTH=off everything, at the rate of addresses; else `ping` only
 *
 * A client is never told what was wrong with what it presented; the log and the metrics are.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/gate/identity.h"
#include "gateway/gate/limits.h"
#include "gateway/listen/request.h"

#include <sys/types.h>

struct gate;

/* Ends the process with a sentence if a setting is wrong. */
void gate_check(const struct config *config);

struct gate *gate_new(const struct config *config);
struct keys *gate_keys(struct gate *gate);
int gate_is_required(const struct gate *gate); /* COUPON_AUTH=required */
/* The id of the key that a user of this machine stands for (COUPON_UNIX_KEYS), or NULL. */
const char *gate_key_of_uid(const struct gate *gate, uid_t uid);

/* A store has told all that it knows of keys, and it is not behind what is known here. */
void gate_keys_told(struct gate *gate, int64_t now_ms);
/* Looks at the file of token keys, once a second. */
void gate_tick(struct gate *gate, int64_t now_ms);
/* Loads it now, changed or not. */
void gate_reload(struct gate *gate);
/* Why it is not in use, or why keys cannot be judged; NULL: all is well. */
const char *gate_trouble(const struct gate *gate, int64_t now_ms);

/* What came of it. Only with ANSWER_RATE_LIMITED the verdict says how long to wait. */
struct gate_answer {
	enum answer answer;
	struct limit limits[LIMIT_KINDS]; /* that were looked at */
	size_t limits_n;
	struct limit_verdict verdict; /* of these */
};

/*
 * Replaces the identity of the responder by that of a text, a key or a token. ANSWER_OK, or the
 * reason why it is nobody's now: ANSWER_UNAUTHORIZED, ANSWER_RATE_LIMITED, or ANSWER_UNAVAILABLE if
 * it is a key and no store can be asked.
 */
void gate_identify(struct gate *gate, struct responder *responder, const char *text, size_t len,
		   struct gate_answer *answer);
/*
 * The same for a key by its id, which was proved otherwise: by a certificate, or by a user id.
 * ANSWER_OK also when there is no such key: then it is nobody's.
 */
enum answer gate_identify_by_id(struct gate *gate, struct responder *responder, const char *id);

/*
 * Whether the request may be done. ANSWER_OK; or ANSWER_UNAUTHORIZED, ANSWER_FORBIDDEN,
 * ANSWER_RATE_LIMITED, ANSWER_UNAVAILABLE.
 */
void gate_admit(struct gate *gate, const struct request *request, struct gate_answer *answer);
/* Whether it may see what operators see: metrics, and the details of readiness. */
enum answer gate_monitor(struct gate *gate, struct responder *responder);

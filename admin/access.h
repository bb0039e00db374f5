/*
 * Authenticates a request by an API key, or by a browser's session that was begun with one, and
 * authorizes it. A thread reads the keys of both stores twice a second, as gateways do
 * (key_records.h), and when a request asks for it. A request is judged when the stores were asked
 * since its arrival: what `couponctl key` has answered is true for the next request. While no store
 * answers, a key that is known waits for half a second, and is judged by the last look.
 *
 * Sessions are in memory. One ends COUPON_ADMIN_SESSION_S after its begin, SESSION_IDLE_S after its
 * last request, with its key, with the program, and when it is asked to.
 */
#pragma once

#include "common/api_keys.h"
#include "common/program/config.h"

#include <stdint.h>

#define SESSION_IDLE_S 3600
#define SESSION_COOKIE "couponmq_admin"
#define SESSION_TEXT_SIZE 44 /* of 32 random bytes in base64url, with its NUL */

struct access;

struct access *access_start(const struct config *config);
void access_stop(struct access *access);

/* Whether keys can be judged: a store has told of them, and not too long ago. */
int access_is_ready(struct access *access);

enum access_answer {
	ACCESS_OK,
	ACCESS_NOBODY,     /* there is no key and no session, or they are not good */
	ACCESS_NEW,        /* the key is not known, and may be new: access_ask() */
	ACCESS_KNOWN,      /* it was good at the last look: access_ask() */
	ACCESS_FORBIDDEN,  /* it may not do this */
	ACCESS_UNPROVED,   /* a change by a session, without its token */
	ACCESS_UNAVAILABLE /* no store tells of keys */
};

/*
 * Asks the stores for changes of keys, without waiting for the next look; those who ask meanwhile
 * share one. `why` is ACCESS_KNOWN or ACCESS_NEW, for which looks are made less often, because
 * strangers may ask, too. Returns the number of the question.
 */
uint64_t access_ask(struct access *access, enum access_answer why);
/* 0: it goes on; 1: a store has told of all keys since; -1: none could. */
int access_told(struct access *access, uint64_t question);

/* What a request presents; each may be NULL. */
struct credentials {
	const char *key;     /* of Authorization: Bearer */
	const char *session; /* of the cookie */
	const char *token;   /* X-CSRF-Token */
	int is_asked;        /* as access_told() returned, 0: not yet */
};

struct visitor {
	char key[KEY_ID_LEN + 1];
	unsigned roles;
	int64_t ends_ms;               /* of the session, by the wall clock; 0: there is none */
	char token[SESSION_TEXT_SIZE]; /* of the session */
	struct key_grant grant;        /* what access_check_again() judges by */
};

/*
 * What a request names, as texts; NULL: nothing of this kind. A key of some coupons may do only
 * what names one of its coupons or budgets, and nothing else.
 */
struct access_about {
	const char *coupon;
	const char
		*budget; /* "none": the campaign shall have none, which only other keys may say */
};

/*
 * `role` is what is needed, 0: any that this program has; `about` NULL: it names nothing.
 */
enum access_answer access_check(struct access *access, const struct credentials *credentials,
				unsigned role, const struct access_about *about, int is_change,
				struct visitor *visitor);

/*
 * Whether he who was let in still may, after he has waited: with the same key, and in the same
 * session unless `token` is emptied.
 */
enum access_answer access_check_again(struct access *access, struct visitor *visitor, unsigned role,
				      const struct access_about *about);

/* Begins a session with a key, whose secret goes into the cookie. `is_asked`: of credentials. */
enum access_answer access_session_begin(struct access *access, const char *key, int is_asked,
					char session[SESSION_TEXT_SIZE], struct visitor *visitor);
void access_session_end(struct access *access, const char *session);
size_t access_sessions_n(struct access *access); /* that have not ended */

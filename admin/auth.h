/*
 * Authenticates a request by an API key, by a browser's session that was begun with one, or by the
 * name that a reverse proxy gives (proxy_user.h), and authorizes it. A thread reads the keys of
 * both stores (common/api_key_watch.h), twice a second and when a request asks for it. A request is
 * judged when the stores were asked since its arrival: what `couponctl key` has answered is true
 * for the next request. While no store answers, a key that is known waits for half a second, and is
 * judged by the last look.
 *
 * Sessions are in memory. One ends COUPON_ADMIN_SESSION_S after its begin, SESSION_IDLE_S after its
 * last request, with its key, with the program, and when it is asked to.
 */
#pragma once

#include "admin/proxy_user.h"
#include "common/api_key_watch.h"
#include "common/program/config.h"

#include <stdint.h>

#define SESSION_IDLE_S 3600
#define SESSION_COOKIE "couponmq_admin"
#define SESSION_TEXT_SIZE 44 /* of 32 random bytes in base64url, with its NUL */

struct auth;

struct auth *auth_start(const struct config *config);
void auth_stop(struct auth *auth);

/* Why new keys, or any, cannot be judged; NULL: they can. */
const char *auth_trouble(struct auth *auth);

enum auth_answer {
	AUTH_OK,
	AUTH_NOBODY,     /* there is no key and no session, or they are not good */
	AUTH_NEW,        /* the key is not known, and may be new: auth_ask() */
	AUTH_KNOWN,      /* it was good at the last look: auth_ask() */
	AUTH_FORBIDDEN,  /* it may not do this */
	AUTH_UNPROVED,   /* a change by a session, or by a user of a proxy, without its token */
	AUTH_NOT_PROXY,  /* the header of a proxy, which comes from elsewhere */
	AUTH_NO_NAME,    /* in the header of a proxy, or there are several */
	AUTH_UNAVAILABLE /* no store tells of keys */
};

/*
 * Asks the stores for changes of keys, without waiting for the next look; those who ask meanwhile
 * share one. `why` is AUTH_KNOWN or AUTH_NEW, for which looks are made less often, because
 * strangers may ask, too. Returns the number of the question.
 */
uint64_t auth_ask(struct auth *auth, enum auth_answer why);
/* 0: it goes on; 1: a store has told of all keys since; -1: none could. */
int auth_told(struct auth *auth, uint64_t question);

/* What a request presents; each may be NULL. The header of a proxy counts before the others. */
struct credentials {
	const char *user; /* of the first header of a proxy */
	size_t users_n;   /* how many it has */
	const struct sockaddr *from;
	const char *key;     /* of Authorization: Bearer */
	const char *session; /* of the cookie */
	const char *token;   /* X-CSRF-Token */
	int is_asked;        /* as auth_told() returned, 0: not yet */
};

struct visitor {
	char by[PROXY_USER_MAX + 1]; /* the id of the key, or the name of the user; "": nobody */
	unsigned roles;
	int64_t ends_ms;               /* of the session, by the wall clock; 0: there is none */
	char token[SESSION_TEXT_SIZE]; /* of the session or the user */
	struct key_grant grant;        /* what auth_check_again() judges by; .key NULL: a user */
};

/* Whether one of the roles is the one that is needed, or may do what that one may. */
int auth_may(unsigned roles, unsigned needed);
/* The greatest of the roles of this program, as "campaign". */
const char *auth_role_name(unsigned roles);

/* The header in which a proxy names its user; "": none does. */
const char *auth_user_header(const struct auth *auth);

/*
 * What a request names, as texts; NULL: nothing of this kind. A key of some coupons may do only
 * what names one of its coupons or budgets, and nothing else.
 */
struct auth_about {
	const char *coupon;
	const char
		*budget; /* "none": the campaign shall have none, which only other keys may say */
};

/*
 * `role` is the least that is needed, 0: any that this program has; `about` NULL: it names nothing.
 */
enum auth_answer auth_check(struct auth *auth, const struct credentials *credentials, unsigned role,
			    const struct auth_about *about, int is_change, struct visitor *visitor);

/*
 * Whether he who was let in still may, after he has waited: with the same key, and in the same
 * session unless `token` is emptied.
 */
enum auth_answer auth_check_again(struct auth *auth, struct visitor *visitor, unsigned role,
				  const struct auth_about *about);

/* Begins a session with a key, whose secret goes into the cookie. `is_asked`: of credentials. */
enum auth_answer auth_session_begin(struct auth *auth, const char *key, int is_asked,
				    char session[SESSION_TEXT_SIZE], struct visitor *visitor);
void auth_session_end(struct auth *auth, const char *session);
size_t auth_sessions_n(struct auth *auth); /* that have not ended */

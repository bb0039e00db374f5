/*
 * People whom a reverse proxy has signed in: it names each in COUPON_ADMIN_USER_HEADER, and
 * COUPON_ADMIN_USERS says what they may do. Whoever can send that header is whom he likes, so it is
 * taken from the proxies of COUPON_ADMIN_PROXY_NETWORKS only; from elsewhere it is refused, because
 * a request that has it has not come the way that the operators think.
 */
#pragma once

#include "common/program/config.h"

#include <stddef.h>
#include <sys/socket.h>

#define PROXY_USER_MAX 64        /* bytes of a name, as gateways take them for `by` */
#define PROXY_USER_TOKEN_SIZE 44 /* of 32 bytes in base64url, with its NUL */

struct proxy_users;

/* Ends the process with a sentence unless the three settings are well-formed and go together. */
void proxy_users_check(const struct config *config);

struct proxy_users *proxy_users_new(const struct config *config);
void proxy_users_free(struct proxy_users *users);

/* The name of the header; "": there are no such people. */
const char *proxy_users_header(const struct proxy_users *users);

enum proxy_user_answer {
	PROXY_USER_OK,
	PROXY_USER_FROM_ELSEWHERE, /* the header is not from a proxy */
	PROXY_USER_WRONG           /* it is no name, or there are several */
};

/*
 * Judges what a request has: the first of its `n` headers, and where it comes from. `*roles` are
 * those of the user, of enum key_role; 0: the user is known to the proxy, and may do nothing here.
 */
enum proxy_user_answer proxy_users_find(const struct proxy_users *users, const char *name, size_t n,
					const struct sockaddr *from, unsigned *roles);

/*
 * What a change must have in X-CSRF-Token: the proxy lets a browser in whatever page has sent the
 * request, and pages of other sites cannot read this. It is good until the program ends.
 */
void proxy_users_token(const struct proxy_users *users, const char *name,
		       char token[PROXY_USER_TOKEN_SIZE]);

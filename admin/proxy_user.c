#include "admin/proxy_user.h"

#include "common/api_keys.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/serve/network.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define USERS_MAX 1000
#define WHY_SIZE 320
#define EVERYBODY "*"
#define SECRET_BYTES 32

struct proxy_user {
	char name[PROXY_USER_MAX + 1];
	unsigned role; /* of enum key_role */
};

struct proxy_users {
	const char *header;
	struct networks networks;
	struct proxy_user list[USERS_MAX];
	size_t n;
	unsigned role_of_others; /* 0: they have none */
	unsigned char secret[SECRET_BYTES];
};

/* A proxy that joins several headers puts a comma between them. */
static int is_name(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~' || text[i] == ',')
			return 0;
	return len > 0 && len <= PROXY_USER_MAX;
}

static unsigned role_parse(const char *text)
{
	static const struct {
		const char *name;
		unsigned role;
	} roles[] = { { "monitor", KEY_ROLE_MONITOR },
		      { "campaign", KEY_ROLE_CAMPAIGN },
		      { "admin", KEY_ROLE_ADMIN } };

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(text, roles[i].name) == 0)
			return roles[i].role;
	return 0;
}

static const struct proxy_user *user_find(const struct proxy_users *users, const char *name)
{
	for (size_t i = 0; i < users->n; i++)
		if (strcmp(users->list[i].name, name) == 0)
			return &users->list[i];
	return NULL;
}

/* Takes NAME:ROLE, as it is between commas. 0, or -1: it is not of this form, or not the first. */
static int user_add(struct proxy_users *users, const char *text)
{
	const char *colon = strrchr(text, ':');
	unsigned role = colon ? role_parse(colon + 1) : 0;
	struct proxy_user *user = &users->list[users->n];

	if (!role || colon - text > PROXY_USER_MAX)
		return -1;
	snprintf(user->name, sizeof(user->name), "%.*s", (int)(colon - text), text);
	if (strcmp(user->name, EVERYBODY) == 0) {
		if (users->role_of_others)
			return -1;
		users->role_of_others = role;
		return 0;
	}
	if (!is_name(user->name) || user_find(users, user->name))
		return -1;
	user->role = role;
	users->n++;
	return 0;
}

static int users_parse(struct proxy_users *users, const char *text, char why[WHY_SIZE])
{
	char *copy = checked(strdup(text)), *rest = copy, *word;
	int rc = 0;

	while (rc == 0 && *text && (word = strsep(&rest, ",")) != NULL) {
		if (users->n < USERS_MAX)
			rc = user_add(users, word);
		else
			rc = -1;
		if (rc)
			snprintf(
				why, WHY_SIZE,
				"COUPON_ADMIN_USERS has \"%.80s\": allowed are %d pairs NAME:ROLE, "
				"joined by commas, each name once; a name has 1 to %d bytes of "
				"printable ASCII without spaces, and is * for all others; roles "
				"are monitor, campaign and admin",
				word, USERS_MAX, PROXY_USER_MAX);
	}
	free(copy);
	return rc;
}

/* 0, or -1 and a sentence. */
static int settings_read(struct proxy_users *users, const struct config *config, char why[WHY_SIZE])
{
	/* What has a meaning of its own, or is not for one person. */
	static const char *const taken[] = { "authorization", "cookie",     "host",
					     "origin",        "if-match",   "content-type",
					     "x-csrf-token",  "connection", "x-forwarded-for" };
	const char *header = config->admin_user_header, *at = header;
	char networks_why[NETWORKS_WHY_SIZE];

	if (!*header && !*config->admin_proxy_networks && !*config->admin_users)
		return 0;
	snprintf(why, WHY_SIZE,
		 "COUPON_ADMIN_USER_HEADER, COUPON_ADMIN_PROXY_NETWORKS and COUPON_ADMIN_USERS are "
		 "for each other: set all of them, or none");
	if (!*header || !*config->admin_proxy_networks || !*config->admin_users)
		return -1;
	while (isalnum((unsigned char)*at) || *at == '-')
		at++;
	snprintf(why, WHY_SIZE,
		 "COUPON_ADMIN_USER_HEADER is \"%.80s\": allowed is the name of a header, of "
		 "letters, digits and '-', that has no other meaning, as X-Forwarded-User",
		 header);
	if (*at)
		return -1;
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		if (strcasecmp(header, taken[i]) == 0)
			return -1;
	if (networks_parse(&users->networks, config->admin_proxy_networks, networks_why)) {
		snprintf(why, WHY_SIZE, "COUPON_ADMIN_PROXY_NETWORKS: %s", networks_why);
		return -1;
	}
	for (size_t i = 0; i < users->networks.n; i++)
		if (users->networks.list[i].bits == 0) {
			snprintf(why, WHY_SIZE,
				 "COUPON_ADMIN_PROXY_NETWORKS has every address: allowed are those "
				 "of proxies, because each can be any user");
			return -1;
		}
	users->header = header;
	return users_parse(users, config->admin_users, why);
}

void proxy_users_check(const struct config *config)
{
	struct proxy_users *users = checked(calloc(1, sizeof(*users)));
	char why[WHY_SIZE];

	if (settings_read(users, config, why))
		log_fatal("%s", why);
	free(users);
}

struct proxy_users *proxy_users_new(const struct config *config)
{
	struct proxy_users *users = checked(calloc(1, sizeof(*users)));
	char why[WHY_SIZE];

	users->header = "";
	check(settings_read(users, config, why) == 0); /* proxy_users_check() has looked */
	randombytes_buf(users->secret, sizeof(users->secret));
	return users;
}

void proxy_users_free(struct proxy_users *users)
{
	OPENSSL_cleanse(users, sizeof(*users));
	free(users);
}

const char *proxy_users_header(const struct proxy_users *users)
{
	return users->header;
}

enum proxy_user_answer proxy_users_find(const struct proxy_users *users, const char *name, size_t n,
					const struct sockaddr *from, unsigned *roles)
{
	const struct proxy_user *user;

	*roles = 0;
	if (!networks_have_address(&users->networks, from))
		return PROXY_USER_FROM_ELSEWHERE;
	if (n != 1 || !is_name(name))
		return PROXY_USER_WRONG;
	user = user_find(users, name);
	*roles = user ? user->role : users->role_of_others;
	return PROXY_USER_OK;
}

void proxy_users_token(const struct proxy_users *users, const char *name,
		       char token[PROXY_USER_TOKEN_SIZE])
{
	unsigned char digest[32];

	crypto_generichash(digest, sizeof(digest), (const unsigned char *)name, strlen(name),
			   users->secret, sizeof(users->secret));
	sodium_bin2base64(token, PROXY_USER_TOKEN_SIZE, digest, sizeof(digest),
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

/*
 * The address of Redis: redis://[user:password@]host[:port][/database], percent-encoding allowed in
 * user and password.
 */
#ifndef COMMON_REDIS_URL_H
#define COMMON_REDIS_URL_H

struct redis_url {
	char *host;
	int port;
	char *user;     /* NULL: none */
	char *password; /* NULL: none */
	int database;
};

/* 0, or -1 when it is not such a URL. */
int redis_url_parse(struct redis_url *url, const char *text);
/* The same for the setting REDIS_URL: a malformed one ends the process with a sentence. */
void redis_url_need(struct redis_url *url, const char *text);
void redis_url_fini(struct redis_url *url);

#endif

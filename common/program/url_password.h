/* A password that is kept apart from the URL of its store, put into it. */
#pragma once

enum url_kind { URL_REDIS, URL_RABBITMQ, URL_POSTGRES };

#define URL_PASSWORD_NO_USER (-1)

/*
 * Sets `*with` to the URL with the password (malloc), or to NULL if the URL has one, which has
 * precedence, or is malformed, which others say. 0, or URL_PASSWORD_NO_USER: the URL names no user,
 * and its store has none without a name.
 */
int url_password_add(enum url_kind kind, const char *url, const char *password, char **with);

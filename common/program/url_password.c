#include "common/program/url_password.h"

#include "common/check.h"

#include <ctype.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each byte but those that need no percent sign anywhere in a URL (malloc). */
static char *percent_encode(const char *text)
{
	char *encoded = checked(malloc(3 * strlen(text) + 1)), *at = encoded;

	for (; *text; text++)
		at += isalnum((unsigned char)*text) || strchr("-._~", *text)
			      ? sprintf(at, "%c", *text)
			      : sprintf(at, "%%%02X", (unsigned char)*text);
	*at = '\0';
	return encoded;
}

static int postgres_has_password(const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	int has = !options; /* malformed */

	for (const PQconninfoOption *o = options; o && o->keyword; o++)
		has |= strcmp(o->keyword, "password") == 0 && o->val;
	PQconninfoFree(options);
	return has;
}

/* A URI, or keyword=value pairs. */
static char *postgres_add(const char *url, const char *password)
{
	char *with, *quoted, *at;

	if (strncmp(url, "postgresql://", 13) == 0 || strncmp(url, "postgres://", 11) == 0) {
		quoted = percent_encode(password);
		check(asprintf(&with, "%s%spassword=%s", url,
			       !strchr(url, '?')             ? "?"
			       : url[strlen(url) - 1] == '?' ? ""
							     : "&",
			       quoted) > 0);
	} else {
		quoted = at = checked(malloc(2 * strlen(password) + 1));
		for (; *password; password++) {
			if (*password == '\'' || *password == '\\')
				*at++ = '\\';
			*at++ = *password;
		}
		*at = '\0';
		check(asprintf(&with, "%s password='%s'", url, quoted) > 0);
	}
	free(quoted);
	return with;
}

int url_password_add(enum url_kind kind, const char *url, const char *password, char **with)
{
	const char *authority = strstr(url, "://"), *at;
	size_t len;
	char *encoded;

	*with = NULL;
	if (kind == URL_POSTGRES) {
		if (!postgres_has_password(url))
			*with = postgres_add(url, password);
		return 0;
	}
	if (!authority)
		return 0;
	authority += 3;
	len = strcspn(authority, "/?#");
	at = memrchr(authority, '@', len);
	if (!at && kind == URL_RABBITMQ)
		return URL_PASSWORD_NO_USER;
	if (at && memchr(authority, ':', (size_t)(at - authority)))
		return 0;
	encoded = percent_encode(password);
	check(asprintf(with, "%.*s:%s%s%s", (int)((at ? at : authority) - url), url, encoded,
		       at ? "" : "@", at ? at : authority) > 0);
	free(encoded);
	return 0;
}

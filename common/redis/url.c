#include "common/redis/url.h"

#include "common/log/log.h"

#include <event2/http.h>
#include <stdlib.h>
#include <string.h>

static int userinfo_parse(struct redis_url *url, const char *userinfo)
{
	const char *colon = strchr(userinfo, ':');
	char *user;

	if (!colon)
		return -1;
	user = strndup(userinfo, (size_t)(colon - userinfo));
	if (!user)
		return -1;
	url->user = *user ? evhttp_uridecode(user, 0, NULL) : NULL;
	url->password = evhttp_uridecode(colon + 1, 0, NULL);
	free(user);
	return url->password ? 0 : -1;
}

static int database_parse(struct redis_url *url, const char *path)
{
	char *end;
	long number;

	if (!path || strcmp(path, "") == 0 || strcmp(path, "/") == 0)
		return 0;
	if (path[1] < '0' || path[1] > '9')
		return -1;
	number = strtol(path + 1, &end, 10);
	if (*end || number > 1000000)
		return -1;
	url->database = (int)number;
	return 0;
}

/* A name or an address; an IPv6 address is in brackets, which are not part of it. */
static int host_parse(struct redis_url *url, const char *host)
{
	size_t len = host ? strlen(host) : 0;

	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	if (len == 0)
		return -1;
	url->host = strndup(host, len);
	return url->host ? 0 : -1;
}

int redis_url_parse(struct redis_url *url, const char *text)
{
	struct evhttp_uri *uri = evhttp_uri_parse(text);
	int rc = -1;

	memset(url, 0, sizeof(*url));
	if (!uri)
		return -1;
	if (!evhttp_uri_get_scheme(uri) || strcmp(evhttp_uri_get_scheme(uri), "redis") != 0)
		goto out;
	if (host_parse(url, evhttp_uri_get_host(uri)))
		goto out;
	url->port = evhttp_uri_get_port(uri) < 0 ? 6379 : evhttp_uri_get_port(uri);
	if (url->port == 0)
		goto out;
	if (evhttp_uri_get_userinfo(uri) && userinfo_parse(url, evhttp_uri_get_userinfo(uri)))
		goto out;
	rc = database_parse(url, evhttp_uri_get_path(uri));
out:
	evhttp_uri_free(uri);
	if (rc)
		redis_url_fini(url);
	return rc;
}

void redis_url_need(struct redis_url *url, const char *text)
{
	/* Without the text: it may contain a password. */
	if (redis_url_parse(url, text))
		log_fatal("REDIS_URL is malformed: allowed is "
			  "redis://[user:password@]host[:port][/database]");
}

void redis_url_fini(struct redis_url *url)
{
	free(url->host);
	free(url->user);
	free(url->password);
	memset(url, 0, sizeof(*url));
}

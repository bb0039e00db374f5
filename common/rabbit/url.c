#include "common/rabbit/url.h"

#include "common/check.h"
#include "common/message/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct kind {
	const char *setting, *form;
	int port, tls_port; /* where the URL has none */
};

static const struct kind of_amqp = { "AMQP_URL", RABBIT_URL_FORM, 5672, 5671 };
static const struct kind of_api = { "COUPON_RABBITMQ_API", RABBIT_API_FORM, 15672, 15671 };

/* Where the hosts begin, after user and password, and where they end. */
static const char *hosts_find(const char *text, const char **end)
{
	const char *scheme = strstr(text, "://"), *authority = scheme ? scheme + 3 : text, *at;

	*end = authority + strcspn(authority, "/");
	at = memchr(authority, '@', (size_t)(*end - authority));
	return at ? at + 1 : authority;
}

static int has_port(const char *host, size_t len)
{
	const char *bracket = memrchr(host, ']', len), *name = bracket ? bracket : host;

	return memchr(name, ':', len - (size_t)(name - host)) != NULL;
}

/*
 * The URL with one of its hosts, as the library parses it; but for user, password and vhost, of
 * which it takes no bytes from %80 on.
 */
static int host_add(struct rabbit_url *url, const struct kind *kind, const char *text,
		    const char *host, size_t len)
{
	struct rabbit_host *added = &url->hosts[url->hosts_n++];
	const char *scheme = strstr(text, "://"), *colon = memchr(host, ':', len);

	if (!scheme || memchr(host, '@', len))
		return -1;
	if (*host != '[' && colon && memchr(colon + 1, ':', (size_t)(host + len - colon - 1)))
		return -1; /* an IPv6 address without brackets */
	check(asprintf(&added->text, "%.*s%.*s", (int)(scheme + 3 - text), text, (int)len, host) >=
	      0);
	if (amqp_parse_url(added->text, &added->info) != AMQP_STATUS_OK)
		return -1;
	if (url->user)
		added->info.user = url->user;
	if (url->password)
		added->info.password = url->password;
	if (url->vhost)
		added->info.vhost = url->vhost;
	if (!has_port(host, len))
		added->info.port = added->info.ssl ? kind->tls_port : kind->port;
	return 0;
}

/* What is before the hosts, and behind them: "user:password@" and "/vhost". 0, or -1. */
static int parts_decode(struct rabbit_url *url, const char *text, const char *hosts,
			const char *end)
{
	const char *scheme = strstr(text, "://"), *login = scheme ? scheme + 3 : text, *colon;

	if (hosts > login) {
		size_t len = (size_t)(hosts - 1 - login);

		colon = memchr(login, ':', len);
		url->user = percent_decode(login, colon ? (size_t)(colon - login) : len);
		url->password = colon ? percent_decode(colon + 1, (size_t)(hosts - 2 - colon))
				      : NULL;
		if (!url->user || (colon && !url->password) ||
		    (colon && memchr(colon + 1, ':', (size_t)(hosts - 2 - colon))))
			return -1;
	}
	if (*end != '/' || !end[1])
		return 0;
	url->vhost = strpbrk(end + 1, "/@") ? NULL : percent_decode(end + 1, strlen(end + 1));
	return url->vhost ? 0 : -1;
}

static int parse(struct rabbit_url *url, const struct kind *kind, const char *text,
		 char error[RABBIT_ERROR_SIZE])
{
	const char *end, *hosts = hosts_find(text, &end), *host = hosts, *next;
	size_t query = strcspn(text, "?#");
	int rc = 0;

	*url = (struct rabbit_url){ .hosts_n = 0 };
	if (text[query] && !strchr(text + query, '@')) { /* else it is of a password */
		snprintf(error, RABBIT_ERROR_SIZE,
			 "%s has \"%c%.*s\": nothing is allowed behind the vhost", kind->setting,
			 text[query], (int)strcspn(text + query + 1, "=&#@"), text + query + 1);
		return -1;
	}
	if (text[query] || parts_decode(url, text, hosts, end)) {
		snprintf(error, RABBIT_ERROR_SIZE,
			 "%s is not of the form %s: user, password and vhost have %% only before "
			 "two hexadecimal digits, and no : / @ ? #",
			 kind->setting, kind->form);
		return -1;
	}
	do {
		size_t len = strcspn(host, ",/");

		if (url->hosts_n == RABBIT_HOSTS_MAX) {
			snprintf(error, RABBIT_ERROR_SIZE, "%s has more than %d hosts",
				 kind->setting, RABBIT_HOSTS_MAX);
			return -1;
		}
		next = host + len;
		/* The library takes an empty host for localhost: for the only one as ever. */
		if (len == 0 && (url->hosts_n > 0 || next != end)) {
			url->hosts_n++;
			rc = -1;
		} else {
			rc = host_add(url, kind, text, host, len);
		}
		host = next + 1;
	} while (next != end && rc == 0);
	if (rc && url->hosts_n == 1 && next == end)
		snprintf(error, RABBIT_ERROR_SIZE, "%s is not of the form %s", kind->setting,
			 kind->form);
	else if (rc)
		snprintf(error, RABBIT_ERROR_SIZE,
			 "host %zu of %s is not host or host:port, or the URL is not of the form "
			 "%s",
			 url->hosts_n, kind->setting, kind->form);
	return rc;
}

int rabbit_url_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE])
{
	return parse(url, &of_amqp, text, error);
}

/* The library knows other schemes, which have the same parts. A path means nothing. */
int rabbit_api_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE])
{
	int is_tls = strncmp(text, "https://", 8) == 0, rc;
	const char *end;
	char *mapped;

	*url = (struct rabbit_url){ .hosts_n = 0 };
	hosts_find(text, &end);
	if ((!is_tls && strncmp(text, "http://", 7) != 0) || strcmp(end, "/") > 0) {
		snprintf(error, RABBIT_ERROR_SIZE, "%s is not of the form %s", of_api.setting,
			 of_api.form);
		return -1;
	}
	check(asprintf(&mapped, "amqp%s://%s", is_tls ? "s" : "", text + (is_tls ? 8 : 7)) > 0);
	rc = parse(url, &of_api, mapped, error);
	free(mapped);
	return rc;
}

void rabbit_url_fini(struct rabbit_url *url)
{
	for (size_t i = 0; i < url->hosts_n; i++)
		free(url->hosts[i].text);
	free(url->user);
	free(url->password);
	free(url->vhost);
	*url = (struct rabbit_url){ .hosts_n = 0 };
}

void rabbit_url_shuffle(struct rabbit_url *url)
{
	for (size_t n = url->hosts_n; n > 1; n--) {
		struct rabbit_host last = url->hosts[n - 1];
		uint32_t random;

		check(getrandom(&random, sizeof(random), 0) == sizeof(random));
		url->hosts[n - 1] = url->hosts[random % n];
		url->hosts[random % n] = last;
	}
}

char *rabbit_host_text(const struct rabbit_host *host, char out[RABBIT_HOST_SIZE])
{
	int is_ipv6 = strchr(host->info.host, ':') != NULL;

	snprintf(out, RABBIT_HOST_SIZE, is_ipv6 ? "[%.253s]:%d" : "%.253s:%d", host->info.host,
		 host->info.port);
	return out;
}

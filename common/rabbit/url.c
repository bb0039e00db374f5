#include "common/rabbit/url.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NOT_OF_FORM "AMQP_URL is not of the form " RABBIT_URL_FORM

/* Where the hosts begin, after user and password, and where they end. */
static const char *hosts_find(const char *text, const char **end)
{
	const char *scheme = strstr(text, "://"), *authority = scheme ? scheme + 3 : text, *at;

	*end = authority + strcspn(authority, "/");
	at = memchr(authority, '@', (size_t)(*end - authority));
	return at ? at + 1 : authority;
}

/* The URL with one of its hosts, as the library parses it. */
static int host_add(struct rabbit_url *url, const char *text, const char *hosts, const char *host,
		    size_t len, const char *end)
{
	struct rabbit_host *added = &url->hosts[url->hosts_n];

	check(asprintf(&added->text, "%.*s%.*s%s", (int)(hosts - text), text, (int)len, host,
		       end) >= 0);
	url->hosts_n++;
	return amqp_parse_url(added->text, &added->info) == AMQP_STATUS_OK ? 0 : -1;
}

int rabbit_url_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE])
{
	const char *end, *hosts = hosts_find(text, &end), *host = hosts, *next;

	*url = (struct rabbit_url){ .hosts_n = 0 };
	for (;; host = next + 1) {
		size_t len = strcspn(host, ",/"), n = url->hosts_n + 1;

		next = host + len;
		if (n > RABBIT_HOSTS_MAX) {
			snprintf(error, RABBIT_ERROR_SIZE,
				 "AMQP_URL has more than %d hosts, which is the most",
				 RABBIT_HOSTS_MAX);
			return -1;
		}
		/* The library takes an empty one for localhost. */
		if ((len > 0 || (n == 1 && next == end)) &&
		    host_add(url, text, hosts, host, len, end) == 0) {
			if (next == end)
				return 0;
			continue;
		}
		if (n == 1 && next == end)
			snprintf(error, RABBIT_ERROR_SIZE, NOT_OF_FORM);
		else
			snprintf(error, RABBIT_ERROR_SIZE,
				 "host %zu of AMQP_URL is not a host or host:port, or the URL is "
				 "not of the form " RABBIT_URL_FORM,
				 n);
		return -1;
	}
}

void rabbit_url_fini(struct rabbit_url *url)
{
	for (size_t i = 0; i < url->hosts_n; i++)
		free(url->hosts[i].text);
	url->hosts_n = 0;
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

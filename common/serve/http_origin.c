#include "common/serve/http_origin.h"

#include "common/log/log.h"
#include "common/message/number.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 253
#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define DIGITS "0123456789"

void http_hosts_check(const char *names)
{
	const char *name = names;

	while (*names) {
		size_t len = strspn(name, NAME_BYTES);

		if (len == 0 || len > NAME_MAX_BYTES || (name[len] && name[len] != ','))
			log_fatal("COUPON_HTTP_HOSTS is \"%s\": allowed are host names without "
				  "scheme and port, joined by commas",
				  names);
		if (!name[len])
			return;
		name += len + 1;
	}
}

/* The length of `host` without a port; 0: it is none. */
static size_t name_length(const char *host)
{
	size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	if (len > strlen(host))
		return 0;
	if (host[len] == ':')
		return strspn(host + len + 1, DIGITS) == strlen(host + len + 1) ? len : 0;
	return host[len] == '\0' ? len : 0;
}

static int is_address(const char *host, size_t len)
{
	unsigned char address[sizeof(struct in6_addr)];
	char text[INET6_ADDRSTRLEN];
	int is_six = len > 1 && *host == '[' && host[len - 1] == ']';

	len -= is_six ? 2 : 0;
	if (len >= sizeof(text))
		return 0;
	memcpy(text, host + is_six, len);
	text[len] = '\0';
	return inet_pton(is_six ? AF_INET6 : AF_INET, text, address) == 1;
}

static int is_named(const char *names, const char *host, size_t len)
{
	for (size_t n; *names; names += n + (names[n] == ',')) {
		n = strcspn(names, ",");
		if (n == len && strncasecmp(names, host, len) == 0)
			return 1;
	}
	return 0;
}

int http_hosts_has(const char *names, const char *host)
{
	size_t len = name_length(host);

	return len > 0 && (is_address(host, len) || is_named("localhost", host, len) ||
			   is_named(names, host, len));
}

int http_hosts_has_origin(const char *names, const char *origin, const char *host)
{
	const char *end = strstr(origin, "://");

	if (!end)
		return 0; /* "null": of a page that has none, for instance a file */
	origin = end + strlen("://");
	return strcasecmp(origin, host) == 0 || is_named(names, origin, name_length(origin));
}

#define ORIGIN_NAME_BYTES "abcdefghijklmnopqrstuvwxyz0123456789.-_"
#define ORIGIN_ADDRESS_BYTES "[0123456789abcdef:.]"
#define PORT_MAX 65535

/*
 * An origin as a browser writes it: with a port only if that is not the port of the scheme.
 */
static int is_origin(const char *origin, size_t len)
{
	static const char plain[] = "http://", tls[] = "https://";
	int is_plain = len > strlen(plain) && memcmp(origin, plain, strlen(plain)) == 0;
	int is_tls = len > strlen(tls) && memcmp(origin, tls, strlen(tls)) == 0;
	const char *host = origin + (is_plain ? strlen(plain) : strlen(tls)), *end = origin + len;
	int64_t port;
	size_t n;

	if (!is_plain && !is_tls)
		return 0;
	n = *host == '[' ? strcspn(host, "],") + 1 : strspn(host, ORIGIN_NAME_BYTES);
	if (n == 0 || n > NAME_MAX_BYTES || n > (size_t)(end - host))
		return 0;
	if (*host == '[' && (strspn(host, ORIGIN_ADDRESS_BYTES) < n || !is_address(host, n)))
		return 0;
	host += n;
	if (host == end)
		return 1;
	return *host == ':' && id_parse(host + 1, (size_t)(end - host) - 1, &port) == 0 &&
	       port <= PORT_MAX && port != (is_plain ? 80 : 443);
}

void http_origins_check(const char *origins)
{
	for (const char *origin = origins; *origins; origin++) {
		size_t len = strcspn(origin, ",");

		if (!is_origin(origin, len))
			log_fatal(
				"COUPON_HTTP_ORIGINS is \"%s\": allowed are origins as browsers "
				"write them, joined by commas: http:// or https://, the host in "
				"lower case, and :port unless it is the default port of the scheme",
				origins);
		origin += len;
		if (!*origin)
			return;
	}
}

const char *http_origins_find(const char *origins, const char *origin, size_t len)
{
	for (size_t n; *origins; origins += n + (origins[n] == ',')) {
		n = strcspn(origins, ",");
		if (n == len && memcmp(origins, origin, len) == 0)
			return origins;
	}
	return NULL;
}

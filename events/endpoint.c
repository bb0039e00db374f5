#include "events/endpoint.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/trust.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below are mail, remote shells and the like, which must not get requests by mistake. */
#define PORT_LEAST 1024

enum url_part { SCHEME, HOST, PORT, USER, PASSWORD, FRAGMENT, PARTS };

void rules_read(struct rules *rules, const struct config *config)
{
	const char *schemes = config->webhook_schemes;
	char why[NETWORKS_WHY_SIZE], error[TRUST_ERROR_SIZE];

	rules->is_http_allowed = strcmp(schemes, "https,http") == 0;
	if (!rules->is_http_allowed && strcmp(schemes, "https") != 0)
		log_fatal("COUPON_WEBHOOK_SCHEMES is \"%s\": allowed are https and https,http",
			  schemes);
	if (networks_parse(&rules->networks, config->webhook_networks, why))
		log_fatal("COUPON_WEBHOOK_NETWORKS is \"%s\": %s", config->webhook_networks, why);
	trust_authorities_set(TRUST_WEBHOOK, config->webhook_ca);
	if (*config->webhook_ca && trust_check(TRUST_WEBHOOK, error))
		log_fatal("%s", error);
	rules->timeout_ms = config->webhook_timeout_ms;
}

/* The only IPv6 range that is assigned to the Internet. */
#define GLOBAL "2000::/3"
/* Through a gateway this is the IPv4 address in its last four bytes. */
#define NAT64 "64:ff9b::/96"

/* From the registries of special-purpose addresses of IANA, and one of a cloud. */
static const struct {
	const char *network;
	const char *kind;
} special[] = {
	{ "0.0.0.0/8", "this network" },
	{ "10.0.0.0/8", "private" },
	{ "100.64.0.0/10", "of a carrier's NAT" },
	{ "127.0.0.0/8", "loopback" },
	{ "168.63.129.16/32", "of a cloud's own services" },
	{ "169.254.0.0/16", "link-local" },
	{ "172.16.0.0/12", "private" },
	{ "192.0.0.0/24", "reserved" },
	{ "192.0.2.0/24", "for documentation" },
	{ "192.88.99.0/24", "reserved" },
	{ "192.168.0.0/16", "private" },
	{ "198.18.0.0/15", "for benchmarks" },
	{ "198.51.100.0/24", "for documentation" },
	{ "203.0.113.0/24", "for documentation" },
	{ "224.0.0.0/4", "multicast" },
	{ "240.0.0.0/4", "reserved" },
	{ "::/128", "unspecified" },
	{ "::1/128", "loopback" },
	{ "::ffff:0:0/96", "IPv4 written as IPv6" },
	{ "2001::/23", "reserved" },
	{ "2001:db8::/32", "for documentation" },
	{ "2002::/16", "6to4" },
	{ "3fff::/20", "for documentation" },
	{ "fc00::/7", "private" },
	{ "fe80::/10", "link-local" },
	{ "fec0::/10", "site-local" },
	{ "ff00::/8", "multicast" },
};

static int is_in(const char *network, const struct network *address)
{
	struct network parsed;

	return network_parse(&parsed, network) == 0 && network_has(&parsed, address);
}

/* NULL: an address of the Internet. */
static const char *kind_of(const struct network *address)
{
	struct network inner = { .family = AF_INET, .bits = 32 };

	if (is_in(NAT64, address)) {
		memcpy(inner.bytes, address->bytes + 12, 4);
		address = &inner;
	}
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (is_in(special[i].network, address))
			return special[i].kind;
	return address->family == AF_INET6 && !is_in(GLOBAL, address) ? "reserved" : NULL;
}

const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address)
{
	struct network one;

	if (network_of_address(&one, address))
		return "not of IP";
	return networks_have(allowed, &one) ? NULL : kind_of(&one);
}

const char *networks_refusal_text(const struct networks *allowed, const char *text)
{
	struct network one;

	if (network_of_text(&one, text) || networks_have(allowed, &one))
		return NULL;
	return kind_of(&one);
}

/* Returns -1. */
__attribute__((format(printf, 2, 3))) static int refuse(char why[URL_WHY_SIZE], const char *format,
							...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(why, URL_WHY_SIZE, format, list);
	va_end(list);
	return -1;
}

/* 0, or -1. `parts`: NULL where the URL has none. */
static int parts_judge(char *const parts[], const struct rules *rules, char why[URL_WHY_SIZE])
{
	const char *scheme = parts[SCHEME] ? parts[SCHEME] : "", *host = parts[HOST];
	long port = parts[PORT] ? strtol(parts[PORT], NULL, 10) : 0;
	char address[256] = "";
	const char *kind;

	if (parts[USER] || parts[PASSWORD])
		return refuse(why, "it has a user or a password: neither is allowed");
	if (parts[FRAGMENT])
		return refuse(why, "it has a fragment (#), which is not allowed");
	if (strcmp(scheme, "https") != 0 &&
	    !(rules->is_http_allowed && strcmp(scheme, "http") == 0))
		return refuse(why, "the scheme is \"%.20s\": allowed is %s", scheme,
			      rules->is_http_allowed
				      ? "https or http"
				      : "https; http with COUPON_WEBHOOK_SCHEMES=https,http");
	if (port != 80 && port != 443 && port < PORT_LEAST)
		return refuse(why, "the port is %ld: allowed are 443, 80 and %d to 65535", port,
			      PORT_LEAST);
	/* A host that is an address, in whatever form of digits. */
	if (host && *host == '[')
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(host + 1, "]"), host + 1);
	else if (host)
		snprintf(address, sizeof(address), "%s", host);
	kind = networks_refusal_text(&rules->networks, address);
	return kind ? refuse(why,
			     "the address %.64s is %s: allowed are addresses of the Internet, and "
			     "those in COUPON_WEBHOOK_NETWORKS",
			     address, kind)
		    : 0;
}

int url_check(const char *url, const struct rules *rules, char why[URL_WHY_SIZE])
{
	static const CURLUPart names[PARTS] = {
		[SCHEME] = CURLUPART_SCHEME,     [HOST] = CURLUPART_HOST,
		[PORT] = CURLUPART_PORT,         [USER] = CURLUPART_USER,
		[PASSWORD] = CURLUPART_PASSWORD, [FRAGMENT] = CURLUPART_FRAGMENT,
	};
	const char *end = strchr(url, ':'); /* of the scheme */
	char *parts[PARTS] = { NULL };
	CURLU *parsed;
	int rc;

	if (strlen(url) > URL_BYTES_MAX)
		return refuse(why, "it has %zu bytes: allowed are %d", strlen(url), URL_BYTES_MAX);
	for (const char *p = url; *p; p++)
		if (*p <= ' ' || *p >= 0x7f || *p == '\\')
			return refuse(why,
				      "allowed is printable ASCII without spaces and backslashes");
	parsed = checked(curl_url());
	/* Libcurl takes a host after one slash or more than two, too. */
	if (!end || strncmp(end, "://", 3) != 0 || end[3] == '/' ||
	    curl_url_set(parsed, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
		rc = refuse(why, "allowed is a URL as https://host/path");
	} else {
		for (int i = 0; i < PARTS; i++)
			curl_url_get(parsed, names[i], &parts[i],
				     i == PORT ? CURLU_DEFAULT_PORT : 0);
		rc = parts_judge(parts, rules, why);
		for (int i = 0; i < PARTS; i++)
			curl_free(parts[i]);
	}
	curl_url_cleanup(parsed);
	return rc;
}

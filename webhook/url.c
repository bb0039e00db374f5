#include "webhook/url.h"

#include "common/check.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below are mail, remote shells and the like, which must not get requests by mistake. */
#define PORT_LEAST 1024

static int is_plain(const char *url)
{
	for (const char *p = url; *p; p++)
		if (*p <= ' ' || *p >= 0x7f || *p == '\\')
			return 0;
	return 1;
}

/* A part of the URL, to be freed with curl_free(); NULL: it has none. */
static char *part_of(CURLU *parsed, CURLUPart part, unsigned flags)
{
	char *text = NULL;

	return curl_url_get(parsed, part, &text, flags) == CURLUE_OK ? text : NULL;
}

static int has_part(CURLU *parsed, CURLUPart part)
{
	char *text = part_of(parsed, part, 0);

	curl_free(text);
	return text != NULL;
}

static int scheme_check(CURLU *parsed, const struct rules *rules, char why[URL_WHY_SIZE])
{
	char *scheme = part_of(parsed, CURLUPART_SCHEME, 0);
	int is_allowed = scheme && (strcmp(scheme, "https") == 0 ||
				    (rules->is_http_allowed && strcmp(scheme, "http") == 0));

	if (!is_allowed)
		snprintf(why, URL_WHY_SIZE, "the scheme is \"%.20s\": allowed is %s",
			 scheme ? scheme : "",
			 rules->is_http_allowed
				 ? "https or http"
				 : "https; http with COUPON_WEBHOOK_SCHEMES=https,http");
	curl_free(scheme);
	return is_allowed ? 0 : -1;
}

static int port_check(CURLU *parsed, char why[URL_WHY_SIZE])
{
	char *text = part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
	long port = text ? strtol(text, NULL, 10) : 0;
	int is_allowed = port == 80 || port == 443 || port >= PORT_LEAST;

	if (!is_allowed)
		snprintf(why, URL_WHY_SIZE, "the port is %ld: allowed are 443, 80 and %d to 65535",
			 port, PORT_LEAST);
	curl_free(text);
	return is_allowed ? 0 : -1;
}

/* A host that is an address, in whatever form of digits. */
static int host_check(CURLU *parsed, const struct rules *rules, char why[URL_WHY_SIZE])
{
	char *host = part_of(parsed, CURLUPART_HOST, 0), address[256] = "";
	const char *kind;

	if (host && *host == '[')
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(host + 1, "]"), host + 1);
	else if (host)
		snprintf(address, sizeof(address), "%s", host);
	curl_free(host);
	kind = networks_refusal_text(&rules->networks, address);
	if (!kind)
		return 0;
	snprintf(why, URL_WHY_SIZE,
		 "the address %.64s is %s: allowed are addresses of the Internet, and those in "
		 "COUPON_WEBHOOK_NETWORKS",
		 address, kind);
	return -1;
}

static int parts_check(CURLU *parsed, const struct rules *rules, char why[URL_WHY_SIZE])
{
	if (has_part(parsed, CURLUPART_USER) || has_part(parsed, CURLUPART_PASSWORD)) {
		snprintf(why, URL_WHY_SIZE, "it has a user or a password: allowed is none");
		return -1;
	}
	if (has_part(parsed, CURLUPART_FRAGMENT)) {
		snprintf(why, URL_WHY_SIZE, "it has a fragment (#): allowed is none");
		return -1;
	}
	return scheme_check(parsed, rules, why) || port_check(parsed, why) ||
			       host_check(parsed, rules, why)
		       ? -1
		       : 0;
}

/* 0, or -1: it is none. Libcurl takes a host after one slash or more than two, too. */
static int url_parse(CURLU *parsed, const char *url)
{
	const char *end = strchr(url, ':'); /* of the scheme */

	if (!end || strncmp(end, "://", 3) != 0 || end[3] == '/')
		return -1;
	if (curl_url_set(parsed, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
		return -1;
	return 0;
}

int url_check(const char *url, const struct rules *rules, char why[URL_WHY_SIZE])
{
	CURLU *parsed;
	int rc = -1;

	if (strlen(url) > URL_BYTES_MAX) {
		snprintf(why, URL_WHY_SIZE, "it has %zu bytes: allowed are %d", strlen(url),
			 URL_BYTES_MAX);
		return -1;
	}
	if (!is_plain(url)) {
		snprintf(why, URL_WHY_SIZE,
			 "allowed is printable ASCII without spaces and backslashes");
		return -1;
	}
	parsed = curl_url();
	check(parsed != NULL);
	if (url_parse(parsed, url))
		snprintf(why, URL_WHY_SIZE, "allowed is a URL as https://host/path");
	else
		rc = parts_check(parsed, rules, why);
	curl_url_cleanup(parsed);
	return rc;
}

/*
 * One GET by libcurl of a URL that a setting names: nothing in the environment counts, no redirect
 * is followed, and a certificate is verified by common/trust.h. One thread uses it.
 */
#pragma once

#include "common/check.h"
#include "common/program/config.h"
#include "common/trust.h"

#include <curl/curl.h>
#include <stddef.h>

#define FETCH_BYTES_MAX 1048576 /* of an answer: more is an error */

struct fetch {
	CURL *curl; /* for options beside these, and to be performed */
	enum trust_store store;
	const char *host;
	const struct config *config; /* its COUPON_TLS_CERT is shown where one is asked for */
	char *text;                  /* what has come, with a NUL behind; NULL: nothing */
	size_t len;
	char why[CURL_ERROR_SIZE], trust[TRUST_ERROR_SIZE];
};

#define FETCH_SET(fetch, option, value) \
	check(curl_easy_setopt((fetch)->curl, (option), (value)) == CURLE_OK)

/*
 * The struct must stay where it is. `host`, which the URL has, is lent. `config` may be set
 * afterwards; NULL: no certificate is shown. To be freed by fetch_fini().
 */
void fetch_init(struct fetch *fetch, enum trust_store store, const char *host, const char *url,
		long timeout_ms);
void fetch_fini(struct fetch *fetch);

void fetch_begin(struct fetch *fetch); /* before it is performed again */
/* Why it has failed with this code, which is no CURLE_OK. Lent. */
const char *fetch_why(const struct fetch *fetch, CURLcode code);

/*
 * One signed POST over libcurl, which the caller performs: with curl_easy_perform(), or among
 * others with the multi interface. No proxy, no redirect, no cookie, no .netrc; the address is
 * checked when it is connected to, so that it does not matter what a name has meant before.
 */
#ifndef WEBHOOK_POST_H
#define WEBHOOK_POST_H

#include "webhook/rules.h"

#include <curl/curl.h>
#include <stdint.h>

#define POST_WHY_SIZE 256

/* Texts are copied. */
struct post_request {
	const char *url;
	const char *message; /* its id */
	const char *secrets; /* separated by spaces; with each it is signed */
	const char *body;
};

struct post_result {
	int status;            /* of HTTP; 0: there was no answer */
	int64_t retry_after_s; /* as the answer asks; 0: it does not */
	int64_t duration_ms;
	char why[POST_WHY_SIZE]; /* printable ASCII; "": the answer was read to its end */
};

struct post;

/*
 * `rules` must outlive it. NULL: it cannot be sent, as `result` says, because of the URL, whoever
 * stored it, or because of the secrets.
 */
struct post *post_new(const struct rules *rules, const struct post_request *request,
		      struct post_result *result);
CURL *post_handle(struct post *post); /* its CURLOPT_PRIVATE is free */
/* After it was performed, with this code. */
void post_result(const struct post *post, CURLcode code, struct post_result *result);
/* The handle must not be in a multi handle any more. NULL is allowed. */
void post_free(struct post *post);

#endif

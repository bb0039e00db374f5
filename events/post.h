/*
 * One signed POST over libcurl, and what follows from its result. The caller performs it, with
 * curl_easy_perform() or among others with the multi interface. No proxy, no redirect, no cookie,
 * no .netrc; the address is checked when it is connected to, so that it does not matter what a name
 * has meant before.
 */
#pragma once

#include "events/endpoint.h"

#include <curl/curl.h>
#include <stdint.h>

/*
 * Secrets of webhooks and signatures of requests, by Standard Webhooks: a secret is "whsec_" and 24
 * to 64 bytes in base64; the signature is the HMAC-SHA-256 of a request's id, time and body.
 */

#define SECRET_PREFIX "whsec_"
#define SECRET_BYTES_LEAST 24
#define SECRET_BYTES_MOST 64
#define SECRET_TEXT_SIZE 96 /* enough for the longest, with its NUL */
#define SECRET_FINGERPRINT_SIZE 17

struct secret {
	unsigned char bytes[SECRET_BYTES_MOST];
	size_t n;
};

/* A text of `len` bytes. 0, or -1: it is no secret. */
int secret_parse(struct secret *secret, const char *text, size_t len);

/* Writes a new one of 32 random bytes. */
void secret_make(char text[SECRET_TEXT_SIZE]);

/*
 * Sixteen digits by which two secrets can be compared; nothing follows from them about the secret.
 * Returns `out`.
 */
char *secret_fingerprint(const struct secret *secret, char out[SECRET_FINGERPRINT_SIZE]);

#define SIGNATURES_MAX 4
#define SIGNATURES_SIZE (SIGNATURES_MAX * 48 + 1) /* "v1,", 44 characters, a space or NUL each */

/*
 * Writes the header webhook-signature of a message, by its id and a time in seconds since 1970: one
 * signature for each of the secrets, which are separated by spaces. 0, or -1: one is no secret,
 * there is none, or there are more than SIGNATURES_MAX.
 */
int signature_write(const char *message, int64_t at_s, const char *body, const char *secrets,
		    char out[SIGNATURES_SIZE]);

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

/* How an attempt has ended. */
enum post_end {
	POST_DELIVERED, /* 2xx */
	POST_RETRY,     /* anything else: it is tried again */
	POST_FAILED,    /* as before, but it was the last attempt */
	POST_GONE,      /* 410: the webhook is disabled */
	POST_RELEASED   /* it was not tried to its end */
};

#define RETRY_AFTER_S_MAX 3600 /* an endpoint cannot ask for a longer pause */

/* The name that webhook_finish() in PostgreSQL knows. */
const char *post_end_name(enum post_end end);

/* `attempts`: with this one; of `attempts_most`. */
enum post_end post_end_of(const struct post_result *result, int64_t attempts,
			  int64_t attempts_most);

/* Whether what a request has got counts as delivered. */
int post_is_delivered(const struct post_result *result);

/* The pause that the endpoint asks for, within the bound; 0: none. Only 429 and 503 can ask. */
int64_t post_pause_ms(const struct post_result *result);

/*
 * The delay after the n-th failed attempt, from 1 on: `first_ms` and then in proportion 5 s, 5 min,
 * 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h, 24 h …; longer by up to a quarter, as `random` says.
 */
int64_t post_retry_ms(int64_t n, int64_t first_ms, uint32_t random);

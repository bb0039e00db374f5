/* The signature of a request by Standard Webhooks: HMAC-SHA-256 of its id, time and body. */
#ifndef WEBHOOK_SIGNATURE_H
#define WEBHOOK_SIGNATURE_H

#include <stdint.h>

#define SIGNATURES_MAX 4
#define SIGNATURES_SIZE (SIGNATURES_MAX * 48 + 1) /* "v1,", 44 characters, a space or NUL each */

struct signed_message {
	const char *id;
	int64_t at_s; /* since 1970 */
	const char *body;
};

/*
 * Writes the header webhook-signature: one signature for each of the secrets, which are separated
 * by spaces. 0, or -1: one is no secret, there is none, or there are more than SIGNATURES_MAX.
 */
int signature_write(const struct signed_message *message, const char *secrets,
		    char out[SIGNATURES_SIZE]);

#endif

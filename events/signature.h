/*
 * Secrets of webhooks and signatures of requests, by Standard Webhooks: a secret is "whsec_" and 24
 * to 64 bytes in base64; the signature is the HMAC-SHA-256 of a request's id, time and body.
 */
#ifndef EVENTS_SIGNATURE_H
#define EVENTS_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

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

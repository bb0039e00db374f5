/* Secrets of webhooks, as Standard Webhooks writes them: "whsec_" and 24 to 64 bytes in base64. */
#ifndef WEBHOOK_SECRET_H
#define WEBHOOK_SECRET_H

#include <stddef.h>

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

#endif

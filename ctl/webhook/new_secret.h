/* The secret of a webhook: one that is made, or that of --secret-file. */
#ifndef CTL_WEBHOOK_NEW_SECRET_H
#define CTL_WEBHOOK_NEW_SECRET_H

#include "ctl/args.h"
#include "ctl/postgres.h"
#include "events/signature.h"

#define SECRET_FILE_OPTION                                                                     \
	OPTION("secret-file", "FILE",                                                          \
	       "a file whose first line is the secret, " SECRET_PREFIX " and 24 to 64 bytes\n" \
	       "      in base64; default: a new one")

struct new_secret {
	char text[SECRET_TEXT_SIZE];
	int is_made; /* then it is to be printed, once */
};

/* A file that cannot be read, or has no secret, ends the process. */
void new_secret_get(struct new_secret *secret, const struct args *args);

/*
 * Stores it; those before stay valid for `overlap_s`. 0, or -1: the webhook is absent or has too
 * many.
 */
int new_secret_store(struct db *db, int64_t webhook, const struct new_secret *secret,
		     int64_t overlap_s);

/* Prints the id, and a secret that was made. */
void new_secret_print(int64_t webhook, const struct new_secret *secret, int as_json);

#endif

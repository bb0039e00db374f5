/*
 * What all commands of codes share: the spaces and sets of generated codes in PostgreSQL, and the
 * keys in the file that COUPON_CODE_KEYS names. A file that cannot be used ends the process.
 */
#pragma once

#include "codes/book.h"
#include "ctl/store.h"
#include "ctl/times.h"

struct stored {
	struct code_book *book; /* to be freed with code_book_free() */
	int64_t unread;         /* codes whose key the file lacks */
	int unread_key;         /* the version of one of these keys */
};

/* Reads all spaces and sets, and the keys if there are generated codes. */
void stored_read(struct stored *stored, const struct ctl *ctl, struct db *db);

/*
 * The form of a row with the column `alphabet`, and with `form` or, as a set is written, `pattern`.
 */
void stored_form(struct code_form *form, const PGresult *rows, int row, const char *column);

/* Returns the space of a set of generated codes; ends the process when the file lacks its key. */
struct code_space *stored_space(const struct stored *stored, int64_t id);

/* store_changing_open() with the lock under which sets are made and revoked, until it is closed. */
struct db *stored_lock(const struct ctl *ctl);

/*
 * store_gateways_wait() for a set that is complete, so that the next request finds its codes. The
 * exit status of the command.
 */
int stored_wait(const struct ctl *ctl);

/* The user who alone may claim the codes of a set, and until when. */
struct code_terms {
	const char *user;     /* NULL: anybody */
	int64_t end_ms;       /* 0: as long as the campaign */
	char zone[ZONE_SIZE]; /* the campaign's */
};

#define CODE_TERMS_OPTIONS                                                                   \
	OPTION("user", "USER", "who alone may claim them; default: anybody"),                \
		OPTION("valid-to", "T",                                                      \
		       "until when they can be claimed, at most as long as the campaign: a " \
		       "day or a local time of its time zone, or a time with its offset")
/* Ends the process unless the options are a user and a time. Needs no database. */
void code_terms_check(const struct args *args);
/* Ends the process, too, when there is no such coupon, or the time is past. */
struct code_terms code_terms_read(const struct args *args, struct db *db, int64_t coupon);

/*
 * Adds a set for codes that others made, or for a word; `request` and `source` may be NULL. Returns
 * its id. Ends the process when there is no such coupon.
 */
int64_t stored_set_add(struct db *db, int64_t coupon, const char *kind, const char *request,
		       const char *source, const struct code_terms *terms);

/*
 * Reads the file, and compares its keys with the fingerprints of the keys that have made codes. A
 * key that the file lacks is no error: its codes are unknown then. Returns the highest version in
 * the database; 0: none.
 */
int keyring_read(struct code_keys *keys, const struct ctl *ctl, struct db *db);

/* The spaces and sets of generated codes in PostgreSQL. */
#ifndef CTL_CODES_STORED_H
#define CTL_CODES_STORED_H

#include "codes/book.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"

struct stored {
	struct code_book *book;
	int64_t unread; /* codes whose key the file lacks */
	int unread_key; /* the version of one of these keys */
};

/*
 * Reads all of them, with the keys. These are needed only if there are generated codes. A file of
 * keys that cannot be used ends the process.
 */
void stored_read(struct stored *stored, const struct ctl *ctl, struct db *db);
void stored_fini(struct stored *stored);

/*
 * The form of a row with the column `alphabet`, and with `form` or, as a set is written, `pattern`.
 */
void stored_form(struct code_form *form, const PGresult *rows, int row, const char *column);

/* The space of a set that cannot do without it; ends the process when the file lacks its key. */
struct code_space *stored_space(const struct stored *stored, int64_t id);

/* store_changing_open() with the lock under which sets are made and revoked, until it is closed. */
struct db *stored_lock(const struct ctl *ctl);

#endif

#include "ctl/codes/stored.h"

#include "common/log/log.h"
#include "embed.h"

#include <string.h>

#define LOCK "codes"

int keyring_read(struct code_keys *keys, const struct ctl *ctl, struct db *db)
{
	char why[CODE_WHY_SIZE], fingerprint[CODE_FINGERPRINT_SIZE];
	const struct code_key *key;
	PGresult *rows;
	int newest = 0;

	if (!*ctl->config.code_keys)
		log_fatal("COUPON_CODE_KEYS is not set: this needs the file with the keys of "
			  "codes; couponctl codes key makes one");
	if (code_key_file_read(keys, ctl->config.code_keys, why))
		log_fatal("%s", why);
	rows = db_ask(db, sql_query_code_keys);
	for (int row = 0; row < PQntuples(rows); row++) {
		newest = (int)column_number(rows, row, "version");
		key = code_keys_find(keys, newest);
		if (!key || strcmp(code_key_fingerprint(key, fingerprint),
				   column_text(rows, row, "fingerprint")) == 0)
			continue;
		log_fatal("COUPON_CODE_KEYS names a file with another key as version %d: its "
			  "fingerprint is %s, and the key that has made codes has %s",
			  newest, fingerprint, column_text(rows, row, "fingerprint"));
	}
	PQclear(rows);
	return newest;
}

void stored_form(struct code_form *form, const PGresult *rows, int row, const char *column)
{
	char why[CODE_WHY_SIZE];

	if (code_form_parse(form, column_text(rows, row, column),
			    column_text(rows, row, "alphabet"), why))
		log_fatal("PostgreSQL has codes of a form that this version cannot read: %s", why);
}

void stored_read(struct stored *stored, const struct ctl *ctl, struct db *db)
{
	PGresult *rows = db_ask(db, sql_query_code_catalogue);
	struct code_keys keys = { .n = 0 };

	*stored = (struct stored){ .book = code_book_new() };
	for (int row = 0; row < PQntuples(rows); row++) {
		int64_t space = column_number(rows, row, "space_id");
		int version = (int)column_number(rows, row, "key_version");
		const struct code_set set = {
			.id = column_number(rows, row, "id"),
			.coupon = column_number(rows, row, "coupon_id"),
			.first = column_number(rows, row, "first_position"),
			.count = column_number(rows, row, "code_num"),
		};
		const struct code_key *key;
		struct code_form form;

		if (!space)
			continue; /* not of generated codes */
		if (keys.n == 0)
			keyring_read(&keys, ctl, db);
		key = code_keys_find(&keys, version);
		if (!key) {
			stored->unread += set.count;
			stored->unread_key = version;
			continue;
		}
		if (!code_book_space(stored->book, space)) {
			stored_form(&form, rows, row, "form");
			code_book_add_space(stored->book, space, code_space_new(&form, key));
		}
		code_book_add_set(stored->book, space, &set);
	}
	code_keys_wipe(&keys);
	PQclear(rows);
}

struct code_space *stored_space(const struct stored *stored, int64_t id)
{
	struct code_space *space = code_book_space(stored->book, id);

	if (!space)
		log_fatal("the file that COUPON_CODE_KEYS names lacks the key of version %d, which "
			  "has made these codes",
			  stored->unread_key);
	return space;
}

struct db *stored_lock(const struct ctl *ctl)
{
	struct db *db = store_changing_open(ctl, NULL);

	db_lock_wait(db, LOCK);
	return db;
}

int64_t stored_set_add(struct db *db, int64_t coupon, const char *kind, const char *request,
		       const char *source)
{
	int64_t set = db_value(db, sql_query_code_set_add, postgres_number(coupon),
			       postgres_text(kind), postgres_text(request), postgres_text(source));

	if (!set)
		log_fatal("there is no coupon %lld", (long long)coupon);
	return set;
}

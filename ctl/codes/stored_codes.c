#include "ctl/codes/stored_codes.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/say.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define LOCK "codes"
#define FORM_WRONG "PostgreSQL has codes of a form that this version cannot read: %s"

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
		log_fatal(FORM_WRONG, why);
}

void stored_read(struct stored *stored, const struct ctl *ctl, struct db *db)
{
	PGresult *rows = db_ask(db, sql_query_code_catalogue);
	struct code_keys keys = { .n = 0 };
	char why[CODE_WHY_SIZE];

	*stored = (struct stored){ .book = code_book_new() };
	for (int row = 0; row < PQntuples(rows); row++) {
		if (db_is_null(rows, row, "space_id"))
			continue; /* not of generated codes */
		if (keys.n == 0)
			keyring_read(&keys, ctl, db);
		switch (code_book_take(stored->book, &keys, rows, row, why)) {
		case CODE_TAKEN:
			break;
		case CODE_KEY_MISSING:
			stored->unread += column_number(rows, row, "code_num");
			stored->unread_key = (int)column_number(rows, row, "key_version");
			break;
		case CODE_KEY_OTHER:
			log_fatal("%s", why);
		case CODE_FORM_WRONG:
			log_fatal(FORM_WRONG, why);
		}
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

int stored_wait(const struct ctl *ctl)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	struct db *db = store_postgres_open(ctl);
	int status;

	(void)redis_client_open(redis); /* or every call fails */
	status = store_gateways_wait(db, redis, STORE_NEWS_CODES);
	redis_client_free(redis);
	db_close(db);
	return status;
}

struct db *stored_lock(const struct ctl *ctl)
{
	struct db *db = store_changing_open(ctl, NULL);

	db_lock_wait(db, LOCK);
	return db;
}

void code_terms_check(const struct args *args)
{
	const char *user = args_text(args, "user");
	char why[USER_ID_WHY_SIZE];
	struct user_id id;

	time_check(args, "valid-to");
	if (!user || user_id_parse(&id, user, strlen(user)) == 0)
		return;
	user_id_why(user, strlen(user), why);
	args_fail("--user is \"%s\": %s", user, why);
}

struct code_terms code_terms_read(const struct args *args, struct db *db, int64_t coupon)
{
	PGresult *row = store_coupon_row(db, sql_query_coupon_show, coupon);
	struct code_terms terms = { .user = args_text(args, "user") };

	snprintf(terms.zone, sizeof(terms.zone), "%s", column_text(row, 0, "zone"));
	PQclear(row);
	terms.end_ms = time_read(args, "valid-to", TIME_END, db, terms.zone, 0);
	if (terms.end_ms && terms.end_ms <= clock_wall_ms())
		args_fail("%s is \"%s\": allowed is a time that is not past",
			  say_option("valid-to"), args_text(args, "valid-to"));
	return terms;
}

int64_t stored_set_add(struct db *db, int64_t coupon, const char *kind, const char *request,
		       const char *source, const struct code_terms *terms)
{
	int64_t set = db_value(db, sql_query_code_set_add, postgres_number(coupon),
			       postgres_text(kind), postgres_text(request), postgres_text(source),
			       postgres_text(terms->user), postgres_number(terms->end_ms));

	if (!set)
		log_fatal_as(CTL_ABSENT, "there is no coupon %lld", (long long)coupon);
	return set;
}

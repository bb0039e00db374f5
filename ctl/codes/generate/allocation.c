#include "ctl/codes/generate/allocation.h"

#include "codes/chance.h"
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/codes/keyring.h"
#include "ctl/codes/stored.h"
#include "ctl/store.h"
#include "embed.h"

#include <string.h>
#include <sys/random.h>

#define POSITIONS_MAX (INT64_C(1) << 62)
#define TRIES 32

/* Of the wish: the codes in its own space, and in those whose codes may have the same text. */
struct present {
	int64_t own, others;
};

static struct present present_read(struct db *db, const struct code_form *form, int version)
{
	PGresult *rows = db_query(db, sql_query_code_spaces, 0, NULL);
	struct present present = { 0 };

	for (int row = 0; row < PQntuples(rows); row++) {
		struct code_form other;

		stored_form(&other, rows, row, "form");
		if (code_forms_same(&other, form) && db_int(rows, row, "key_version") == version)
			present.own = db_int(rows, row, "code_num");
		else if (code_forms_overlap(&other, form))
			present.others += db_int(rows, row, "code_num");
	}
	PQclear(rows);
	return present;
}

static void chance_check(struct db *db, const struct allocation_wish *wish, int version)
{
	struct present present = present_read(db, wish->form, version);
	char why[CODE_WHY_SIZE];

	if (code_chance_check(wish->form, present.own, present.others, wish->count, why))
		log_fatal("%s", why);
}

/* The id of the space, which is recorded with its key if it is not yet. */
static int64_t space_id(struct db *db, const struct code_form *form, const struct code_key *key)
{
	char version[DB_NUMBER_SIZE], fingerprint[CODE_FINGERPRINT_SIZE];
	const char *const of_key[] = { db_number(key->version, version),
				       code_key_fingerprint(key, fingerprint) };
	const char *const of_space[] = { form->plain, form->alphabet, version };
	PGresult *row;
	int64_t id;

	PQclear(db_query(db, sql_query_code_key_add, 2, of_key));
	PQclear(db_query(db, sql_query_code_space_add, 3, of_space));
	row = db_query(db, sql_query_code_space_id, 3, of_space);
	check(PQntuples(row) == 1);
	id = db_int(row, 0, "id");
	PQclear(row);
	return id;
}

/*
 * Somewhere among all positions. When PostgreSQL was put back to an earlier moment it has forgotten
 * sets whose codes are in somebody's hands; next to the last one it knows, a new set would have the
 * same codes. Here that is as unlikely as a good guess.
 */
static int64_t position_choose(const struct code_form *form, int64_t count)
{
	unsigned __int128 size = form->size < POSITIONS_MAX ? form->size : POSITIONS_MAX;
	uint64_t random;

	check(getrandom(&random, sizeof(random), 0) == sizeof(random));
	return (int64_t)((unsigned __int128)random * (size - (uint64_t)count + 1) >> 64);
}

/* 0, or -1: a part of the range is in use. */
static int set_insert(struct allocation *allocation, struct db *db,
		      const struct allocation_wish *wish, int64_t space)
{
	int64_t first = position_choose(wish->form, wish->count);
	char coupon[DB_NUMBER_SIZE], id[DB_NUMBER_SIZE], at[DB_NUMBER_SIZE], n[DB_NUMBER_SIZE];
	const char *const params[] = {
		db_number(wish->coupon, coupon),
		db_number(space, id),
		db_number(first, at),
		db_number(wish->count, n),
		wish->form->pattern,
		wish->request,
		wish->file,
	};
	PGresult *row = db_query(db, sql_query_code_set_generate, 7, params);
	int failed = PQntuples(row) == 0;

	if (!failed) {
		allocation->set = db_int(row, 0, "id");
		allocation->first = first;
	}
	PQclear(row);
	return failed ? -1 : 0;
}

static void set_make(struct allocation *allocation, struct db *db, const struct code_keys *keys,
		     const struct allocation_wish *wish)
{
	const struct code_key *key = code_keys_newest(keys);
	int64_t space;
	int tries = 0;

	if (key->version < keyring_check(keys, db))
		log_fatal("the file that COUPON_CODE_KEYS names has keys up to version %d, and a "
			  "later one has made codes: it is not the newest file",
			  key->version);
	PQclear(store_coupon_row(db, sql_query_coupon_show, wish->coupon));
	chance_check(db, wish, key->version);
	space = space_id(db, wish->form, key);
	allocation->is_new = 1;
	while (set_insert(allocation, db, wish, space))
		check(++tries < TRIES); /* at most a billionth of the positions is in use */
	allocation->space = code_space_new(wish->form, key);
}

/* Takes up the set of a command before, whose key is not always the newest one. */
static void set_resume(struct allocation *allocation, struct db *db, const struct code_keys *keys,
		       const struct allocation_wish *wish, const PGresult *row)
{
	int version = (int)db_int(row, 0, "key_version");
	const struct code_key *key = code_keys_find(keys, version);

	keyring_check(keys, db);
	if (!key)
		log_fatal("the file that COUPON_CODE_KEYS names lacks the key of version %d, with "
			  "which these codes were begun",
			  version);
	check(db_int(row, 0, "code_num") == wish->count);
	allocation->set = db_int(row, 0, "id");
	allocation->first = db_int(row, 0, "first_position");
	allocation->is_revoked = strcmp(db_text(row, 0, "is_revoked"), "t") == 0;
	allocation->space = code_space_new(wish->form, key);
}

void allocation_begin(struct allocation *allocation, const struct ctl *ctl,
		      const struct allocation_wish *wish)
{
	struct code_keys keys;
	struct db *db;
	PGresult *row;

	keyring_read(&keys, ctl);
	db = stored_lock(ctl);
	*allocation = (struct allocation){ .db = db };
	db_run(db, "BEGIN");
	row = db_query(db, sql_query_code_set_request, 1, &wish->request);
	if (PQntuples(row) > 0)
		set_resume(allocation, db, &keys, wish, row);
	else
		set_make(allocation, db, &keys, wish);
	PQclear(row);
	code_keys_wipe(&keys);
}

void allocation_commit(struct allocation *allocation)
{
	db_run(allocation->db, "COMMIT");
	db_close(allocation->db);
	allocation->db = NULL;
}

void allocation_complete(const struct ctl *ctl, int64_t set)
{
	struct db *db = store_postgres_open(ctl);
	char id[DB_NUMBER_SIZE];

	PQclear(db_query(db, sql_query_code_set_complete, 1,
			 (const char *[]){ db_number(set, id) }));
	db_close(db);
}

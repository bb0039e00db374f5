/*
 * couponctl migrate: brings the tables and functions of the database to the version that this
 * program was built for.
 */
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static int64_t version_read(struct db *db)
{
	PGresult *result;
	int64_t version = 0;

	PQclear(db_query(db, sql_query_migration_init, 0, NULL));
	result = db_query(db, sql_query_migration_list, 0, NULL);
	for (int row = 0; row < PQntuples(result); row++)
		version = db_int(result, row, "version");
	PQclear(result);
	return version;
}

static void migration_apply(struct db *db, const struct migration *migration)
{
	char version[DB_NUMBER_SIZE];
	const char *const params[] = { db_number(migration->version, version), migration->name };

	db_run(db, "BEGIN");
	if (db_run_try(db, migration->sql))
		log_fatal("migration %04d %s failed, and nothing of it was kept: %s",
			  migration->version, migration->name, db_error(db));
	PQclear(db_query(db, sql_query_migration_record, 2, params));
	db_run(db, "COMMIT");
	printf("%04d %s: applied\n", migration->version, migration->name);
	fflush(stdout);
}

static void migrations_apply(struct db *db)
{
	int64_t version = version_read(db);
	int newest = 0, applied = 0;

	for (const struct migration *m = migrations; m->name; m++)
		newest = m->version;
	if (version > newest)
		log_fatal("the database is at version %lld, newer than this program's %d: use a "
			  "newer couponctl",
			  (long long)version, newest);
	for (const struct migration *m = migrations; m->name; m++) {
		if (m->version <= version)
			continue;
		migration_apply(db, m);
		applied++;
	}
	if (applied == 0)
		printf("the database is at version %d already\n", newest);
}

/* What to say of applying the function; NULL: it stays as it is. */
static const char *function_reason(struct db *db, const struct function *function)
{
	const char *const params[] = { function->name, function->signature };
	PGresult *result = db_query(db, sql_query_function_state, 2, params);
	const char *reason = NULL;

	if (PQntuples(result) == 0) {
		reason = "";
	} else if (db_int(result, 0, "version") > function->version) {
		printf("function %s: version %lld is newer than this program's %d and stays\n",
		       function->name, (long long)db_int(result, 0, "version"), function->version);
	} else if (db_int(result, 0, "version") < function->version) {
		reason = "";
	} else if (strcmp(db_text(result, 0, "checksum"), function->checksum) != 0) {
		reason = " in place of another text of this version";
	} else if (strcmp(db_text(result, 0, "is_live"), "t") != 0) {
		reason = " again, since the database has another";
	}
	PQclear(result);
	return reason;
}

static void function_apply(struct db *db, const struct function *function, const char *reason)
{
	char version[DB_NUMBER_SIZE];
	const char *const params[] = { function->name, function->signature,
				       db_number(function->version, version), function->checksum };
	PGresult *result;

	if (db_run_try(db, function->sql))
		log_fatal("function %s failed, and no function was changed: %s", function->name,
			  db_error(db));
	result = db_query(db, sql_query_function_record, 4, params);
	if (PQntuples(result) == 0)
		log_fatal("sql/function/%s.sql does not create %s, and no function was changed",
			  function->name, function->signature);
	PQclear(result);
	printf("function %s: applying version %d%s\n", function->name, function->version, reason);
}

/* In one transaction: functions call each other, and workers must not meet half of a change. */
static void functions_apply(struct db *db)
{
	db_run(db, "BEGIN");
	for (const struct function *f = functions; f->name; f++) {
		const char *reason = function_reason(db, f);

		if (reason)
			function_apply(db, f, reason);
	}
	db_run(db, "COMMIT");
}

static int migrate_run(struct ctl *ctl)
{
	int as_admin = *ctl->config.database_admin_url != '\0';
	struct db *db = db_open(as_admin ? "DATABASE_ADMIN_URL" : "DATABASE_URL",
				as_admin ? ctl->config.database_admin_url
					 : ctl->config.database_url);

	PQclear(db_query(db, sql_query_migration_lock, 0, NULL));
	migrations_apply(db);
	functions_apply(db);
	db_close(db);
	return 0;
}

const struct command migrate_command = {
	.name = "migrate",
	.run = migrate_run,
	.summary = "upgrade the database to this program's version",
	.detail = "Migrations go forward only, each in a transaction of its own; then the\n"
		  "functions that differ are replaced in one transaction. A function that is\n"
		  "newer than this program's is kept. Concurrent runs are safe. A database that\n"
		  "is newer than this program is refused. Connects as the owner of the tables,\n"
		  "DATABASE_ADMIN_URL.",
};

/* couponctl migrate: brings the database to the version that this program was built for. */
#include "common/log.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "embed.h"

#include <stdio.h>

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

static int migrate_run(struct ctl *ctl)
{
	int as_admin = *ctl->config.database_admin_url != '\0';
	struct db *db = db_open(as_admin ? "DATABASE_ADMIN_URL" : "DATABASE_URL",
				as_admin ? ctl->config.database_admin_url
					 : ctl->config.database_url);
	int newest = 0, applied = 0;
	int64_t version;

	PQclear(db_query(db, sql_query_migration_lock, 0, NULL));
	version = version_read(db);
	for (const struct migration *m = migrations; m->name; m++)
		newest = m->version;
	if (version > newest)
		log_fatal("the database is at version %lld and this program knows only %d: use a "
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
	db_close(db);
	return 0;
}

const struct command migrate_command = {
	.name = "migrate",
	.run = migrate_run,
	.options = (const struct option[]){ { NULL, NULL, NULL } },
	.summary = "bring the database to this program's version",
	.detail = "Forward only, each migration in a transaction of its own. As the owner of the "
		  "tables: DATABASE_ADMIN_URL.\n"
		  "Two at once do no harm; a database newer than this program is refused.",
};

/*
 * couponctl migrate: brings the tables and functions of the database to the version that this
 * program was built for.
 */
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int newest; /* the version that this program brings */
static int as_json;

/* Prints a line for a step: what is applied, kept or already there. `name` NULL: it has none. */
static void step_say(const char *kind, const char *name, int64_t version, const char *action,
		     const char *format, ...) __attribute__((format(printf, 5, 6)));

static void step_say(const char *kind, const char *name, int64_t version, const char *action,
		     const char *format, ...)
{
	cJSON *object = output_object();
	va_list list;

	output_text(object, "kind", kind);
	output_text(object, "name", name);
	output_number(object, "version", version);
	output_text(object, "action", action);
	va_start(list, format);
	if (as_json)
		output_print(cJSON_Duplicate(object, 1));
	else
		vprintf(format, list);
	va_end(list);
	cJSON_Delete(object);
	fflush(stdout);
}

static void progress_notice(void *context, const char *text)
{
	char step[PROGRESS_WHAT_SIZE];
	long long done, total;

	if (sscanf(text, "progress %31s %lld %lld", step, &done, &total) == 3)
		progress_show(context, step, done, total);
}

/* The end of the sentence that the function is applied; NULL: it stays as it is. */
static const char *function_reason(struct db *db, const struct function *function)
{
	PGresult *result = db_ask(db, sql_query_function_state, postgres_text(function->name),
				  postgres_text(function->signature));
	const char *reason = NULL;

	if (PQntuples(result) == 0) {
		reason = "";
	} else if (column_number(result, 0, "version") > function->version) {
		step_say("function", function->name, column_number(result, 0, "version"), "kept",
			 "function %s: version %lld is newer than this program's %d and stays\n",
			 function->name, (long long)column_number(result, 0, "version"),
			 function->version);
	} else if (column_number(result, 0, "version") < function->version) {
		reason = "";
	} else if (strcmp(column_text(result, 0, "checksum"), function->checksum) != 0) {
		reason = " in place of another text of this version";
	} else if (!db_is_true(result, 0, "is_live")) {
		reason = " again, since the database has another";
	}
	PQclear(result);
	return reason;
}

/* Whether the rights that the database has are others than those that were applied last. */
static int roles_differ(struct db *db)
{
	return db_value(db, sql_query_roles_record, postgres_text(sql_roles)) != 0;
}

/* Applies the functions that differ, or prints what would be applied. */
static void functions_apply(struct db *db, int is_dry)
{
	for (const struct function *f = functions; f->name; f++) {
		const char *reason = function_reason(db, f);
		PGresult *record;

		if (!reason)
			continue;
		if (is_dry) {
			step_say("function", f->name, f->version, "to be applied",
				 "function %s: version %d to be applied%s\n", f->name, f->version,
				 reason);
			continue;
		}
		if (db_run_try(db, f->sql, NULL, NULL))
			log_fatal("function %s failed, and nothing was changed: %s", f->name,
				  db_error(db));
		record = db_ask(db, sql_query_function_record, postgres_text(f->name),
				postgres_text(f->signature), postgres_number(f->version),
				postgres_text(f->checksum));
		if (PQntuples(record) == 0)
			log_fatal("sql/function/%s.sql does not create %s, and nothing was changed",
				  f->name, f->signature);
		PQclear(record);
		step_say("function", f->name, f->version, "applying",
			 "function %s: applying version %d%s\n", f->name, f->version, reason);
	}
}

/* Applies the migrations above the version, or prints them. */
static void migrations_apply(struct db *db, int64_t version, int is_dry)
{
	for (const struct migration *m = migrations; m->name; m++) {
		struct progress progress = { 0 };
		int failed;

		if (m->version <= version)
			continue;
		if (is_dry) {
			step_say("migration", m->name, m->version, "to be applied",
				 "%04d %s: to be applied\n", m->version, m->name);
			continue;
		}
		failed = db_run_try(db, m->sql, progress_notice, &progress);
		progress_end(&progress);
		if (failed)
			log_fatal("migration %04d %s failed, and nothing was changed: %s",
				  m->version, m->name, db_error(db));
		db_do(db, sql_query_migration_record, postgres_number(m->version),
		      postgres_text(m->name), postgres_text(m->checksum));
		step_say("migration", m->name, m->version, "applying", "%04d %s: applying\n",
			 m->version, m->name);
	}
}

/*
 * Gives the roles of the programs the passwords of the settings, or prints to which. PostgreSQL
 * gets what it keeps of a password, and never the password, which may come into its log.
 */
static void logins_give(struct db *db, const struct config *config, int is_dry)
{
	const struct {
		const char *role, *password;
	} logins[] = {
		{ "couponmq_gateway", config->gateway_password },
		{ "couponmq_worker", config->worker_password },
		{ "couponmq_operator", config->operator_password },
	};

	for (size_t i = 0; i < sizeof(logins) / sizeof(logins[0]); i++) {
		const char *role = logins[i].role;
		PGresult *result;
		char *kept;

		if (!*logins[i].password)
			continue;
		if (is_dry) {
			step_say("login", role, newest, "to be applied",
				 "login of %s: to be applied\n", role);
			continue;
		}
		kept = PQencryptPasswordConn(db_libpq(db), logins[i].password, role,
					     "scram-sha-256");
		if (!kept)
			log_fatal("the password of %s cannot be used, and nothing was changed: %s",
				  role, PQerrorMessage(db_libpq(db)));
		result = db_ask(db, sql_query_role_login, postgres_text(role), postgres_text(kept));
		db_run(db, column_text(result, 0, "statement"));
		PQclear(result);
		PQfreemem(kept);
		step_say("login", role, newest, "applying", "login of %s: applying\n", role);
	}
}

static int migrate_run(struct ctl *ctl)
{
	struct db *db = store_admin_open(ctl);
	PGresult *shape = db_ask(db, sql_query_database_shape);
	const char *name = column_text(shape, 0, "name"),
		   *encoding = column_text(shape, 0, "encoding");
	int64_t version = 0;
	PGresult *result;

	as_json = args_has(&ctl->args, "json");
	for (const struct migration *m = migrations; m->name; m++)
		newest = m->version;

	/* A database with another encoding refuses some characters, or stores bytes unchecked. */
	if (strcmp(encoding, "UTF8") != 0)
		log_fatal("the encoding of the database %s is %s, and nothing was changed: it must "
			  "be UTF8; use CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'",
			  name, encoding, name);
	if (!db_is_true(shape, 0, "has_schema"))
		log_fatal("the database %s has no schema public, in which the tables are, and "
			  "nothing was changed: CREATE SCHEMA public",
			  name);
	PQclear(shape);

	db_lock_wait(db, "migrate");
	db_run(db, "BEGIN");

	/* The version of the database, which may be upgraded to this program's. 0: it is empty. */
	db_do(db, sql_query_migration_init);
	db_do(db, sql_query_function_init);
	result = db_ask(db, sql_query_migration_list);
	for (int row = 0; row < PQntuples(result); row++) {
		version = column_number(result, row, "version");
		/*
		 * A migration that is applied is never changed. Until 0.9.0 is released the schema
		 * is: then databases of before are made anew.
		 */
		for (const struct migration *m = migrations; m->name; m++)
			if (m->version == version &&
			    strcmp(column_text(result, row, "checksum"), m->checksum) != 0)
				log_fatal("the database has another migration %04lld, \"%s\", than "
					  "this program: it was made by a version before 0.9.0, or "
					  "by another build of it, and cannot be upgraded: create "
					  "a new database",
					  (long long)version, column_text(result, row, "name"));
	}
	PQclear(result);
	if (version > newest)
		log_fatal("the database is at version %lld, newer than this program's %d: use a "
			  "newer couponctl",
			  (long long)version, newest);
	if (version == newest)
		step_say("database", NULL, newest, "kept",
			 "the database is at version %d already\n", newest);

	fflush(stdout);
	if (args_has(&ctl->args, "dry-run")) {
		migrations_apply(db, version, 1);
		functions_apply(db, 1);
		if (roles_differ(db))
			step_say("rights", NULL, newest, "to be applied",
				 "rights of the roles: to be applied\n");
		logins_give(db, &ctl->config, 1);
		db_run(db, "ROLLBACK");
		db_close(db);
		return 0;
	}

	/*
	 * In one transaction: nobody is without rights meanwhile, and no function without its
	 * tables. The functions come first, because triggers call them: their bodies may name
	 * tables and columns that a migration brings.
	 */
	if (version < newest)
		db_run(db, "SET LOCAL check_function_bodies = off");
	functions_apply(db, 0);
	migrations_apply(db, version, 0);
	if (roles_differ(db)) {
		if (db_run_try(db, sql_roles, NULL, NULL))
			log_fatal("the rights of the roles could not be set, and nothing was "
				  "changed: %s",
				  db_error(db));
		roles_differ(db); /* records them */
		step_say("rights", NULL, newest, "applying", "rights of the roles: applying\n");
	}
	logins_give(db, &ctl->config, 0);
	fflush(stdout);
	db_judge(db);
	log_fatal_status(CTL_UNKNOWN); /* a COMMIT whose reply is lost may be done */
	db_run(db, "COMMIT");
	if (version < newest)
		step_say("database", NULL, newest, "applied", "the database is at version %d\n",
			 newest);
	db_close(db);
	return 0;
}

const struct command migrate_command = {
	.name = "migrate",
	.run = migrate_run,
	.options = OPTIONS(SWITCH("dry-run", "print what would be applied, and apply nothing")),
	.summary = "upgrade the database to this program's version",
	.detail =
		"Migrations go forward only. One transaction applies the migrations, the "
		"functions\n"
		"that differ and the rights of the roles, and gives the roles of the programs\n"
		"the passwords of COUPON_GATEWAY_PASSWORD, COUPON_WORKER_PASSWORD and\n"
		"COUPON_OPERATOR_PASSWORD, where they are set. A function that is newer than this\n"
		"program's is kept. A database that is newer than this program is refused. A\n"
		"migration that takes long shows its progress. Concurrent runs are safe. The\n"
		"command connects as the owner of the tables (DATABASE_ADMIN_URL).",
};

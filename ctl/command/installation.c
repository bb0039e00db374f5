/*
 * couponctl installation: the id by which programs notice that PostgreSQL and Redis do not belong
 * together (common/changes.h).
 */
#include "common/changes.h"
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

/* The id of PostgreSQL. */
static void own_read(struct db *db, struct changes *changes)
{
	PGresult *rows = db_ask(db, sql_query_change_counts);

	changes_take(changes, rows);
	PQclear(rows);
	if (!*changes->installation)
		log_fatal("PostgreSQL has no installation id: its table installation is empty");
}

static int show_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = store_redis_open(ctl);
	int as_json = args_has(&ctl->args, "json"), is_foreign;
	cJSON *object = output_object();
	struct changes changes, copy;

	store_redis_check(redis, changes_copy_read(&copy, redis) == 0);
	own_read(db, &changes);
	is_foreign = changes_relate(RELATION_UNKNOWN, &changes, &copy) == RELATION_FOREIGN;
	output_text(object, "postgresql", changes.installation);
	output_text(object, "redis", copy.installation);
	output_say(object, "PostgreSQL  {postgresql}\nRedis       {redis|none yet}\n", as_json);
	if (is_foreign && !as_json)
		puts(RELATION_FOREIGN_TEXT);
	redis_client_free(redis);
	db_close(db);
	return is_foreign;
}

/* A Redis with this id would be left without a PostgreSQL, and all programs would stop. */
static void use_refuse(struct ctl *ctl, const struct changes *changes)
{
	struct redis_client *redis = store_redis_open(ctl);
	struct changes copy;

	store_redis_check(redis, changes_copy_read(&copy, redis) == 0);
	redis_client_free(redis);
	if (strcmp(changes->installation, copy.installation) == 0)
		log_fatal("nothing was changed, because Redis, which REDIS_URL names, belongs to "
			  "this PostgreSQL: with another id every program stops until couponctl "
			  "installation adopt. If that is meant, add --instead-of %s",
			  changes->installation);
}

static int new_run(struct ctl *ctl)
{
	const char *instead_of = args_text(&ctl->args, "instead-of");
	struct db *db = store_admin_open(ctl);
	struct changes changes;
	PGresult *rows;

	own_read(db, &changes);
	if (!instead_of)
		use_refuse(ctl, &changes);
	else if (strcmp(instead_of, changes.installation) != 0)
		args_fail("--instead-of is \"%s\": PostgreSQL has %s", instead_of,
			  changes.installation);
	rows = db_ask(db, sql_query_installation_new);
	puts(db_text(rows, 0, "id"));
	PQclear(rows);
	db_close(db);
	return 0;
}

static int adopt_run(struct ctl *ctl)
{
	const char *instead_of = args_text(&ctl->args, "instead-of");
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = store_redis_open(ctl);
	struct changes changes, copy;
	enum relation relation;

	store_redis_check(redis, changes_copy_read(&copy, redis) == 0);
	own_read(db, &changes);
	relation = changes_claim(redis, changes.installation, instead_of);
	if (relation == RELATION_FOREIGN)
		log_fatal("nothing was changed, because Redis belongs to %s. To take it over from "
			  "that installation, add --instead-of %s",
			  copy.installation, copy.installation);
	store_redis_check(redis, relation == RELATION_OWN);
	puts(changes.installation);
	redis_client_free(redis);
	db_close(db);
	return 0;
}

static const struct command installation_show_command = {
	.name = "installation show",
	.run = show_run,
	.options = OPTIONS(SWITCH("json", "print one JSON object")),
	.summary = "print the installation of PostgreSQL and that of Redis",
	.detail = "The exit status is 1 if they differ: then every program of this PostgreSQL and\n"
		  "Redis stands still.",
};

static const struct command installation_new_command = {
	.name = "installation new",
	.run = new_run,
	.options = OPTIONS(
		OPTION("instead-of", "ID", "the present id: also where Redis has the same")),
	.summary = "give PostgreSQL another id, and print it",
	.detail = "For a copy of a database, for instance a staging system that was restored from\n"
		  "the backup of production: before any program is started on it. Connects as the\n"
		  "owner of the tables, DATABASE_ADMIN_URL.",
};

static const struct command installation_adopt_command = {
	.name = "installation adopt",
	.run = adopt_run,
	.options = OPTIONS(OPTION("instead-of", "ID", "the id that Redis has")),
	.summary = "give Redis the id of PostgreSQL, and print it",
	.detail = "A Redis that has none is claimed by gateways and workers themselves. With\n"
		  "--instead-of it is taken over, with all coupons, from another installation,\n"
		  "whose programs stop: for a Redis that was copied together with PostgreSQL.",
};

const struct command installation_command = {
	.name = "installation",
	.subcommands = COMMANDS(&installation_show_command, &installation_new_command,
				&installation_adopt_command),
	.summary = "show the id that PostgreSQL and Redis share, or change it",
};

/* couponctl installation: the id that PostgreSQL and Redis share, and how far the events are. */
#include "common/changes.h"
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

/* Reads the numbers of PostgreSQL and, unless `redis` is NULL, before them the copy in Redis. */
static void installation_read(struct db *db, struct redis_client *redis, struct changes *changes,
			      struct changes *copy)
{
	PGresult *counts;

	if (redis)
		store_redis_check(redis, changes_copy_read(copy, redis) == 0);
	counts = db_ask(db, sql_query_change_counts);
	changes_take(changes, counts);
	PQclear(counts);
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
	PGresult *recovery;

	installation_read(db, redis, &changes, &copy);
	is_foreign = changes_relate(RELATION_UNKNOWN, &changes, &copy) == RELATION_FOREIGN;
	output_text(object, "postgresql", changes.installation);
	output_text(object, "redis", copy.installation);
	recovery = db_ask(db, sql_query_recover_last);
	if (PQntuples(recovery) > 0)
		output_row(object, recovery, 0);
	PQclear(recovery);
	output_say(object,
		   "PostgreSQL  {postgresql}\nRedis       {redis|none yet}\n"
		   "[recovery Recovered   {recovery.at} by {recovery.by} ({recovery.how}): "
		   "{recovery.transactions} transactions, from server {recovery.former|?} to "
		   "{recovery.server}\n]",
		   as_json);
	if (is_foreign && !as_json)
		puts(RELATION_FOREIGN_TEXT);
	redis_client_free(redis);
	db_close(db);
	return is_foreign ? CTL_FAILED : CTL_DONE;
}

static int new_run(struct ctl *ctl)
{
	const char *instead_of = args_text(&ctl->args, "instead-of");
	struct db *db = store_admin_open(ctl);
	struct redis_client *redis = instead_of ? NULL : store_redis_open(ctl);
	cJSON *object = output_object();
	struct changes changes, copy;
	PGresult *rows;

	installation_read(db, redis, &changes, &copy);
	if (instead_of && strcmp(instead_of, changes.installation) != 0)
		args_fail("--instead-of is \"%s\": PostgreSQL has %s", instead_of,
			  changes.installation);
	/* A Redis with this id would be left without a PostgreSQL, and all programs would stop. */
	if (redis && strcmp(changes.installation, copy.installation) == 0)
		log_fatal("nothing was changed, because Redis, which REDIS_URL names, belongs to "
			  "this PostgreSQL: with another id every program stops until couponctl "
			  "installation adopt. If that is meant, add --instead-of %s",
			  changes.installation);
	store_by_set(db, ctl);
	rows = db_ask(db, sql_query_installation_new);
	output_text(object, "postgresql", column_text(rows, 0, "id"));
	output_say(object, "{postgresql}\n", args_has(&ctl->args, "json"));
	PQclear(rows);
	redis_client_free(redis);
	db_close(db);
	return 0;
}

static int adopt_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = store_redis_open(ctl);
	cJSON *object = output_object();
	struct changes changes, copy;
	enum relation relation;

	installation_read(db, redis, &changes, &copy);
	store_by_set(db, ctl);
	relation = changes_adopt(redis, changes.installation, args_text(&ctl->args, "instead-of"));
	if (relation == RELATION_FOREIGN)
		log_fatal("nothing was changed, because Redis belongs to %s. To take it over from "
			  "that installation, add --instead-of %s",
			  copy.installation, copy.installation);
	store_redis_check(redis, relation == RELATION_OWN);
	output_text(object, "postgresql", changes.installation);
	output_text(object, "redis", changes.installation);
	output_say(object, "{postgresql}\n", args_has(&ctl->args, "json"));
	redis_client_free(redis);
	db_close(db);
	return 0;
}

static int events_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	PGresult *lag = db_ask(db, sql_query_event_log_lag);
	int64_t allowed = ctl->config.event_log_max, waiting = column_number(lag, 0, "events_num");
	cJSON *object = output_object();

	output_number(object, "waiting", waiting);
	output_number(object, "allowed", allowed);
	output_number(object, "transactions", column_number(lag, 0, "rows_num"));
	output_number(object, "oldest_ms", column_number(lag, 0, "age_ms"));
	output_number(object, "bytes", column_number(lag, 0, "size_bytes"));
	output_number(object, "relays", column_number(lag, 0, "relays_num"));
	output_say(object,
		   "events that wait    {waiting:,} of {transactions} transactions; {allowed:,} "
		   "are allowed\n"
		   "the oldest          {oldest_ms} ms\n"
		   "log on disk         {bytes:,} bytes\n"
		   "workers' relays     {relays}\n",
		   args_has(&ctl->args, "json"));
	if (waiting > allowed)
		say("more events wait than COUPON_EVENT_LOG_MAX allows");
	PQclear(lag);
	db_close(db);
	return waiting > allowed ? CTL_FAILED : CTL_DONE;
}

static const struct command installation_events_command = {
	.name = "installation show --event-log",
	.run = events_run,
	.options = OPTIONS(SWITCH("event-log", "print the state of the event log instead")),
	.summary = "print how many events wait to be published, and for how long",
	.detail =
		"The exit status is 1 when more events wait than COUPON_EVENT_LOG_MAX. A campaign\n"
		"publishes events if it was created or edited with --events on.",
};

static const struct command installation_show_command = {
	.name = "installation show",
	.run = show_run,
	.modes = COMMANDS(&installation_events_command),
	.summary = "print the installation id of PostgreSQL and that of Redis",
	.detail =
		"If the ids differ, all programs that use this PostgreSQL and Redis stand still,\n"
		"and the exit status is 1.",
};

static const struct command installation_new_command = {
	.name = "installation new",
	.run = new_run,
	.options = OPTIONS(OPTION("instead-of", "ID",
				  "the present id of PostgreSQL: needed if Redis has the same id"),
			   BY_OPTION),
	.summary = "give PostgreSQL another id, and print it",
	.detail =
		"Run this on a copy of a database, for instance a staging system that was "
		"restored\n"
		"from the backup of production, before any program is started on it. The command\n"
		"connects as the owner of the tables (DATABASE_ADMIN_URL).",
};

static const struct command installation_adopt_command = {
	.name = "installation adopt",
	.run = adopt_run,
	.options = OPTIONS(OPTION("instead-of", "ID", "the present id of Redis"), BY_OPTION),
	.summary = "give Redis the id of PostgreSQL, and print it",
	.detail = "Gateways and workers adopt a Redis that has no id. With --instead-of, Redis is\n"
		  "taken over, with all coupons, from another installation, whose programs then\n"
		  "stop. Use this for a Redis that was copied together with PostgreSQL.",
};

const struct command installation_command = {
	.name = "installation",
	.subcommands = COMMANDS(&installation_show_command, &installation_new_command,
				&installation_adopt_command),
	.summary = "show the id that PostgreSQL and Redis share, or change it",
};

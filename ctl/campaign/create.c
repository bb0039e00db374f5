/* couponctl create: a new campaign, as a draft. Clients cannot see drafts. */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/behind.h"
#include "ctl/by.h"
#include "ctl/campaign/terms.h"
#include "ctl/ctl.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

/* Inserts the coupon. No row: there is a coupon with this id. */
static PGresult *creation_insert(struct db *db, int64_t id, cJSON *terms)
{
	char number[DB_NUMBER_SIZE], *text = cJSON_PrintUnformatted(terms);
	PGresult *result;

	check(text != NULL);
	result = db_query(db, sql_query_coupon_create, 2,
			  (const char *[]){ id ? db_number(id, number) : NULL, text });
	cJSON_free(text);
	return result;
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	struct redis_client *redis;
	PGresult *result;
	struct db *db;
	cJSON *terms;

	args_required(args, "name");
	args_required(args, "total");
	terms = terms_read(args);
	output_number(terms, "total_num", args_number(args, "total", 1, JSON_INTEGER_MAX, 0));
	db = store_postgres_open(ctl);
	redis = store_redis_open(ctl);
	behind_refuse(db, redis);
	redis_client_free(redis);
	by_set(db, args);
	result = creation_insert(db, args_id(args, "id"), terms);
	cJSON_Delete(terms);
	if (PQntuples(result) == 0)
		log_fatal("--id is \"%s\": a coupon with this id exists", args_text(args, "id"));
	if (args_has(args, "json"))
		printf("{\"coupon\":\"%s\"}\n", db_text(result, 0, "id"));
	else
		printf("%s\n", db_text(result, 0, "id"));
	PQclear(result);
	db_close(db);
	return 0;
}

static const struct option create_options[] = {
	TERMS_OPTIONS,
	OPTION("total", "N", "number of coupons, at least 1"),
	OPTION("id", "ID", "its id; default: the next free id"),
	BY_OPTION,
	SWITCH("json", "print {\"coupon\":\"ID\"}"),
	OPTIONS_END,
};

const struct command create_command = {
	.name = "create",
	.run = create_run,
	.options = create_options,
	.summary = "create a campaign as a draft, and print only its id",
	.detail = "Needs --name and --total. T is a time in RFC 3339 format, for example\n"
		  "2026-11-21T12:00:00+01:00, or now.",
};

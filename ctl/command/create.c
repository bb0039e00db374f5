/* couponctl create: a new campaign, as a draft. Clients cannot see drafts. */
#include "common/clock.h"
#include "common/message/json.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/behind.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS_MAX 200
#define VALID_DAYS_MAX 36500

struct creation {
	int64_t id; /* 0: the next free one */
	const char *name;
	int64_t total, limit, valid_days;
	int64_t begin_ms, end_ms, valid_from_ms, valid_to_ms; /* 0: not given */
};

static size_t utf8_characters(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

static void creation_check(const struct args *args, const struct creation *c)
{
	if (c->begin_ms && c->end_ms && c->begin_ms >= c->end_ms)
		args_fail("--end is \"%s\": allowed is a time after --begin, \"%s\"",
			  args_text(args, "end"), args_text(args, "begin"));
	if (!c->valid_from_ms != !c->valid_to_ms)
		args_fail("--valid-from and --valid-to must be given together");
	if (c->valid_from_ms && c->valid_from_ms >= c->valid_to_ms)
		args_fail("--valid-to is \"%s\": allowed is a time after --valid-from, \"%s\"",
			  args_text(args, "valid-to"), args_text(args, "valid-from"));
	if (c->valid_from_ms && c->valid_days)
		args_fail("--valid-days is \"%s\": not allowed together with --valid-from and "
			  "--valid-to",
			  args_text(args, "valid-days"));
}

static void creation_read(const struct args *args, struct creation *c)
{
	const char *name = args_required(args, "name");

	if (!*name || utf8_characters(name) > NAME_CHARACTERS_MAX)
		args_fail("--name is \"%s\": allowed are 1 to %d characters", name,
			  NAME_CHARACTERS_MAX);
	args_required(args, "total");
	*c = (struct creation){
		.id = args_id(args, "id"),
		.name = name,
		.total = args_number(args, "total", 0, JSON_INTEGER_MAX, 0),
		.limit = args_number(args, "limit", 1, RECEIVE_SLOT_MAX, 1),
		.begin_ms = args_time(args, "begin", 0),
		.end_ms = args_time(args, "end", 0),
		.valid_days = args_number(args, "valid-days", 1, VALID_DAYS_MAX, 0),
		.valid_from_ms = args_time(args, "valid-from", 0),
		.valid_to_ms = args_time(args, "valid-to", 0),
	};
	creation_check(args, c);
}

static const char *time_param(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	return wall_ms ? clock_rfc3339(wall_ms, out) : NULL;
}

/* Inserts the coupon. No row: there is a coupon with this id. */
static PGresult *creation_insert(struct db *db, const struct creation *c)
{
	char id[DB_NUMBER_SIZE], total[DB_NUMBER_SIZE], limit[DB_NUMBER_SIZE], days[DB_NUMBER_SIZE];
	char begin[CLOCK_RFC3339_SIZE], end[CLOCK_RFC3339_SIZE], from[CLOCK_RFC3339_SIZE],
		to[CLOCK_RFC3339_SIZE];
	const char *const params[] = {
		c->id ? db_number(c->id, id) : NULL,
		c->name,
		db_number(c->total, total),
		db_number(c->limit, limit),
		time_param(c->begin_ms, begin),
		time_param(c->end_ms, end),
		c->valid_days ? db_number(c->valid_days, days) : NULL,
		time_param(c->valid_from_ms, from),
		time_param(c->valid_to_ms, to),
	};

	return db_query(db, sql_query_coupon_create, sizeof(params) / sizeof(params[0]), params);
}

static int create_run(struct ctl *ctl)
{
	struct redis_client *redis;
	struct creation creation;
	PGresult *result;
	struct db *db;

	creation_read(&ctl->args, &creation);
	db = store_postgres_open(ctl);
	redis = store_redis_open(ctl);
	behind_refuse(db, redis);
	redis_client_free(redis);
	result = creation_insert(db, &creation);
	if (PQntuples(result) == 0)
		log_fatal("--id is \"%s\": a coupon with this id exists",
			  args_text(&ctl->args, "id"));
	if (args_has(&ctl->args, "json"))
		printf("{\"coupon\":\"%s\"}\n", db_text(result, 0, "id"));
	else
		printf("%s\n", db_text(result, 0, "id"));
	PQclear(result);
	db_close(db);
	return 0;
}

static const struct option create_options[] = {
	OPTION("name", "NAME", "its name, 1 to 200 characters"),
	OPTION("total", "N", "number of coupons"),
	OPTION("limit", "N", "coupons for each user, 1 to 100; default 1"),
	OPTION("begin", "T", "nothing is issued before; default: no begin"),
	OPTION("end", "T", "nothing is issued from then on; default: no end"),
	OPTION("valid-days", "N",
	       "a user's coupon is valid for N days of 24 hours, counted from the receive"),
	OPTION("valid-from", "T", "a user's coupon is valid from this time"),
	OPTION("valid-to", "T",
	       "and until this time; default: valid from the receive, without an end"),
	OPTION("id", "ID", "its id; default: the next free id"),
	SWITCH("json", "print {\"coupon\":\"ID\"}"),
	OPTIONS_END,
};

const struct command create_command = {
	.name = "create",
	.run = create_run,
	.options = create_options,
	.summary = "create a campaign as a draft, and print only its id",
	.detail = "Needs --name and --total. T is a time in RFC 3339 format, for example\n"
		  "2026-11-21T12:00:00+01:00.",
};

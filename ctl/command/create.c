/* couponctl create: a new campaign, as a draft. Clients cannot see drafts. */
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/receive.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS_MAX 200
#define VALID_DAYS_MAX 36500

struct creation {
	int64_t begin_ms, end_ms, valid_from_ms, valid_to_ms; /* 0: not given */
	int64_t valid_days;
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

static const char *time_param(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	return wall_ms ? clock_rfc3339(wall_ms, out) : NULL;
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = args_required(args, "name");
	struct creation c;
	char id[DB_NUMBER_SIZE], total[DB_NUMBER_SIZE], limit[DB_NUMBER_SIZE], days[DB_NUMBER_SIZE];
	char begin[CLOCK_RFC3339_SIZE], end[CLOCK_RFC3339_SIZE], from[CLOCK_RFC3339_SIZE],
		to[CLOCK_RFC3339_SIZE];
	const char *params[9];
	PGresult *result;
	struct db *db;

	if (!*name || utf8_characters(name) > NAME_CHARACTERS_MAX)
		args_fail("--name is \"%s\": allowed are 1 to %d characters", name,
			  NAME_CHARACTERS_MAX);
	args_required(args, "total");
	c.begin_ms = args_time(args, "begin", 0);
	c.end_ms = args_time(args, "end", 0);
	c.valid_from_ms = args_time(args, "valid-from", 0);
	c.valid_to_ms = args_time(args, "valid-to", 0);
	c.valid_days = args_number(args, "valid-days", 1, VALID_DAYS_MAX, 0);
	creation_check(args, &c);
	params[0] = args_has(args, "id") ? db_number(args_id(args, "id"), id) : NULL;
	params[1] = name;
	params[2] = db_number(args_number(args, "total", 0, JSON_INTEGER_MAX, 0), total);
	params[3] = db_number(args_number(args, "limit", 1, RECEIVE_SLOT_MAX, 1), limit);
	params[4] = time_param(c.begin_ms, begin);
	params[5] = time_param(c.end_ms, end);
	params[6] = c.valid_days ? db_number(c.valid_days, days) : NULL;
	params[7] = time_param(c.valid_from_ms, from);
	params[8] = time_param(c.valid_to_ms, to);

	db = store_postgres_open(ctl);
	result = db_query(db, sql_query_coupon_create, 9, params);
	if (PQntuples(result) == 0) {
		PQclear(result);
		log_fatal("--id is \"%s\": there is a coupon with this id already",
			  params[0] ? params[0] : "");
	}
	if (args_has(args, "json"))
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
	.detail = "Needs --name and --total. T is a time in RFC 3339 format, for example "
		  "2026-11-21T12:00:00+01:00.",
};

/* couponctl codes stats: the sets of a coupon in numbers. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct numbers {
	int64_t all, unused, used, revoked;
};

static struct numbers numbers_of(const PGresult *sets, int row)
{
	struct numbers n = { .all = db_int(sets, row, "all_num"),
			     .used = db_int(sets, row, "used_num"),
			     .revoked = db_int(sets, row, "revoked_num") };

	n.unused = n.all - n.used - n.revoked;
	return n;
}

static void numbers_add(struct numbers *sum, struct numbers n)
{
	sum->all += n.all;
	sum->unused += n.unused;
	sum->used += n.used;
	sum->revoked += n.revoked;
}

static void numbers_json(cJSON *object, struct numbers n)
{
	output_number(object, "codes", n.all);
	output_number(object, "unused", n.unused);
	output_number(object, "used", n.used);
	output_number(object, "revoked", n.revoked);
}

static int is_true(const PGresult *sets, int row, const char *column)
{
	return strcmp(db_text(sets, row, column), "t") == 0;
}

static cJSON *set_json(const PGresult *sets, int row)
{
	cJSON *object = output_object();

	output_id(object, "set", db_int(sets, row, "id"));
	output_text(object, "kind", db_text(sets, row, "kind"));
	output_text(object, "form", db_text(sets, row, "form"));
	if (db_is_null(sets, row, "key_version"))
		output_null(object, "key");
	else
		output_number(object, "key", db_int(sets, row, "key_version"));
	output_text(object, "file", db_text(sets, row, "source"));
	output_bool(object, "complete", is_true(sets, row, "is_complete"));
	numbers_json(object, numbers_of(sets, row));
	if (!db_is_null(sets, row, "redeemed_num"))
		output_number(object, "redeemed", db_int(sets, row, "redeemed_num"));
	output_text(object, "created_at", db_text(sets, row, "created_at"));
	output_text(object, "created_by", db_text(sets, row, "created_by"));
	output_text(object, "revoked_at", db_text(sets, row, "revoked_at"));
	output_text(object, "revoked_by", db_text(sets, row, "revoked_by"));
	return object;
}

static void stats_json(const char *coupon, const PGresult *sets)
{
	cJSON *object = output_object(), *list = cJSON_CreateArray();
	struct numbers sum = { 0 };

	for (int row = 0; row < PQntuples(sets); row++) {
		numbers_add(&sum, numbers_of(sets, row));
		cJSON_AddItemToArray(list, set_json(sets, row));
	}
	output_text(object, "coupon", coupon);
	numbers_json(object, sum);
	output_add(object, "sets", list);
	output_print(object);
}

static void line_print(const char *set, const char *kind, struct numbers n, const char *rest)
{
	printf("%-20s %-9s %12" PRId64 " %12" PRId64 " %12" PRId64 " %12" PRId64 "  %s\n", set,
	       kind, n.all, n.unused, n.used, n.revoked, rest);
}

static void rest_format(const PGresult *sets, int row, char *rest, size_t size)
{
	const char *form = db_text(sets, row, "form");

	if (!db_is_null(sets, row, "redeemed_num"))
		snprintf(rest, size, "%s, redeemed %s times", form,
			 db_text(sets, row, "redeemed_num"));
	else
		snprintf(rest, size, "%s%s", *form ? form : db_text(sets, row, "source"),
			 is_true(sets, row, "is_complete") ? "" : ", not complete");
}

static void stats_print(const PGresult *sets)
{
	struct numbers sum = { 0 };

	printf("%-20s %-9s %12s %12s %12s %12s  %s\n", "set", "kind", "codes", "unused", "used",
	       "revoked", "form or file");
	for (int row = 0; row < PQntuples(sets); row++) {
		char rest[256];

		rest_format(sets, row, rest, sizeof(rest));
		numbers_add(&sum, numbers_of(sets, row));
		line_print(db_text(sets, row, "id"), db_text(sets, row, "kind"),
			   numbers_of(sets, row), rest);
	}
	line_print("all", "", sum, "");
}

static int stats_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	char id[DB_NUMBER_SIZE];
	const char *const params[] = { db_number(args_coupon(&ctl->args), id) };
	PGresult *sets;

	PQclear(store_coupon_row(db, sql_query_coupon_show, args_coupon(&ctl->args)));
	sets = db_query(db, sql_query_code_stats, 1, params);
	if (args_has(&ctl->args, "json"))
		stats_json(id, sets);
	else
		stats_print(sets);
	PQclear(sets);
	db_close(db);
	return 0;
}

static const struct option stats_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command codes_stats_command = {
	.name = "codes stats",
	.run = stats_run,
	.argument = "COUPON",
	.options = stats_options,
	.summary = "count the codes of a coupon by their state",
	.detail = "A word counts as one code, however often it is redeemed.",
};

/* couponctl codes import: stores the codes of a file that others made. */
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/codes/import/lanes.h"
#include "ctl/codes/options.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <string.h>

#define REQUEST_SIZE 128

/* The same file for the same coupon is the same set: interrupted, the command goes on with it. */
static int64_t set_find(const struct ctl *ctl, int64_t coupon, const char *path)
{
	char hash[CODE_FILE_HASH_SIZE], request[REQUEST_SIZE], id[DB_NUMBER_SIZE];
	const char *const params[] = { db_number(coupon, id), "imported", request, path };
	struct db *db;
	PGresult *row;
	int64_t set;

	snprintf(request, sizeof(request), "import %s %s", id, code_file_hash(path, hash));
	db = stored_lock(ctl);
	row = db_query(db, sql_query_code_set_request, 1, &params[2]);
	if (PQntuples(row) > 0 && strcmp(db_text(row, 0, "is_revoked"), "t") == 0)
		log_fatal("this file was imported as set %s, which was revoked",
			  db_text(row, 0, "id"));
	if (PQntuples(row) == 0) {
		PQclear(row);
		row = db_query(db, sql_query_code_set_add, 4, params);
	}
	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %s", id);
	set = db_int(row, 0, "id");
	PQclear(row);
	db_close(db);
	return set;
}

static void result_print(const struct ctl *ctl, int64_t set, int64_t coupon,
			 const struct import_counts *counts)
{
	char added[OUTPUT_GROUPED_SIZE], present[OUTPUT_GROUPED_SIZE];
	char refused[OUTPUT_GROUPED_SIZE];
	cJSON *object;

	if (!args_has(&ctl->args, "json")) {
		printf("set %" PRId64 " of coupon %" PRId64
		       ": %s codes stored, %s were there before, %s refused\n",
		       set, coupon, output_grouped(counts->added, added),
		       output_grouped(counts->present, present),
		       output_grouped(counts->refused, refused));
		return;
	}
	object = output_object();
	output_id(object, "set", set);
	output_id(object, "coupon", coupon);
	output_number(object, "stored", counts->added);
	output_number(object, "present", counts->present);
	output_number(object, "refused", counts->refused);
	output_print(object);
}

static int import_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args), set;
	const char *path = ctl->args.arguments[1];
	struct import_counts counts = { 0 };
	struct code_file *file = code_file_open(path, options_format(&ctl->args, path));
	struct db *db = store_postgres_open(ctl);
	struct stored stored;
	char id[DB_NUMBER_SIZE];

	stored_read(&stored, ctl, db);
	set = set_find(ctl, coupon, path);
	import_lanes_run(&(struct import_job){ .ctl = ctl,
					       .stored = &stored,
					       .file = file,
					       .path = path,
					       .set = set,
					       .coupon = coupon },
			 &counts);
	PQclear(db_query(db, sql_query_code_set_complete, 1,
			 (const char *[]){ db_number(set, id) }));
	code_file_close(file);
	stored_fini(&stored);
	db_close(db);
	result_print(ctl, set, coupon, &counts);
	return counts.refused > 0;
}

static const struct option import_options[] = {
	OPTION("format", "FORMAT",
	       "csv or jsonl; default: jsonl if the name ends in .jsonl or .ndjson, else csv"),
	SWITCH("json", "print the counts as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_import_command = {
	.name = "codes import",
	.run = import_run,
	.argument = "COUPON FILE",
	.options = import_options,
	.summary = "store the codes of a file that others made",
	.detail =
		"CSV has a header with the column code; a JSON line is an object with the member\n"
		"code. The other columns or members become metadata. Rows that are wrong, and\n"
		"codes that exist, are named by their line, and the others are stored; then the\n"
		"exit status is 1. Interrupted, run the same command again.",
};

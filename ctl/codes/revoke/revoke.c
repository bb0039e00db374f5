/* couponctl codes revoke: codes by their text or in a file, or a set. */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/codes/revoke/apply.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/options.h"
#include "ctl/codes/revoke/chunk.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct revocation {
	struct db *db;
	struct redis_client *redis;
	struct stored stored;
	struct revoke_chunk *chunk;
	struct revoke_counts counts;
};

static void one_add(struct revocation *r, const char *where, const char *code, size_t len,
		    const char *wrong)
{
	revoke_chunk_add(r->chunk, &r->stored, where, code, len, wrong);
	if (r->chunk->n == REVOKE_CHUNK)
		revoke_chunk_run(r->chunk, r->db, r->redis, &r->counts);
}

static void file_revoke(struct revocation *r, const char *path, enum sheet_format format)
{
	struct code_file *file = code_file_open(path, format);
	struct text_buffer where = { 0 };
	struct code_row row;

	while (code_file_next(file, &row)) {
		char line[32];

		snprintf(line, sizeof(line), ":%" PRId64 ": ", row.line);
		text_buffer_clear(&where);
		text_add_string(&where, path);
		text_add_string(&where, line);
		one_add(r, where.data, row.code, row.code_len, row.wrong);
	}
	text_buffer_fini(&where);
	code_file_close(file);
}

static void codes_revoke(struct ctl *ctl, struct revocation *r)
{
	const struct args *args = &ctl->args;
	const char *path = args_text(args, "file");

	r->db = store_changing_open(ctl);
	r->redis = store_redis_open(ctl);
	stored_read(&r->stored, ctl, r->db);
	r->chunk = calloc(1, sizeof(*r->chunk));
	check(r->chunk != NULL);
	for (int i = 0; i < args->arguments_n; i++)
		one_add(r, "", args->arguments[i], strlen(args->arguments[i]), NULL);
	if (path)
		file_revoke(r, path, options_format(args, path));
	revoke_chunk_run(r->chunk, r->db, r->redis, &r->counts);
	revoke_chunk_fini(r->chunk);
	free(r->chunk);
	stored_fini(&r->stored);
	redis_client_free(r->redis);
	db_close(r->db);
}

static int codes_run(struct ctl *ctl)
{
	struct revocation r = { 0 };
	cJSON *object;

	codes_revoke(ctl, &r);
	if (args_has(&ctl->args, "json")) {
		object = output_object();
		output_number(object, "revoked", r.counts.revoked);
		output_number(object, "revoked_before", r.counts.before);
		output_number(object, "refused", r.counts.refused);
		output_print(object);
	} else {
		printf("%" PRId64 " revoked, %" PRId64 " revoked before, %" PRId64 " refused\n",
		       r.counts.revoked, r.counts.before, r.counts.refused);
	}
	return r.counts.refused > 0;
}

static PGresult *set_revoke(const struct ctl *ctl, struct db *db, const char *id)
{
	PGresult *row = db_query(db, sql_query_code_set_coupon, 1, &id);
	struct redis_client *redis = store_redis_open(ctl);
	int64_t coupon;

	if (PQntuples(row) == 0)
		log_fatal("there is no set %s", id);
	coupon = db_int(row, 0, "coupon_id");
	PQclear(row);
	PQclear(db_query(db, sql_query_code_set_revoke, 1, &id));
	revocations_apply(db, redis, coupon);
	redis_client_free(redis);
	return db_query(db, sql_query_code_set_revoked, 1, &id);
}

static int set_run(struct ctl *ctl, int64_t set)
{
	struct db *db = stored_lock(ctl);
	char id[DB_NUMBER_SIZE];
	PGresult *row = set_revoke(ctl, db, db_number(set, id));
	cJSON *object;

	if (args_has(&ctl->args, "json")) {
		object = output_object();
		output_id(object, "set", set);
		output_id(object, "coupon", db_int(row, 0, "coupon_id"));
		output_text(object, "revoked_by", db_text(row, 0, "revoked_by"));
		output_text(object, "revoked_at", db_text(row, 0, "revoked_at"));
		output_print(object);
	} else {
		printf("set %s of coupon %s is revoked, by %s at %s\n", id,
		       db_text(row, 0, "coupon_id"), db_text(row, 0, "revoked_by"),
		       db_text(row, 0, "revoked_at"));
	}
	PQclear(row);
	db_close(db);
	return 0;
}

static int revoke_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t set = args_id(args, "set");
	int ways = (set != 0) + args_has(args, "file") + (args->arguments_n > 0);

	if (ways != 1)
		args_fail("codes revoke takes codes, or --file, or --set; see couponctl codes "
			  "revoke --help");
	return set ? set_run(ctl, set) : codes_run(ctl);
}

static const struct option revoke_options[] = {
	OPTION("file", "FILE", "the codes of this file, CSV with a column code, or JSON lines"),
	OPTION("format", "FORMAT",
	       "of the file: csv or jsonl; default: jsonl if the name ends in .jsonl or .ndjson"),
	OPTION("set", "SET", "all codes of this set that are not used"),
	SWITCH("json", "print what was done as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_revoke_command = {
	.name = "codes revoke",
	.run = revoke_run,
	.argument = "[CODE…]",
	.options = revoke_options,
	.summary = "revoke codes, the codes of a file, or a set",
	.detail =
		"What is used stays used. Codes that are used or do not exist are named, and the\n"
		"others revoked; then the exit status is 1. Repeated, it changes nothing.",
};

/* couponctl codes word: one code for all. */
#include "codes/text.h"
#include "common/log/log.h"
#include "ctl/codes/stored.h"
#include "ctl/output.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORD_LEAST 3

static void word_read(const struct args *args, char text[CODE_OTHERS_SIZE])
{
	const char *word = args->arguments[1];

	if (code_text_spell(word, strlen(word), text) || strlen(text) < WORD_LEAST)
		args_fail("WORD is \"%s\": allowed are 3 to 64 bytes of printable ASCII, not "
			  "counting spaces and dashes",
			  word);
}

/* The set of this coupon that has the word; 0: no code has its text. Another's ends the process. */
static int64_t present_find(struct db *db, const char *text, int64_t coupon)
{
	PGresult *row = db_query(db, sql_query_code_text, 1, &text);
	int64_t set = PQntuples(row) > 0 ? db_int(row, 0, "set_id") : 0;

	if (set &&
	    (db_int(row, 0, "coupon_id") != coupon || strcmp(db_text(row, 0, "kind"), "word") != 0))
		log_fatal("\"%s\" exists: %s, of set %" PRId64 " of coupon %s", text,
			  db_text(row, 0, "kind"), set, db_text(row, 0, "coupon_id"));
	if (set && strcmp(db_text(row, 0, "state"), "revoked") == 0)
		log_fatal("\"%s\" was revoked, in set %" PRId64 ": choose another word", text, set);
	PQclear(row);
	return set;
}

static void generated_refuse(const struct ctl *ctl, struct db *db, const char *word)
{
	struct code_found found;
	struct stored stored;

	stored_read(&stored, ctl, db);
	if (code_book_find(stored.book, word, strlen(word), &found) == 0)
		log_fatal("\"%s\" exists: a generated code, of set %" PRId64, word, found.set->id);
	stored_fini(&stored);
}

static int64_t word_store(struct db *db, const char *word, const char *text, int64_t coupon)
{
	char id[DB_NUMBER_SIZE], set[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql_query_code_set_add, 4,
				 (const char *[]){ db_number(coupon, id), "word", NULL, NULL });
	int64_t number;

	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %s", id);
	number = db_int(row, 0, "id");
	PQclear(row);
	row = db_query(db, sql_query_code_word, 4,
		       (const char *[]){ db_number(number, set), id, text, word });
	if (PQntuples(row) == 0)
		log_fatal("\"%s\" was stored by another command at this moment", text);
	PQclear(row);
	PQclear(db_query(db, sql_query_code_set_complete, 1, (const char *[]){ set }));
	return number;
}

static int word_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args), set;
	const char *word = ctl->args.arguments[1];
	char text[CODE_OTHERS_SIZE];
	struct db *db;

	word_read(&ctl->args, text);
	db = stored_lock(ctl);
	generated_refuse(ctl, db, word);
	db_run(db, "BEGIN");
	set = present_find(db, text, coupon);
	if (!set)
		set = word_store(db, word, text, coupon);
	db_run(db, "COMMIT");
	db_close(db);
	if (args_has(&ctl->args, "json"))
		printf("{\"set\":\"%" PRId64 "\",\"coupon\":\"%" PRId64 "\"}\n", set, coupon);
	else
		printf("set %" PRId64 ": the word %s of coupon %" PRId64 "\n", set, text, coupon);
	return 0;
}

static const struct option word_options[] = {
	SWITCH("json", "print {\"set\":\"SET\",\"coupon\":\"COUPON\"}"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_word_command = {
	.name = "codes word",
	.run = word_run,
	.argument = "COUPON WORD",
	.options = word_options,
	.summary = "make a word one code for all users, up to the limit of each",
	.detail = "Case, spaces and dashes do not matter. Repeated, it changes nothing.",
};

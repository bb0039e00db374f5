/* couponctl codes show: which code a text is, and what has become of it. */
#include "codes/text.h"
#include "common/check.h"
#include "ctl/codes/stored.h"
#include "ctl/table.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <string.h>

struct shown {
	PGresult *row;
	struct text_buffer code; /* in its one spelling */
	char receive[RECEIVE_SIZE];
};

static PGresult *generated_row(struct db *db, const struct code_found *found)
{
	char set[DB_NUMBER_SIZE], serial[DB_NUMBER_SIZE];

	return db_query(db, sql_query_code_serial, 2,
			(const char *[]){ db_number(found->set->id, set),
					  db_number(found->serial, serial) });
}

/* The spelling of a text that is of the form of the row. */
static void generated_spell(struct text_buffer *code, const PGresult *row, const char *text)
{
	char spelled[CODE_WIDTH_MAX];
	struct ff1_string string;
	struct code_form form;

	stored_form(&form, row, 0, "pattern");
	check(code_form_read(&form, text, strlen(text), &string) == 0);
	code_form_write(&form, &string, spelled);
	text_add(code, spelled, form.width);
}

static int shown_find(struct shown *shown, struct db *db, const struct stored *stored,
		      const char *text)
{
	char spelled[CODE_OTHERS_SIZE];
	const char *const params[] = { spelled };
	struct code_found found;

	if (code_book_find(stored->book, text, strlen(text), &found) == 0) {
		shown->row = generated_row(db, &found);
		generated_spell(&shown->code, shown->row, text);
	} else if (code_text_spell(text, strlen(text), spelled) == 0) {
		shown->row = db_query(db, sql_query_code_text, 1, params);
		if (PQntuples(shown->row) > 0)
			text_add_string(&shown->code, db_text(shown->row, 0, "spelling"));
	}
	if (!shown->row || PQntuples(shown->row) == 0)
		return -1;
	stored_receive(shown->row, 0, db_int(shown->row, 0, "coupon_id"), shown->receive);
	return 0;
}

static void shown_print(const struct shown *shown)
{
	const PGresult *row = shown->row;

	printf("code %s, %s, of set %s of coupon %s\n  state    %s", shown->code.data,
	       db_text(row, 0, "kind"), db_text(row, 0, "set_id"), db_text(row, 0, "coupon_id"),
	       db_text(row, 0, "state"));
	if (*shown->receive)
		printf(" by user %s at %s\n  receive  %s", db_text(row, 0, "user_id"),
		       db_text(row, 0, "used_at"), shown->receive);
	else if (!db_is_null(row, 0, "revoked_at"))
		printf(" by %s at %s", db_text(row, 0, "revoked_by"),
		       db_text(row, 0, "revoked_at"));
	if (!db_is_null(row, 0, "metadata"))
		printf("\n  metadata %s", db_text(row, 0, "metadata"));
	putchar('\n');
}

static void shown_json(const struct shown *shown)
{
	const PGresult *row = shown->row;
	const char *metadata = db_text(row, 0, "metadata");
	cJSON *object = output_object();

	output_text(object, "code", shown->code.data);
	output_text(object, "kind", db_text(row, 0, "kind"));
	output_id(object, "set", db_int(row, 0, "set_id"));
	output_id(object, "coupon", db_int(row, 0, "coupon_id"));
	output_text(object, "state", db_text(row, 0, "state"));
	output_text(object, "user", db_text(row, 0, "user_id"));
	output_text(object, "receive", shown->receive);
	output_text(object, "used_at", db_text(row, 0, "used_at"));
	output_text(object, "revoked_at", *shown->receive ? "" : db_text(row, 0, "revoked_at"));
	output_text(object, "revoked_by", *shown->receive ? "" : db_text(row, 0, "revoked_by"));
	if (*metadata)
		output_add(object, "metadata", cJSON_CreateRaw(metadata));
	else
		output_null(object, "metadata");
	output_print(object);
}

static void absent_tell(const struct stored *stored, const char *text)
{
	struct text_buffer words = { 0 };

	text_add_string(&words, "there is no code \"");
	text_add_shown(&words, text, strlen(text));
	text_add_string(&words, "\"");
	fprintf(stderr, "couponctl: %s", words.data);
	if (stored->unread > 0)
		fprintf(stderr,
			", unless it is one of %lld codes of key %d, which the file of keys lacks",
			(long long)stored->unread, stored->unread_key);
	fputc('\n', stderr);
	text_buffer_fini(&words);
}

static int show_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	struct shown shown = { 0 };
	struct stored stored;
	int absent;

	stored_read(&stored, ctl, db);
	absent = shown_find(&shown, db, &stored, ctl->args.argument);
	if (absent)
		absent_tell(&stored, ctl->args.argument);
	else if (args_has(&ctl->args, "json"))
		shown_json(&shown);
	else
		shown_print(&shown);
	PQclear(shown.row);
	text_buffer_fini(&shown.code);
	stored_fini(&stored);
	db_close(db);
	return absent ? 1 : 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command codes_show_command = {
	.name = "codes show",
	.run = show_run,
	.argument = "CODE",
	.options = show_options,
	.summary = "show the set, the coupon and the state of a code",
	.detail =
		"Case, spaces and dashes do not matter. The exit status is 1 if there is no such\n"
		"code.",
};

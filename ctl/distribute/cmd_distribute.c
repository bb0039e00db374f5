/*
 * couponctl distribute: gives a coupon to each listed user, through the gateway.
 *
 * The idempotency key of a listed user is distribute/NAME/REPEAT. With the user and the coupon it
 * names one giving, whatever list, line or run it comes from: it never gives two coupons. A run
 * first reads from PostgreSQL which keys were given, and asks for the others.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/distribute/distribute.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_ALLOWED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define NAME_MAX_BYTES 40
#define CONNECTIONS 8
#define CONNECTIONS_MAX 64
#define DELAY_MS 50
#define PATIENCE_S 300

static const char *const refused_columns[] = { "user", "line", "status", "message", NULL };

struct distribution {
	const char *name;
	struct run_plan plan;
	struct list list;
	char *refused_path; /* NULL: the answer lists them */
	struct sheet refused;
	cJSON *refused_users;   /* of the answer; NULL: they are written */
	int64_t issued_before;  /* users of the list who had the coupon when this run began */
	int64_t counts[ENDS_N]; /* of users, at the end */
	int64_t left_n, refused_n;
	struct run_report run;
};

static void options_read(struct distribution *one, const struct args *args)
{
	const char *path = args_required(args, "users"), *name = args_text(args, "name"),
		   *refused = args_text(args, "refused"), *end = strrchr(path, '.');
	static const enum list_format formats[] = { LIST_LINES, LIST_CSV, LIST_JSONL };
	int is_csv = args_has(args, "delimiter") ||
		     (end && (strcasecmp(end, ".csv") == 0 || strcasecmp(end, ".tsv") == 0));
	enum list_format format = is_csv                                  ? LIST_CSV
				  : end && strcasecmp(end, ".jsonl") == 0 ? LIST_JSONL
									  : LIST_LINES_GUESSED;

	if (args_has(args, "format")) {
		format = formats[args_choice(args, "format", 0)];
		if (format != LIST_CSV && args_has(args, "delimiter"))
			args_fail("--delimiter is given with --format %s: allowed is csv",
				  args_text(args, "format"));
	}
	if (format == LIST_JSONL && args_has(args, "no-heading"))
		args_fail("--no-heading is given with --format jsonl: allowed are lines and csv");
	one->list = (struct list){ .path = path,
				   .format = format,
				   .delimiter = csv_delimiter_read(args, path),
				   .column = args_text(args, "column"),
				   .has_no_heading = args_has(args, "no-heading"),
				   .with_repeats = args_has(args, "repeats") };
	one->plan.coupon = args_id_argument(args);
	one->name = name ? name : "1";
	if (!*one->name || strlen(one->name) > NAME_MAX_BYTES ||
	    one->name[strspn(one->name, NAME_ALLOWED)])
		args_fail("--name is \"%s\": allowed are 1 to %d letters, digits and . _ -",
			  one->name, NAME_MAX_BYTES);
	snprintf(one->plan.prefix, sizeof(one->plan.prefix), "distribute/%s/", one->name);
	if (refused && !*refused)
		args_fail("--refused is \"\": allowed is the path of a file");
	if (refused && strcmp(refused, "-") == 0) {
		if (!args_has(args, "json"))
			args_fail("--refused is \"-\": allowed is the path of a file, and - with "
				  "--json");
		one->refused_users = checked(cJSON_CreateArray());
	} else if (refused) {
		one->refused_path = checked(strdup(refused));
	} else {
		check(asprintf(&one->refused_path, "%s.%lld.%s.refused.csv", path,
			       (long long)one->plan.coupon, one->name) > 0);
	}
	one->refused = (struct sheet){ .columns = refused_columns,
				       .csv_end = CSV_END,
				       .reader = sheet_reader_read(args, SHEET_CSV) };
	one->plan.connections_n = (uint32_t)args_number(args, "connections", 1, CONNECTIONS_MAX,
							CONNECTIONS);
	one->plan.rate = args_number(args, "rate", 1, 10000000, 0);
	one->plan.target_us = args_number(args, "delay-ms", 1, 60000, DELAY_MS) * 1000;
	one->plan.patience_us = args_number(args, "patience-s", 1, 86400 * 30, PATIENCE_S) *
				1000000;
}

/*
 * Opens the file of refused users, which has the order of the list. Its .part is locked from here
 * on: two runs that would write the same file exclude each other. A file that is no such file is
 * not replaced, nor is the list itself: an interrupted run would drop the users who were not asked
 * for yet.
 */
static void refused_open(struct distribution *one)
{
	static const char heading[] = "user,line,status,message" CSV_END;
	char head[sizeof(heading) - 1];
	FILE *before;
	size_t n;
	int is_refused, is_list;

	sheet_begin(&one->refused, one->refused_path);
	before = fopen(one->refused_path, "re");
	is_refused = !before && errno == ENOENT;
	n = before ? fread(head, 1, sizeof(head), before) : 0;
	is_list = before && file_has_name(fileno(before), one->list.path);
	if (before)
		fclose(before);
	is_refused |= before && (n == 0 || (n == sizeof(head) && memcmp(head, heading, n) == 0));
	if (is_refused && !is_list)
		return;
	file_new_drop(&one->refused.new);
	if (is_refused)
		args_fail("--refused: %s is the list: name another file", one->refused_path);
	args_fail("--refused: %s exists but is not a file of refused users: name another file",
		  one->refused_path);
}

/* What the file of refused users has of an end: a word for it, and a sentence. */
static const char *end_status(enum end end)
{
	if (end >= END_REJECTED)
		return answer_status(ANSWER_REJECTED);
	if (end >= END_INVALID)
		return end == END_INVALID ? "invalid" : "duplicate";
	return answer_status((enum answer)(end - END_ANSWERED));
}

static const char *end_text(enum end end)
{
	static const char *const wrong[] = {
		"the line has no valid user id", "the user is listed before",
		"the user is listed more often than the highest limit allows"
	};

	if (end > END_REJECTED)
		return reason_text((enum reason)(end - END_REJECTED));
	if (end == END_REJECTED)
		return answer_text(ANSWER_REJECTED);
	return end >= END_INVALID ? wrong[end - END_INVALID]
				  : answer_text((enum answer)(end - END_ANSWERED));
}

/* Counts how the users have ended, and writes or lists those that were refused. */
static void ends_write(struct distribution *one)
{
	for (uint32_t i = 0; i < one->list.n; i++) {
		const struct listed *user = &one->list.users[i];
		const char *text = list_text(&one->list, i), *message;
		char why[USER_ID_WHY_SIZE], line[NUMBER_SIZE];
		struct text_buffer shown = { 0 };
		cJSON *object;

		one->counts[user->end]++;
		one->left_n += !end_is_final(user->end);
		if (!end_is_final(user->end) || user->end == END_ISSUED)
			continue;
		one->refused_n++;
		if (one->refused_path && sheet_failed(&one->refused))
			continue;
		message = end_text(user->end);
		if (user->end == END_INVALID) {
			user_id_why(text, user->len, why);
			message = why;
			text_add_shown(&shown, text, user->len);
		} else {
			text_add(&shown, text, user->len);
		}
		if (one->refused_path) {
			sheet_row(&one->refused,
				  (const struct cell[]){ { .text = shown.data, .len = shown.len },
							 cell_text(number_text(user->line, line)),
							 cell_text(end_status(user->end)),
							 cell_text(message) });
		} else {
			object = checked(cJSON_CreateObject());
			checked(cJSON_AddStringToObject(object, "user",
							shown.data ? shown.data : ""));
			output_number(object, "line", user->line);
			output_text(object, "status", end_status(user->end));
			output_text(object, "message", message);
			cJSON_AddItemToArray(one->refused_users, object);
		}
		text_buffer_fini(&shown);
	}
	if (one->refused_path)
		sheet_end(&one->refused, FILE_REPLACE);
}

static void report_print(const struct distribution *one, int as_json)
{
	cJSON *object = output_object(), *refused = output_object(), *number;
	int64_t us = one->run.duration_us;
	char text[OUTPUT_GROUPED_SIZE];

	/* The numbers of users by their status. */
	for (int end = END_ISSUED + 1, next; end < ENDS_N; end = next) {
		const char *status = end_status((enum end)end);
		int64_t n = 0;

		for (next = end; next < ENDS_N && strcmp(end_status((enum end)next), status) == 0;)
			n += one->counts[next++];
		if (n > 0)
			output_number(refused, status, n);
	}

	output_id(object, "coupon", one->plan.coupon);
	output_text(object, "name", one->name);
	output_number(object, "listed", one->list.n);
	output_number(object, "settled", one->list.n - one->left_n);
	output_number(object, "issued", one->counts[END_ISSUED]);
	output_number(object, "issued_before", one->issued_before);
	output_add(object, "refused", refused);
	output_bool(object, "finished", one->left_n == 0);
	output_text(object, "refused_file", one->refused_path);
	if (one->refused_users)
		output_add(object, "refused_users", one->refused_users);
	output_number(object, "duration_us", us);
	output_number(object, "rate",
		      us > 0 ? (int64_t)(one->run.answered_n * 1e6 / (double)us) : 0);
	if (as_json) {
		output_print(object);
		return;
	}

	output_template("coupon {coupon}, distribution {name}\n"
			"listed           {listed:,12}\n"
			"issued           {issued:,12}\n"
			"[issued_before   before this run {issued_before:,12}\n]",
			object);
	cJSON_ArrayForEach(number, refused)
		printf("%-16s %12s\n", number->string,
		       output_grouped(strtoll(number->valuestring, NULL, 10), text));
	output_number(object, "left", one->left_n);
	output_number(object, "refused_n", one->refused_n);
	snprintf(text, sizeof(text), "%.1f", (double)us / 1e6);
	output_text(object, "seconds", text);
	output_template("[left left             {left:,12}\n]"
			"[refused_n the users without a coupon are in {refused_file}\n]"
			"[duration_us {seconds} s, {rate:,} users/s\n]",
			object);
	cJSON_Delete(object);
}

static int distribute_run(struct ctl *ctl)
{
	struct distribution one = { 0 };
	struct db *db;
	PGresult *row;
	int n;

	options_read(&one, &ctl->args);
	gateway_address_read(&one.plan.address, &ctl->config, 0, CTL_AWAY);
	db = store_postgres_open(ctl);
	store_by_set(db, ctl);
	row = store_coupon_row(db, sql_query_coupon_issued, one.plan.coupon);
	if (strcmp(column_text(row, 0, "status"), "draft") == 0)
		log_fatal("coupon %lld is a draft: publish it first", (long long)one.plan.coupon);
	PQclear(row);
	list_read(&one.list);
	if (one.refused_path)
		refused_open(&one);

	/* The users to whom an earlier run has given the coupon are done. */
	db_run(db, "BEGIN READ ONLY");
	db_pages_begin(db, sql_query_distribute_issued, postgres_number(one.plan.coupon),
		       postgres_text(one.plan.prefix));
	do {
		PGresult *page = db_page(db);

		n = PQntuples(page);
		for (int k = 0; k < n; k++) {
			const char *user = column_text(page, k, "user_id"),
				   *digits = column_text(page, k, "key") + strlen(one.plan.prefix);
			int64_t repeat, i;

			/* A key whose end is no repeat is of something else. */
			if (id_parse(digits, strlen(digits), &repeat) || repeat > LIST_REPEATS_MAX)
				continue;
			i = list_find(&one.list, user, strlen(user), (uint32_t)repeat);
			/* A user coupon that was taken back and kept its slot is there twice. */
			if (i < 0 || one.list.users[i].end != END_WAITING)
				continue;
			one.list.users[i].end = END_ISSUED;
			one.issued_before++;
		}
		PQclear(page);
	} while (n > 0);
	db_pages_end(db);
	db_run(db, "COMMIT");

	db_close(db);
	run(&one.list, &one.plan, &one.run);
	ends_write(&one);
	report_print(&one, args_has(&ctl->args, "json"));
	list_fini(&one.list);
	free(one.refused_path);

	switch (one.run.end) {
	case RUN_DONE:
		return one.refused_n > 0 ? CTL_REFUSED : CTL_DONE;
	case RUN_INTERRUPTED:
		say("interrupted; run the same command again to go on");
		return CTL_STOPPED;
	case RUN_IMPATIENT:
		say("stopped, because nothing was issued or refused for "
		    "--patience-s: %s; run the same command again to go on",
		    one.run.why);
		return CTL_STOPPED;
	case RUN_FAILED:
		break;
	}
	say("stopped: %s", one.run.why);
	return CTL_FAILED;
}

static const struct option distribute_options[] = {
	OPTION("users", "FILE",
	       "the users, one id a line, a column of CSV, or a member of JSON lines"),
	OPTION_WORDS("format", "FORMAT", WORDS("lines", "csv", "jsonl"),
		     "of FILE: lines, csv or jsonl; default: csv with --delimiter, or if its name "
		     "ends in .csv or .tsv, jsonl if it ends in .jsonl, otherwise lines"),
	DELIMITER_OPTION,
	OPTION("column", "NAME",
	       "the column or member that has the users; default: user or user_id. With "
	       "--no-heading the number of the column"),
	SWITCH("no-heading", "the first line lists a user, whatever it looks like"),
	SWITCH("repeats", "a user that is listed several times gets as many coupons; default: one, "
			  "and the others are refused as duplicate"),
	OPTION("name", "NAME",
	       "of this distribution, default 1: under one name a user gets a coupon once"),
	OPTION("refused", "FILE",
	       "the users without a coupon, as CSV; default: FILE of --users, ID, NAME and "
	       "refused.csv. With --json - lists them in the answer"),
	SPREADSHEET_OPTION,
	OPTION("rate", "R", "users a second, at most; default: no limit"),
	OPTION("delay-ms", "MS",
	       "answers that take so much longer than the fastest one make it slower; default 50"),
	OPTION("connections", "C", "connections to the gateway; default 8"),
	OPTION("patience-s", "S",
	       "stop when for so long no request was issued or refused; default 300"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command distribute_command = {
	.name = "distribute",
	.run = distribute_run,
	.argument = "ID",
	.options = distribute_options,
	.summary = "give a coupon to listed users",
	.detail = "Connects to COUPON_LISTEN, as coupon-rush does. Run the same command again\n"
		  "after it was stopped, killed or interrupted (Ctrl-C): it goes on, and no user\n"
		  "gets a second coupon. Refused users are asked for again. Nothing is begun if\n"
		  "FILE is not in the format: if a line has another delimiter or number of\n"
		  "columns, or CSV no heading with the column.",
};

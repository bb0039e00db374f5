/* couponctl distribute: gives a coupon to each listed user, through the gateway. */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/distribute/issued.h"
#include "ctl/distribute/report.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_ALLOWED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define CONNECTIONS 8
#define CONNECTIONS_MAX 64
#define DELAY_MS 50
#define PATIENCE_S 300

struct distribution {
	struct list_options list_options;
	struct list list;
	struct state state;
	struct state_file state_file;
	struct refused refused;
	struct book *book;
	int64_t issued_before;
	char *state_path, *refused_path;
};

static enum list_format format_read(const struct args *args, const char *path)
{
	const char *text = args_text(args, "format");
	size_t len = strlen(path);

	if (!text)
		return len > 4 && strcmp(path + len - 4, ".csv") == 0 ? LIST_CSV : LIST_LINES;
	if (strcmp(text, "lines") == 0)
		return LIST_LINES;
	if (strcmp(text, "csv") == 0)
		return LIST_CSV;
	args_fail("--format is \"%s\": allowed are lines and csv", text);
}

static void name_read(struct state *state, const struct args *args)
{
	const char *name = args_text(args, "name");

	if (!name)
		name = "1";
	if (!*name || strlen(name) > STATE_NAME_MAX || name[strspn(name, NAME_ALLOWED)])
		args_fail("--name is \"%s\": allowed are 1 to %d letters, digits and . _ -", name,
			  STATE_NAME_MAX);
	snprintf(state->name, sizeof(state->name), "%s", name);
}

/* The option's value, or FILE.COUPON.NAME and a suffix. */
static char *path_read(const struct distribution *one, const struct args *args, const char *option,
		       const char *suffix)
{
	const char *text = args_text(args, option);
	char *path;

	if (text && !*text)
		args_fail("--%s is \"\": allowed is the path of a file", option);
	check((text ? asprintf(&path, "%s", text)
		    : asprintf(&path, "%s.%lld.%s.%s", one->list_options.path,
			       (long long)one->state.coupon, one->state.name, suffix)) > 0);
	return path;
}

static void options_read(struct distribution *one, const struct args *args)
{
	const char *path = args_required(args, "users");

	one->list_options = (struct list_options){
		.path = path,
		.format = format_read(args, path),
		.has_heading = args_has(args, "heading"),
		.with_repeats = args_has(args, "repeats"),
	};
	one->state.coupon = args_coupon(args);
	one->state.with_repeats = one->list_options.with_repeats;
	name_read(&one->state, args);
	one->state_path = path_read(one, args, "state", "state");
	one->refused_path = path_read(one, args, "refused", "refused.csv");
}

static void plan_read(struct run_plan *plan, const struct args *args)
{
	plan->connections_n = (uint32_t)args_number(args, "connections", 1, CONNECTIONS_MAX,
						    CONNECTIONS);
	plan->rate = args_number(args, "rate", 1, 10000000, 0);
	plan->target_us = args_number(args, "delay-ms", 1, 60000, DELAY_MS) * 1000;
	plan->patience_us = args_number(args, "patience-s", 1, 86400 * 30, PATIENCE_S) * 1000000;
}

/* The state file must be of this distribution and of the same list. */
static void state_match(struct distribution *one, const struct state *before)
{
	const char *what = NULL;

	if (before->coupon != one->state.coupon)
		what = "another coupon";
	else if (strcmp(before->name, one->state.name) != 0)
		what = "a distribution with another --name";
	else if (before->print != one->list.print || before->users != one->list.n)
		what = "a list that had another content, format or heading";
	else if (before->with_repeats != one->state.with_repeats)
		what = "a run that differs in --repeats";
	if (what)
		log_fatal("--state: %s is of %s: name another file, or begin anew with --again; "
			  "who has a coupon of this distribution gets no second one",
			  one->state_path, what);
	one->state = *before;
}

/* Both are locked before either is changed: other runs may name one of them alone. */
static void files_open(struct distribution *one, const struct args *args)
{
	struct state before;
	int has_state, is_again = args_has(args, "again");

	state_open(&one->state_file, one->state_path);
	refused_open(&one->refused, one->refused_path,
		     csv_reader_of(args_has(args, "spreadsheet")));
	has_state = !is_again && state_read(&one->state_file, &before);
	/* A file that is there without a state file may be anything. */
	if (!has_state && !is_again && one->refused.bytes > 0)
		log_fatal("--refused: %s exists, and %s does not: name another file, or begin anew "
			  "with --again",
			  one->refused_path, one->state_path);
	one->state.print = one->list.print;
	one->state.users = one->list.n;
	if (has_state)
		state_match(one, &before);
	else
		state_write(&one->state_file, &one->state);
	refused_begin(&one->refused, one->state.refused_bytes);
}

static void coupon_check(struct db *db, int64_t coupon)
{
	PGresult *row = store_coupon_row(db, sql_query_coupon_issued, coupon);

	if (strcmp(db_text(row, 0, "status"), "draft") == 0)
		log_fatal("coupon %lld is a draft: publish it first", (long long)coupon);
	PQclear(row);
}

static void begin(struct distribution *one, const struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);

	coupon_check(db, one->state.coupon);
	list_read(&one->list, &one->list_options);
	files_open(one, &ctl->args);
	one->book = book_new(&one->list, (uint32_t)one->state.settled, one->state.counts);
	one->issued_before = one->state.counts[END_ISSUED] +
			     issued_read(one->book, db, one->state.coupon, one->state.name);
	list_index_free(&one->list);
	db_close(db);
}

static void end(struct distribution *one)
{
	refused_close(&one->refused);
	state_close(&one->state_file);
	book_free(one->book);
	list_fini(&one->list);
	free(one->state_path);
	free(one->refused_path);
}

static int distribute_run(struct ctl *ctl)
{
	struct distribution one = { .book = NULL };
	struct gateway_address address;
	char coupon[DB_NUMBER_SIZE];
	struct run_plan plan = { .coupon = coupon, .name = one.state.name, .address = &address };
	struct run_files files = { .state = &one.state,
				   .refused = &one.refused,
				   .state_file = &one.state_file };
	struct run_report result = { .end = RUN_DONE };
	struct report report = { .state = &one.state, .run = &result };
	int status;

	options_read(&one, &ctl->args);
	plan_read(&plan, &ctl->args);
	db_number(one.state.coupon, coupon);
	gateway_address_read(&address, ctl->config.listen);
	begin(&one, ctl);
	run(one.book, &plan, &files, &result);
	report.issued_before = one.issued_before;
	report.state_path = one.state_path;
	report.refused_path = one.refused_path;
	report_print(&report, args_has(&ctl->args, "json"));
	status = report_status(&report);
	end(&one);
	return status;
}

static const struct option distribute_options[] = {
	OPTION("users", "FILE", "the users, one id a line, or the first column of CSV"),
	OPTION("format", "FORMAT", "of FILE: lines or csv; default: csv if its name ends in .csv"),
	SWITCH("heading", "the first line of FILE names the columns; of CSV a first column user or "
			  "user_id is taken for that anyway"),
	SWITCH("repeats", "a user that is listed several times gets as many coupons; default: one, "
			  "and the others are refused as duplicate"),
	OPTION("name", "NAME",
	       "of this distribution, default 1: under one name a user gets a coupon once"),
	OPTION("state", "FILE", "how far it is; default: FILE of --users, ID, NAME and state"),
	OPTION("refused", "FILE",
	       "the users without a coupon, as CSV; default: the same with refused.csv"),
	SPREADSHEET_OPTION,
	SWITCH("again", "begin anew, and replace both files: refused users are asked for again"),
	OPTION("rate", "R", "users a second, at most; default: no limit"),
	OPTION("delay-ms", "MS",
	       "answers that take so much longer than the fastest one make it slower; default 50"),
	OPTION("connections", "C", "connections to the gateway; default 8"),
	OPTION("patience-s", "S",
	       "stop when for so long no request was issued or refused; default 300"),
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command distribute_command = {
	.name = "distribute",
	.run = distribute_run,
	.argument = "ID",
	.options = distribute_options,
	.summary = "give a coupon to listed users",
	.detail = "Connects to COUPON_LISTEN, as coupon-rush does. Run the same command again "
		  "after it\n"
		  "was stopped, killed or interrupted (Ctrl-C): it goes on, and no user gets a "
		  "second\n"
		  "coupon.",
};

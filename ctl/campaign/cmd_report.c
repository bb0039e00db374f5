/* couponctl report: what became of campaigns, by day. */
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "ctl/times.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static const char *const columns[] = { "coupon",   "name",          "day",        "issued",
				       "claimed",  "refused",       "refused_by", "rejected",
				       "voided",   "held",          "used",       "rolled_back",
				       "discount", "discount_back", "currency",   NULL };
#define COLUMNS_N (sizeof(columns) / sizeof(columns[0]) - 1)

/* The day of the option as an argument of a statement; SQL's NULL: it is not given. */
static struct postgres_argument day_argument(const struct args *args, const char *option)
{
	const char *text = args_text(args, option);
	int64_t ms;

	if (text && time_form(text, &ms) != TIME_DAY)
		args_fail("%s is \"%s\": allowed is a day as 2026-12-24", say_option(option), text);
	return postgres_text(text);
}

/* As CSV or JSON lines; amounts stay in the smallest unit, and texts have their quotes. */
static void sheet_write(const struct args *args, const PGresult *days)
{
	const char *path = args_text(args, "out");
	struct sheet sheet = { .format = sheet_format_read(args, path),
			       .columns = columns,
			       .csv_end = CSV_END };

	sheet.reader = sheet_reader_read(args, sheet.format);
	sheet_begin(&sheet, path);
	for (int row = 0; row < PQntuples(days) && !sheet_failed(&sheet); row++) {
		struct cell cells[COLUMNS_N];

		for (size_t i = 0; i < COLUMNS_N; i++) {
			const char *text = column_text(days, row, columns[i]);

			cells[i] = strcmp(columns[i], "name") == 0 ||
						   strcmp(columns[i], "day") == 0 ||
						   strcmp(columns[i], "coupon") == 0 ||
						   strcmp(columns[i], "currency") == 0
					   ? cell_text(text)
					   : cell_json(text);
		}
		sheet_row(&sheet, cells);
	}
	sheet_end(&sheet, FILE_REPLACE);
}

static int report_run(struct ctl *ctl)
{
	static const char head[] = "coupon               day             issued      claimed      "
				   "refused     rejected       voided         held         used  "
				   "rolled back        discount      given back\n";
	const struct args *args = &ctl->args;
	int64_t coupon = args_id_argument(args);
	int all = args_has(args, "all"), as_json = args_has(args, "json");
	struct postgres_argument from = day_argument(args, "from"), to = day_argument(args, "to");
	struct db *db;
	PGresult *days;

	if (!coupon == !all)
		args_fail("report takes either a coupon or --all%s", say_help("report"));
	if (from.text && to.text && strcmp(from.text, to.text) > 0)
		args_fail("%s is \"%s\", after %s, \"%s\": no day is in between",
			  say_option("from"), from.text, say_option("to"), to.text);
	db = store_postgres_open(ctl);
	if (coupon)
		PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
	days = db_ask(db, sql_query_report_days, db_id(coupon), from, to);
	db_close(db);

	if (args_has(args, "out") || args_has(args, "format")) {
		sheet_write(args, days);
		PQclear(days);
		return 0;
	}
	if (!as_json)
		fputs(head, stdout);
	for (int row = 0; row < PQntuples(days); row++) {
		cJSON *object = output_object();
		const char *currency = column_text(days, row, "currency");

		output_row(object, days, row);
		if (!as_json) {
			output_money(object, "discount", currency);
			output_money(object, "discount_back", currency);
		}
		output_say(object,
			   "{coupon:-20} {day}  {issued:,12} {claimed:,12} {refused:,12} "
			   "{rejected:,12} {voided:,12} {held:,12} {used:,12} {rolled_back:,12} "
			   "{discount:15|-} {discount_back:15|-}[currency  {currency}]\n",
			   as_json);
	}
	PQclear(days);
	return 0;
}

const struct command report_command = {
	.name = "report",
	.run = report_run,
	.argument = "[ID]",
	.options = OPTIONS(
		SWITCH("all", "all campaigns, instead of one"),
		OPTION("from", "DAY", "the first day, as 2026-12-24; default: the first of all"),
		OPTION("to", "DAY", "the last day; default: the last of all"),
		OPTION_WORDS("format", "FORMAT", sheet_format_names,
			     "csv or jsonl, with amounts in the smallest unit of the currency"),
		OPTION("out", "FILE",
		       "the file to write in this format, which appears when it is complete; "
		       "default: standard output"),
		SPREADSHEET_OPTION),
	.summary = "print by day what was issued, refused, used and taken off",
	.detail = "The days are those of each campaign's time zone. claimed: of the issued,\n"
		  "those by a code. refused: requests; --json says by which status. held, used,\n"
		  "rolled back: receives, by orders. discount: what uses took off; given back:\n"
		  "of that, by rollbacks and other amounts, on the day when they came.",
};

/* couponctl codes generate: a set of new codes, written to a file. */
#include "codes/chance.h"
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/codes/generate/allocation.h"
#include "ctl/codes/options.h"
#include "ctl/codes/generate/request.h"
#include "ctl/file.h"
#include "ctl/output.h"
#include "ctl/postgres.h"
#include "ctl/progress.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define COUNT_MAX 1000000000
#define CHUNK 4096
#define WANTED_SIZE 1024

struct generation {
	int64_t coupon, count;
	const char *file;
	enum sheet_format format;
	struct code_form form;
};

static void generation_read(const struct args *args, struct generation *g)
{
	char why[CODE_WHY_SIZE];

	args_required(args, "count");
	*g = (struct generation){
		.coupon = args_coupon(args),
		.count = args_number(args, "count", 1, COUNT_MAX, 0),
		.file = args_required(args, "out"),
		.format = options_format(args, NULL),
	};
	if (!*g->file)
		args_fail("--out is \"\": needed is the name of a file");
	options_form(args, &g->form);
	if (code_chance_check(&g->form, 0, 0, g->count, why))
		args_fail("%s", why);
}

/* All that decides what is in the file. */
static void wanted_write(const struct generation *g, char wanted[WANTED_SIZE])
{
	check(snprintf(wanted, WANTED_SIZE,
		       "coupon %" PRId64 "\ncount %" PRId64
		       "\npattern %s\nalphabet %s\nformat %s\n",
		       g->coupon, g->count, g->form.pattern, g->form.alphabet,
		       sheet_format_names[g->format]) < WANTED_SIZE);
}

static void codes_write(struct sheet *sheet, const struct generation *g,
			const struct allocation *allocation)
{
	static char codes[CHUNK * CODE_WIDTH_MAX];
	char coupon[DB_NUMBER_SIZE], set[DB_NUMBER_SIZE];
	struct cell cells[] = { { .len = g->form.width },
				cell_text(db_number(g->coupon, coupon)),
				cell_text(db_number(allocation->set, set)) };
	struct progress progress = { 0 };
	size_t n;

	for (int64_t done = 0; done < g->count; done += (int64_t)n) {
		n = g->count - done < CHUNK ? (size_t)(g->count - done) : CHUNK;
		code_space_write(allocation->space, &g->form, allocation->first + done, n, codes);
		for (size_t i = 0; i < n; i++) {
			cells[0].text = codes + i * g->form.width;
			sheet_row(sheet, cells);
		}
		if (ferror(sheet->file)) /* a full disk: file_new_place() tells */
			break;
		progress_show(&progress, "codes", done + (int64_t)n, g->count);
	}
	progress_end(&progress);
}

static void file_write(const struct generation *g, const struct allocation *allocation)
{
	static const char *const columns[] = { "code", "coupon", "set", NULL };
	struct sheet sheet = { .format = g->format, .columns = columns };
	struct file_new file;

	file_new_open(&file, g->file);
	sheet.file = file.stream;
	sheet_head(&sheet);
	codes_write(&sheet, g, allocation);
	sheet_fini(&sheet);
	file_new_place(&file, FILE_KEEP);
}

static void result_print(const struct ctl *ctl, const struct generation *g, int64_t set)
{
	char count[OUTPUT_GROUPED_SIZE], chance[CODE_CHANCE_SIZE];
	cJSON *object;

	if (!args_has(&ctl->args, "json")) {
		printf("set %" PRId64 ": %s codes of coupon %" PRId64 " in %s\n"
		       "%s\n",
		       set, output_grouped(g->count, count), g->coupon, g->file,
		       code_chance_text(&g->form, g->count, chance));
		return;
	}
	object = output_object();
	output_id(object, "set", set);
	output_id(object, "coupon", g->coupon);
	output_number(object, "count", g->count);
	output_text(object, "pattern", g->form.pattern);
	output_text(object, "file", g->file);
	output_print(object);
}

/* The set of the request: a new one, or that of an interrupted command. Nothing else has it. */
static void set_take(struct allocation *allocation, struct request *request, const struct ctl *ctl,
		     const struct generation *g, const char *wanted, int is_there)
{
	allocation_begin(allocation, ctl,
			 &(struct allocation_wish){ .request = request->id,
						    .file = g->file,
						    .coupon = g->coupon,
						    .count = g->count,
						    .form = &g->form });
	if (allocation->is_revoked)
		log_fatal("the set %" PRId64 " of this unfinished command was revoked: remove "
			  "\"%s\" to begin anew",
			  allocation->set, request->path);
	if (is_there && allocation->is_new)
		log_fatal(
			"the file \"%s\" exists, but PostgreSQL does not have its set: it was put "
			"back to an earlier moment; move the file and \"%s\" away to begin anew",
			g->file, request->path);
	if (request->is_new)
		request_write(request, wanted);
	allocation_commit(allocation);
}

static int generate_run(struct ctl *ctl)
{
	char wanted[WANTED_SIZE];
	struct allocation allocation;
	struct generation g;
	struct request request;
	int is_there;

	generation_read(&ctl->args, &g);
	wanted_write(&g, wanted);
	request_open(&request, g.file, wanted);
	/* Without a request it is of somebody else; with one it was put in place just before. */
	is_there = access(g.file, F_OK) == 0;
	if (is_there && request.is_new)
		log_fatal("the file \"%s\" exists: it is never overwritten", g.file);
	set_take(&allocation, &request, ctl, &g, wanted, is_there);
	if (!is_there)
		file_write(&g, &allocation);
	allocation_complete(ctl, allocation.set);
	request_end(&request);
	code_space_free(allocation.space);
	result_print(ctl, &g, allocation.set);
	return 0;
}

static const struct option generate_options[] = {
	OPTION("count", "N", "number of codes, 1 to 1000000000"),
	OPTION("out", "FILE", "the file to make, which must not exist; mode 600"),
	OPTION("format", "FORMAT", "csv (default) or jsonl; the first column is the code"),
	FORM_OPTIONS,
	SWITCH("json", "print the set as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_generate_command = {
	.name = "codes generate",
	.run = generate_run,
	.argument = "COUPON",
	.options = generate_options,
	.summary = "make codes of a coupon, and write them to a file",
	.detail = "Needs --count, --out, and the file of keys, COUPON_CODE_KEYS. After an\n"
		  "interruption run the same command again: it finishes the same set. Meanwhile\n"
		  "FILE.request has what was wanted. A count for which codes could be guessed is\n"
		  "refused, with the arithmetic.",
};

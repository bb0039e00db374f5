#include "ctl/codes/code_file.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "ctl/times.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define KNOWN "code, state, user, valid_to, used_at and metadata"

/* What a column or a member is. */
enum column_kind {
	KIND_UNKNOWN,
	KIND_CODE,
	KIND_STATE,
	KIND_USER,
	KIND_VALID_TO,
	KIND_USED_AT,
	KIND_METADATA,
	KIND_KEPT
};
#define KINDS_N (KIND_KEPT + 1)

/* What a row has of each kind but KIND_KEPT. */
struct value {
	const char *text; /* NULL: nothing */
	size_t len;
};

struct code_file {
	const char *path; /* lent */
	struct code_file_form form;
	struct line_reader reader;
	struct csv_rows *csv; /* NULL: JSON lines */
	struct json_arena *arena;
	int64_t bytes;
	size_t columns_n;
	struct {
		struct text_buffer name; /* as a string of JSON */
		enum column_kind kind;
	} columns[CSV_CELLS_MAX];
	struct text_buffer user, valid_to, used_at, metadata, why; /* of a row */
};

static _Noreturn void failed(const char *path)
{
	log_fatal_as(CTL_INVALID, "the file \"%s\" cannot be read: %s", path, strerror(errno));
}

/* Ends the process: the file is not what it is taken for. Shows the line if it was read last. */
static _Noreturn void refuse(const struct code_file *file, int64_t line, const char *why)
{
	struct text_buffer shown = { 0 };

	if (file->reader.number == line) {
		text_add_string(&shown, " ");
		csv_line_show(&shown, &file->reader);
	}
	log_fatal_as(CTL_INVALID, "the file \"%s\", line %lld%s: %s; nothing was begun", file->path,
		     (long long)line, shown.data ? shown.data : "", why);
}

struct code_file_form code_file_form_read(const struct args *args, const char *path)
{
	struct code_file_form form = { .format = sheet_format_read(args, path),
				       .delimiter = csv_delimiter_read(args, path),
				       .column = args_text(args, "column"),
				       .is_import = strcmp(args->command->name, "codes import") ==
						    0 };

	if (form.format != SHEET_CSV && args_has(args, "delimiter"))
		args_fail("--delimiter is given with --format jsonl: allowed is csv");
	if (!form.column)
		form.column = "code";
	if (form.is_import)
		form.metadata = args_text(args, "metadata");
	return form;
}

static int name_is(const char *name, size_t len, const char *other, size_t other_len)
{
	return len == other_len && strncasecmp(name, other, len) == 0;
}

static enum column_kind kind_find(const struct code_file *file, const char *name, size_t len)
{
	static const struct {
		const char *name;
		enum column_kind kind;
	} known[] = { { "state", KIND_STATE },     { "user", KIND_USER },
		      { "user_id", KIND_USER },    { "valid_to", KIND_VALID_TO },
		      { "used_at", KIND_USED_AT }, { "metadata", KIND_METADATA } };
	const char *kept = file->form.metadata;

	if (name_is(name, len, file->form.column, strlen(file->form.column)))
		return KIND_CODE;
	for (size_t n; kept && *kept; kept += n + (kept[n] == ',')) {
		n = strcspn(kept, ",");
		if (name_is(name, len, kept, n))
			return KIND_KEPT;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (name_is(name, len, known[i].name, strlen(known[i].name)))
			return known[i].kind;
	return KIND_UNKNOWN;
}

static _Noreturn void unknown_refuse(const struct code_file *file, int64_t line, const char *what,
				     const char *name, size_t len)
{
	struct text_buffer shown = { 0 };
	char *why;

	if (len == 0)
		refuse(file, line, "a member has no name");
	text_add_shown(&shown, name, len);
	check(asprintf(&why,
		       "the %s \"%s\" is not known: allowed are " KNOWN "; add --metadata \"%s\" "
		       "to keep it as metadata",
		       what, shown.data, shown.data) >= 0);
	refuse(file, line, why);
}

/* Takes a column of the header. NULL, or what is wrong. */
static const char *column_take(struct code_file *file, const char *name, size_t len)
{
	struct text_buffer *column = &file->columns[file->columns_n].name;
	enum column_kind kind = kind_find(file, name, len);
	const char *error;

	if (len == 0)
		return "a column has no name";
	text_buffer_clear(column);
	text_add_json(column, name, len);
	if (!json_parse(file->arena, column->data, column->len, &error))
		return "the name of a column is not UTF-8 without control characters";
	for (size_t i = 0; i < file->columns_n; i++)
		if (name_is(file->columns[i].name.data, file->columns[i].name.len, column->data,
			    column->len))
			return "two columns have one name";
		else if (kind == KIND_USER && file->columns[i].kind == KIND_USER)
			return "two columns are the user";
	if (kind == KIND_UNKNOWN && file->form.is_import)
		unknown_refuse(file, file->reader.number, "column", name, len);
	file->columns[file->columns_n++].kind = kind;
	return NULL;
}

static void header_read(struct code_file *file)
{
	struct text_buffer columns = { 0 }, shown = { 0 };
	const char *wrong, *kept = file->form.metadata;
	struct csv_row row;

	if (!csv_rows_next(file->csv, &row))
		log_fatal_as(CTL_INVALID,
			     "the file \"%s\" is empty: it needs a header with the column %s",
			     file->path, file->form.column);
	wrong = row.wrong;
	if (!wrong && row.cells_n > CSV_CELLS_MAX)
		wrong = "more than 100 columns were read";
	if (wrong)
		refuse(file, row.line, wrong);
	if (csv_column_find(&row, file->form.column) == CSV_COLUMN_NONE) {
		char other = csv_other_delimiter(file->reader.text, file->reader.len - 1,
						 file->form.delimiter);

		csv_columns_show(&columns, &row);
		text_add_shown(&shown, file->form.column, strlen(file->form.column));
		log_fatal_as(CTL_INVALID,
			     "the file \"%s\", line %lld: the columns are %s, and none is %s: name "
			     "the one that has the codes by --column%s%s; nothing was begun",
			     file->path, (long long)row.line, columns.data,
			     shown.data ? shown.data : "",
			     other ? ", or another --delimiter: the line has a " : "",
			     other ? csv_delimiter_name(other) : "");
	}
	for (size_t i = 0; i < row.cells_n && !wrong; i++)
		wrong = column_take(file, row.cells[i].text, row.cells[i].len);
	if (wrong)
		refuse(file, row.line, wrong);

	/* A column that --metadata lists and the file does not have is a mistake. */
	for (size_t n; kept && *kept; kept += n + (kept[n] == ',')) {
		char name[64];

		n = strcspn(kept, ",");
		snprintf(name, sizeof(name), "%.*s", (int)n, kept);
		if (csv_column_find(&row, name) == CSV_COLUMN_NONE)
			args_fail("--metadata has \"%s\", which is no column of the file \"%s\"",
				  name, file->path);
	}
}

/* From its beginning. */
static void file_begin(struct code_file *file)
{
	rewind(file->reader.file);
	file->reader.number = file->reader.read_bytes = 0;
	if (file->csv)
		csv_rows_free(file->csv);
	if (file->form.format == SHEET_CSV)
		file->csv = csv_rows_new(&file->reader, file->form.delimiter, CSV_SPACES_DROP);
}

/* Reads the next line of JSON that is not empty. Returns 1, or 0 at the end. */
static int json_line_next(struct code_file *file)
{
	struct line_reader *reader = &file->reader;
	int is_line;

	do
		is_line = line_next(reader);
	while (is_line && strspn(reader->text, " \t\r\n") == reader->len);
	return is_line;
}

struct code_file *code_file_open(const char *path, const struct code_file_form *form)
{
	struct code_file *file = checked(calloc(1, sizeof(*file)));
	const cJSON *object, *member;
	const char *error;
	struct csv_row row;
	struct stat stat;

	file->path = path;
	file->form = *form;
	file->arena = json_arena_new();
	file->reader.file = fopen(path, "re");
	if (!file->reader.file || fstat(fileno(file->reader.file), &stat))
		failed(file->path);
	if (!S_ISREG(stat.st_mode))
		log_fatal_as(CTL_INVALID, "the file \"%s\" is not a regular file", path);
	file->bytes = stat.st_size;

	/* Reads all of it: what is not known is noticed before the first code is stored. */
	file_begin(file);
	if (file->form.format == SHEET_CSV) {
		header_read(file);
		while (csv_rows_next(file->csv, &row))
			if (row.wrong)
				refuse(file, row.line, row.wrong);
	}
	while (file->form.is_import && file->form.format != SHEET_CSV && json_line_next(file)) {
		object = json_parse(file->arena, file->reader.text, file->reader.len, &error);
		if (!object || !cJSON_IsObject(object))
			continue; /* the row will be refused */
		cJSON_ArrayForEach(member, object)
		{
			if (kind_find(file, member->string, strlen(member->string)) == KIND_UNKNOWN)
				unknown_refuse(file, file->reader.number, "member", member->string,
					       strlen(member->string));
		}
	}
	if (ferror(file->reader.file))
		failed(file->path);

	file_begin(file);
	if (file->form.format == SHEET_CSV)
		csv_rows_next(file->csv, &row); /* the header */
	return file;
}

void code_file_close(struct code_file *file)
{
	fclose(file->reader.file);
	if (file->csv)
		csv_rows_free(file->csv);
	json_arena_free(file->arena);
	for (size_t i = 0; i < CSV_CELLS_MAX; i++)
		text_buffer_fini(&file->columns[i].name);
	text_buffer_fini(&file->user);
	text_buffer_fini(&file->valid_to);
	text_buffer_fini(&file->used_at);
	text_buffer_fini(&file->metadata);
	text_buffer_fini(&file->why);
	free(file);
}

/* Notes that a value of the row is wrong. */
static void value_refuse(struct code_file *file, struct code_row *row, const char *what,
			 const struct value *value, const char *allowed)
{
	text_buffer_clear(&file->why);
	text_add_string(&file->why, what);
	text_add_string(&file->why, " \"");
	text_add_shown(&file->why, value->text, value->len);
	text_add_string(&file->why, "\": ");
	text_add_string(&file->why, allowed);
	row->wrong = file->why.data;
}

static const char *value_copy(struct text_buffer *copy, const struct value *value)
{
	text_buffer_clear(copy);
	text_add(copy, value->text ? value->text : "", value->len);
	return copy->data;
}

/* Takes all values of the row but its metadata. */
static void values_take(struct code_file *file, struct code_row *row,
			const struct value values[KINDS_N])
{
	static const char *const states[] = { "unused", "used", "revoked" };
	const struct value *state = &values[KIND_STATE], *user = &values[KIND_USER],
			   *used_at = &values[KIND_USED_AT];
	char why[USER_ID_WHY_SIZE];

	row->code = values[KIND_CODE].text;
	row->code_len = values[KIND_CODE].len;
	row->state = state->len > 0 ? NULL : states[0];
	for (size_t i = 0; i < 3; i++)
		if (name_is(state->text, state->len, states[i], strlen(states[i])))
			row->state = states[i];
	row->user = value_copy(&file->user, user);
	row->used_at = value_copy(&file->used_at, used_at);
	row->valid_to = value_copy(&file->valid_to, &values[KIND_VALID_TO]);
	if (!file->form.is_import)
		return;
	if (!row->state) {
		value_refuse(file, row, "its state is", state,
			     "allowed are unused, used and revoked");
	} else if (strcmp(row->state, "used") != 0 && used_at->len > 0) {
		value_refuse(file, row, "it has the used_at", used_at,
			     "allowed is that of a code whose state is used");
	} else if (user->len > 0 && (user->len > USER_ID_MAX ||
				     user_id_valid_length(user->text, user->len) != user->len)) {
		user_id_why(user->text, user->len, why);
		value_refuse(file, row, "its user is", user, why);
	} else if (strlen(row->used_at) != used_at->len) { /* it contains a NUL */
		value_refuse(file, row, "its used_at is", used_at, "allowed is " TIME_ALLOWED);
	} else if (strlen(row->valid_to) != values[KIND_VALID_TO].len) {
		value_refuse(file, row, "its valid_to is", &values[KIND_VALID_TO],
			     "allowed is " TIME_ALLOWED);
	}
}

/* Begins the metadata, or goes on with it, an object of JSON without its last brace. */
static void metadata_name_add(struct code_file *file, const char *name, size_t len)
{
	text_add(&file->metadata, file->metadata.len ? "," : "{", 1);
	text_add(&file->metadata, name, len);
	text_add(&file->metadata, ":", 1);
}

static void metadata_member_add(struct code_file *file, const cJSON *member)
{
	char *value = checked(json_write(member));
	struct text_buffer name = { 0 };

	text_add_json(&name, member->string, strlen(member->string));
	metadata_name_add(file, name.data, name.len);
	text_add_string(&file->metadata, value);
	text_buffer_fini(&name);
	cJSON_free(value);
}

static void metadata_end(struct code_file *file, struct code_row *row)
{
	if (file->metadata.len == 0)
		return;
	text_add(&file->metadata, "}", 1);
	row->metadata = file->metadata.data;
	if (file->metadata.len > CODE_METADATA_MAX)
		row->wrong = "its metadata has more than 4096 bytes as JSON";
}

/* Cells that are empty are left out. */
static void csv_row_take(struct code_file *file, const struct csv_row *csv, struct code_row *row)
{
	struct value values[KINDS_N] = { 0 };
	const struct value *object = &values[KIND_METADATA];
	const cJSON *root, *member;
	const char *error;

	row->line = csv->line;
	row->wrong = csv->wrong; /* the file was changed meanwhile */
	if (row->wrong)
		return;
	for (size_t i = 0; i < csv->cells_n; i++)
		values[file->columns[i].kind] = (struct value){ csv->cells[i].text,
								csv->cells[i].len };
	values_take(file, row, values);
	if (row->wrong || !file->form.is_import)
		return;
	text_buffer_clear(&file->metadata);
	if (object->len > 0) {
		root = json_parse(file->arena, object->text, object->len, &error);
		if (!root || !cJSON_IsObject(root)) {
			value_refuse(file, row, "its metadata is", object,
				     "allowed is an object of JSON");
			return;
		}
		cJSON_ArrayForEach(member, root)
		{
			metadata_member_add(file, member);
		}
	}
	for (size_t i = 0; i < csv->cells_n; i++) {
		if (file->columns[i].kind != KIND_KEPT || csv->cells[i].len == 0)
			continue;
		metadata_name_add(file, file->columns[i].name.data, file->columns[i].name.len);
		text_add_json(&file->metadata, csv->cells[i].text, csv->cells[i].len);
	}
	metadata_end(file, row);
	if (file->metadata.len > 0 && !row->wrong &&
	    !json_parse(file->arena, file->metadata.data, file->metadata.len, &error))
		row->wrong =
			"its metadata has a name twice, or is not UTF-8 without NUL characters";
}

static void json_row_take(struct code_file *file, struct code_row *row)
{
	static const char no_code[] = "it is not an object with the string code";
	struct value values[KINDS_N] = { 0 };
	const cJSON *object, *member, *metadata = NULL;

	row->line = file->reader.number;
	if (file->reader.is_long) {
		row->wrong = "the line is longer than 65536 bytes";
		return;
	}
	object = json_parse(file->arena, file->reader.text, file->reader.len, &row->wrong);
	if (!object)
		return;
	row->wrong = cJSON_IsObject(object) ? NULL : no_code;
	if (row->wrong)
		return;
	cJSON_ArrayForEach(member, object)
	{
		enum column_kind kind = kind_find(file, member->string, strlen(member->string));

		if (kind == KIND_UNKNOWN || kind == KIND_KEPT || cJSON_IsNull(member))
			continue;
		if (values[kind].text || (kind == KIND_METADATA && metadata))
			row->wrong = "two members differ only in case, or both contain the user";
		else if (kind == KIND_METADATA && !cJSON_IsObject(member))
			row->wrong = "its metadata is not an object";
		else if (kind == KIND_METADATA)
			metadata = member;
		else if (!cJSON_IsString(member))
			row->wrong = kind == KIND_CODE
					     ? no_code
					     : "its state, user, valid_to or used_at is not a "
					       "string";
		else
			values[kind] = (struct value){ member->valuestring,
						       strlen(member->valuestring) };
	}
	if (!row->wrong && !values[KIND_CODE].text)
		row->wrong = no_code;
	if (!row->wrong)
		values_take(file, row, values);
	if (row->wrong || !file->form.is_import)
		return;
	text_buffer_clear(&file->metadata);
	cJSON_ArrayForEach(member, metadata)
	{
		metadata_member_add(file, member);
	}
	cJSON_ArrayForEach(member, object)
	{
		if (kind_find(file, member->string, strlen(member->string)) != KIND_KEPT)
			continue;
		metadata_member_add(file, member);
		if (cJSON_GetObjectItemCaseSensitive(metadata, member->string))
			row->wrong = "its metadata has a name twice";
	}
	if (!row->wrong)
		metadata_end(file, row);
}

int code_file_next(struct code_file *file, struct code_row *row)
{
	struct csv_row csv;
	int is_row;

	*row = (struct code_row){ .metadata = "" };
	if (file->csv) {
		is_row = csv_rows_next(file->csv, &csv);
		if (is_row)
			csv_row_take(file, &csv, row);
	} else {
		is_row = json_line_next(file);
		if (is_row)
			json_row_take(file, row);
	}
	if (ferror(file->reader.file)) /* the rows before are done; the next run finds them */
		log_fatal_as(CTL_STOPPED, "the file \"%s\" cannot be read: %s", file->path,
			     strerror(errno));
	return is_row;
}

void code_file_progress(const struct code_file *file, struct progress *progress)
{
	progress_show(progress, "codes", file->reader.read_bytes, file->bytes);
}

char *code_file_hash(const char *path, char out[CODE_FILE_HASH_SIZE])
{
	unsigned char bytes[65536], hash[crypto_hash_sha256_BYTES];
	FILE *file = fopen(path, "re");
	crypto_hash_sha256_state state;
	size_t n;

	if (!file)
		failed(path);
	crypto_hash_sha256_init(&state);
	while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0)
		crypto_hash_sha256_update(&state, bytes, n);
	if (ferror(file))
		failed(path);
	crypto_hash_sha256_final(&state, hash);
	fclose(file);
	return sodium_bin2hex(out, CODE_FILE_HASH_SIZE, hash, sizeof(hash));
}

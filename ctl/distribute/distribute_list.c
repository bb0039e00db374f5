/*
 * The listed users, and how the request for each has ended. The list is a file with one id a line,
 * CSV, one of whose columns has the ids, or objects of JSON, one of whose members has them. Empty
 * lines are skipped. An entry that is no valid id, or that must not be sent, has an end from the
 * beginning.
 *
 * A heading must not get a coupon, nor must a line that was cut into columns wrongly: where the
 * file is not what it is taken for, the process ends before anything was sent.
 */
#include "ctl/distribute/distribute.h"

#include "common/array.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/message/json.h"
#include "common/message/receive.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

_Noreturn static void unreadable(const char *path)
{
	args_fail("--users is \"%s\", which cannot be read: %s", path, strerror(errno));
}

_Noreturn static void refuse(const struct list *list, const struct line_reader *reader,
			     int64_t line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The file is not what it is taken for. `reader` has just read the line, or is NULL. */
static void refuse(const struct list *list, const struct line_reader *reader, int64_t line,
		   const char *format, ...)
{
	struct text_buffer shown = { 0 };
	va_list arguments;
	char *why;

	va_start(arguments, format);
	check(vasprintf(&why, format, arguments) >= 0);
	va_end(arguments);
	if (reader && reader->number == line) {
		text_add_string(&shown, " ");
		csv_line_show(&shown, reader);
	}
	args_fail("--users is \"%s\", line %lld%s: %s; nothing was begun", list->path,
		  (long long)line, shown.data ? shown.data : "", why);
}

static void entry_add(struct list *list, const char *text, size_t len, int64_t line)
{
	size_t valid = user_id_valid_length(text, len);

	if (list->n == LIST_USERS_MAX)
		args_fail("--users is \"%s\", which has too many lines: allowed are %d users",
			  list->path, LIST_USERS_MAX);
	list->users = array_room(list->users, list->n, &list->size, sizeof(*list->users));
	list->users[list->n++] = (struct listed){
		.at = list->text.len,
		.len = (uint32_t)len,
		.line = (uint32_t)line,
		.end = valid == len && valid > 0 && valid <= USER_ID_MAX ? END_WAITING
									 : END_INVALID,
	};
	text_add(&list->text, text, len);
}

/* Finds the column that has the users, by the first row. */
static size_t column_find(const struct list *list, const struct csv_row *row,
			  const struct line_reader *reader)
{
	struct text_buffer columns = { 0 };
	int user = csv_column_find(row, "user"), user_id = csv_column_find(row, "user_id"), found;
	size_t len = reader->len - (reader->text[reader->len - 1] == '\n');
	char other = csv_other_delimiter(reader->text, len, list->delimiter);
	const char *name = list->column;
	int64_t number;

	if (list->has_no_heading) {
		if (!name && row->cells_n == 1)
			return 0;
		if (!name || id_parse(name, strlen(name), &number) ||
		    number > (int64_t)row->cells_n || number > CSV_CELLS_MAX)
			refuse(list, reader, row->line,
			       "%zu columns were read: with --no-heading name the one that has the "
			       "users by its number, --column 1 to %zu",
			       row->cells_n,
			       row->cells_n < CSV_CELLS_MAX ? row->cells_n : CSV_CELLS_MAX);
		return (size_t)number - 1;
	}
	csv_columns_show(&columns, row);
	found = name                         ? csv_column_find(row, name)
		: user_id == CSV_COLUMN_NONE ? user
		: user == CSV_COLUMN_NONE    ? user_id
					     : CSV_COLUMN_TWICE;
	if (found >= 0) {
		text_buffer_fini(&columns);
		return (size_t)found;
	}
	if (found == CSV_COLUMN_TWICE)
		refuse(list, NULL, row->line,
		       "the columns are %s: more than one of them is %s; name one by --column",
		       columns.data, name ? name : "user or user_id");
	refuse(list, NULL, row->line,
	       "the columns are %s, and none is %s: add --column NAME if this is a heading, or "
	       "--no-heading if it lists a user%s%s",
	       columns.data, name ? name : "user or user_id",
	       other ? ", or another --delimiter: the line has a " : "",
	       other ? csv_delimiter_name(other) : "");
}

static void csv_read(struct list *list, struct line_reader *reader)
{
	struct csv_rows *rows = csv_rows_new(reader, list->delimiter, CSV_SPACES_KEEP);
	size_t column = 0;
	int is_first = 1;
	struct csv_row row;

	for (; csv_rows_next(rows, &row); is_first = 0) {
		if (row.wrong)
			refuse(list, reader, row.line, "%s", row.wrong);
		if (is_first)
			column = column_find(list, &row, reader);
		if (!is_first || list->has_no_heading)
			entry_add(list, row.cells[column].text, row.cells[column].len, row.line);
	}
	csv_rows_free(rows);
}

static void objects_read(struct list *list, struct line_reader *reader)
{
	struct json_arena *arena = json_arena_new();

	json_decimals_allow(arena); /* of other members */
	while (line_next(reader)) {
		const cJSON *object, *user = NULL, *user_id = NULL, *one;
		struct user_id of_number;
		int64_t number;
		const char *error = "it is longer than allowed";

		if (line_encoding_wrong(reader))
			refuse(list, reader, reader->number, "%s", line_encoding_wrong(reader));
		if (strspn(reader->text, " \t\r\n") == reader->len)
			continue;
		object = reader->is_long ? NULL
					 : json_parse(arena, reader->text, reader->len, &error);
		if (!object)
			refuse(list, reader, reader->number, "%s", error);
		if (list->column) {
			user = cJSON_GetObjectItemCaseSensitive(object, list->column);
		} else {
			user = cJSON_GetObjectItemCaseSensitive(object, "user");
			user_id = cJSON_GetObjectItemCaseSensitive(object, "user_id");
		}
		one = user ? user : user_id;
		if (cJSON_IsString(one) && !(user && user_id)) {
			entry_add(list, one->valuestring, strlen(one->valuestring), reader->number);
			continue;
		}
		/* As the gateway takes a user. */
		if (json_integer(one, 0, JSON_INTEGER_MAX, &number) || (user && user_id))
			refuse(list, reader, reader->number,
			       "allowed is an object with one %s, a text or an integer",
			       list->column ? list->column : "user or user_id");
		of_number = user_id_of_number(number);
		entry_add(list, of_number.text, of_number.len, reader->number);
	}
	json_arena_free(arena);
}

/*
 * Whether people use the text as the heading of a column of users, whatever stands between the
 * letters.
 */
static int is_usual_heading(const char *text, size_t len)
{
	static const char *const usual[] = {
		"account",   "accountid", "accountnumber", "client",     "clientid",
		"contact",   "customer",  "customerid",    "customerno", "customernumber",
		"customers", "email",     "emailaddress",  "emails",     "externalid",
		"id",        "ids",       "login",         "mail",       "member",
		"memberid",  "name",      "phone",         "uid",        "userid",
		"userids",   "username",  "users",         "uuid",
	};
	char letters[16];
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (strchr(" _-.\"'#", text[i]))
			continue;
		if (n == sizeof(letters) - 1)
			return 0;
		letters[n++] = (char)tolower((unsigned char)text[i]);
	}
	letters[n] = '\0';
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (strcmp(usual[i], letters) == 0)
			return 1;
	return 0;
}

static int text_is(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

#define HEADING_WAYS "add --column NAME if it is one, or --no-heading if it lists a user"

/* Whether the first line is a heading. A line that only looks like one ends the process. */
static int heading_take(const struct list *list, const struct line_reader *reader, const char *text,
			size_t len)
{
	if (list->has_no_heading)
		return 0;
	if (list->column) {
		if (text_is(text, len, list->column))
			return 1;
		refuse(list, reader, reader->number, "--column is \"%s\", which it is not",
		       list->column);
	}
	if (text_is(text, len, "user") || text_is(text, len, "user_id"))
		return 1;
	if (is_usual_heading(text, len))
		refuse(list, reader, reader->number, "this looks like a heading: " HEADING_WAYS);
	return 0;
}

static int has_digit(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (isdigit((unsigned char)text[i]))
			return 1;
	return 0;
}

static void lines_read(struct list *list, struct line_reader *reader)
{
	int is_first = 1, has_heading = 0;

	while (line_next(reader)) {
		size_t len = reader->len - (reader->text[reader->len - 1] == '\n');
		const char *delimiter;

		len -= len > 0 && reader->text[len - 1] == '\r';
		if (len == 0)
			continue;
		if (line_encoding_wrong(reader))
			refuse(list, reader, reader->number, "%s", line_encoding_wrong(reader));
		delimiter = strpbrk(reader->text, ",;\t");
		if (delimiter && list->format == LIST_LINES_GUESSED)
			refuse(list, reader, reader->number,
			       "it has a %s: add --delimiter %s if that is between columns, or "
			       "--format lines if it belongs to the user",
			       csv_delimiter_name(*delimiter), csv_delimiter_name(*delimiter));
		if (is_first)
			has_heading = heading_take(list, reader, reader->text, len);
		if (!is_first || !has_heading)
			entry_add(list, reader->text, len, reader->number);
		is_first = 0;
	}
	if (list->n > 0 && !has_heading && !list->has_no_heading) {
		const struct listed *first = list->users;
		int all_digits = !has_digit(list->text.data, first->len);
		int all_at = !memchr(list->text.data, '@', first->len);

		/* If all others have a digit, or an @, the first one is a heading. */
		for (uint32_t i = 1; i < list->n && (all_digits || all_at); i++) {
			all_digits = all_digits &&
				     has_digit(list_text(list, i), list->users[i].len);
			all_at = all_at && memchr(list_text(list, i), '@', list->users[i].len);
		}
		if (list->n > 1 && (all_digits || all_at))
			refuse(list, NULL, first->line,
			       "\"%.*s\" has no %s, and all other lines have one: it looks like a "
			       "heading: " HEADING_WAYS,
			       (int)(first->len < 100 ? first->len : 100), list->text.data,
			       all_digits ? "digit" : "@");
	}
}

/* Returns the cell that has this user and repeat, or the free cell where it belongs. */
static uint32_t *cell_find(const struct list *list, const char *text, size_t len, uint32_t repeat)
{
	uint64_t at = hash_keyed(text, len) + repeat * UINT64_C(0x9e3779b97f4a7c15);

	for (;; at++) {
		uint32_t *cell = &list->index[at & list->index_mask];
		const struct listed *user = *cell ? &list->users[*cell - 1] : NULL;

		if (!user || (user->repeat == repeat && user->len == len &&
			      memcmp(list_text(list, *cell - 1), text, len) == 0))
			return cell;
	}
}

int64_t list_find(const struct list *list, const char *text, size_t len, uint32_t repeat)
{
	return (int64_t)*cell_find(list, text, len, repeat) - 1;
}

void list_read(struct list *list)
{
	struct line_reader *reader = checked(calloc(1, sizeof(*reader)));
	uint32_t most = list->with_repeats ? LIST_REPEATS_MAX : 1;
	uint64_t cells = 16;
	struct stat about;

	reader->file = fopen(list->path, "re");
	if (!reader->file || fstat(fileno(reader->file), &about))
		unreadable(list->path);
	if (!S_ISREG(about.st_mode))
		args_fail("--users is \"%s\", which is no file: allowed is the path of a file",
			  list->path);
	if (list->format == LIST_CSV)
		csv_read(list, reader);
	else if (list->format == LIST_JSONL)
		objects_read(list, reader);
	else
		lines_read(list, reader);
	if (!feof(reader->file))
		unreadable(list->path);
	fclose(reader->file);
	free(reader);
	if (list->n == 0)
		args_fail("--users is \"%s\", which has no users", list->path);

	/* Numbers the entries of each user, and ends those that are too many. */
	while (cells < (uint64_t)list->n * 2)
		cells *= 2;
	list->index = checked(calloc(cells, sizeof(*list->index)));
	list->index_mask = cells - 1;
	for (uint32_t i = 0; i < list->n; i++) {
		struct listed *user = &list->users[i];
		uint32_t repeat = 0, *cell;

		if (user->end != END_WAITING)
			continue;
		do
			cell = cell_find(list, list_text(list, i), user->len, ++repeat);
		while (*cell && repeat < most);
		if (*cell) {
			user->end = list->with_repeats ? END_TOO_MANY : END_DUPLICATE;
			continue;
		}
		user->repeat = repeat;
		*cell = i + 1;
	}
}

void list_fini(struct list *list)
{
	free(list->index);
	free(list->users);
	text_buffer_fini(&list->text);
}

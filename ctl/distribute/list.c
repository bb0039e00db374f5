/*
 * The listed users, and how the request for each has ended. The list is a file with one id a line,
 * or with CSV, of which the first column counts. Empty lines are skipped. An entry that is no valid
 * id, or that must not be sent, has an end from the beginning.
 */
#include "ctl/distribute/distribute.h"

#include "common/array.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/message/receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

_Noreturn static void unreadable(const char *path)
{
	args_fail("--users is \"%s\", which cannot be read: %s", path, strerror(errno));
}

static FILE *file_open(const char *path)
{
	FILE *file = fopen(path, "re");
	struct stat about;

	if (!file || fstat(fileno(file), &about))
		unreadable(path);
	if (!S_ISREG(about.st_mode))
		args_fail("--users is \"%s\", which is no file: allowed is the path of a file",
			  path);
	return file;
}

static int is_heading(const struct list *list, const char *text, size_t len)
{
	return list->has_heading ||
	       (list->is_csv && ((len == 4 && strncasecmp(text, "user", 4) == 0) ||
				 (len == 7 && strncasecmp(text, "user_id", 7) == 0)));
}

/* Unless it is empty, or the heading. */
static void entry_add(struct list *list, const char *text, size_t len, int64_t line)
{
	size_t valid = user_id_valid_length(text, len);
	int is_first = !list->has_entry;

	if (len == 0 && !list->is_csv)
		return;
	list->has_entry = 1;
	if (is_first && is_heading(list, text, len))
		return;
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

/* The lines, or the first cell of each row. */
static void entries_read(struct list *list)
{
	struct line_reader *reader = checked(calloc(1, sizeof(*reader)));
	struct csv_rows *rows;
	struct csv_row row;

	reader->file = file_open(list->path);
	rows = csv_rows_new(reader, CSV_SPACES_KEEP);
	while (list->is_csv && csv_rows_next(rows, &row)) {
		if (row.wrong)
			args_fail("--users is \"%s\", which is no CSV: line %lld: %s", list->path,
				  (long long)row.line, row.wrong);
		entry_add(list, row.cells[0].text, row.cells[0].len, row.line);
	}
	while (!list->is_csv && line_next(reader)) {
		size_t len = reader->len - (reader->text[reader->len - 1] == '\n');

		len -= len > 0 && reader->text[len - 1] == '\r';
		entry_add(list, reader->text, len, reader->number);
	}
	if (!feof(reader->file))
		unreadable(list->path);
	fclose(reader->file);
	csv_rows_free(rows);
	free(reader);
}

static void index_new(struct list *list)
{
	uint64_t size = 16;

	while (size < (uint64_t)list->n * 2)
		size *= 2;
	list->index = checked(calloc(size, sizeof(*list->index)));
	list->index_mask = size - 1;
}

/* The cell that has this user and repeat, or the free one where it belongs. */
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

/* Numbers the entries of each user, and ends those that are too many. */
static void repeats_count(struct list *list)
{
	uint32_t most = list->with_repeats ? LIST_REPEATS_MAX : 1;

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

void list_read(struct list *list)
{
	entries_read(list);
	if (list->n == 0)
		args_fail("--users is \"%s\", which has no users", list->path);
	index_new(list);
	repeats_count(list);
}

void list_fini(struct list *list)
{
	free(list->index);
	free(list->users);
	text_buffer_fini(&list->text);
}

/* Ends */

const char *end_status(enum end end)
{
	if (end >= END_REJECTED)
		return answer_status(ANSWER_REJECTED);
	if (end >= END_INVALID)
		return end == END_INVALID ? "invalid" : "duplicate";
	return answer_status((enum answer)(end - END_ANSWERED));
}

const char *end_text(enum end end)
{
	static const char *const wrong[] = {
		"the line has no valid user id", "the user is listed before",
		"the user is listed more often than any limit allows"
	};

	if (end > END_REJECTED)
		return reason_text((enum reason)(end - END_REJECTED));
	if (end == END_REJECTED)
		return answer_text(ANSWER_REJECTED);
	return end >= END_INVALID ? wrong[end - END_INVALID]
				  : answer_text((enum answer)(end - END_ANSWERED));
}

static enum end rejected_end(const char *reason)
{
	enum reason found = reason ? reason_find(reason) : REASON_NONE;

	/* Redis had lost the key: the user has its coupon, by an earlier request. */
	return found == REASON_KEY_TAKEN ? END_ISSUED : (enum end)(END_REJECTED + (int)found);
}

enum end end_of_reply(const struct client_reply *reply)
{
	enum answer answer = answer_from_code(reply->code);

	switch (answer) {
	case ANSWER_OK:
	case ANSWER_OUT_OF_STOCK:
	case ANSWER_ENDED:
	case ANSWER_LIMIT_REACHED:
		return (enum end)(END_ANSWERED + (int)answer);
	case ANSWER_REJECTED:
		return rejected_end(reply->reason);
	case ANSWER_NOT_STARTED:
	case ANSWER_PAUSED:
	case ANSWER_BUSY:
	case ANSWER_UNAVAILABLE:
	case ANSWER_UNKNOWN:
	case ANSWER_RATE_LIMITED:
		return END_WAITING;
	case ANSWER_NOT_FOUND:
	case ANSWER_CODE_INVALID:
	case ANSWER_CODE_USED:
	case ANSWER_HELD: /* of uses, as the next ones */
	case ANSWER_USED:
	case ANSWER_EXPIRED:
	case ANSWER_NOT_VALID_YET:
	case ANSWER_VOIDED:
	case ANSWER_BUDGET_SPENT:
	case ANSWER_BELOW_THRESHOLD:
	case ANSWER_BAD_REQUEST:
	case ANSWER_UNAUTHORIZED:
	case ANSWER_FORBIDDEN:
	case ANSWER_TOO_LARGE:
	case ANSWER_KEY_REUSED:
	case ANSWER_COUNT:
		break;
	}
	return ENDS_N;
}

#include "ctl/distribute/list.h"

#include "common/check.h"
#include "common/message/receive.h"
#include "ctl/args.h"
#include "ctl/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOM "\xef\xbb\xbf" /* that some programs put in front of a text in UTF-8 */

/* The mixing function of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t hash(const char *text, size_t len, uint64_t seed, uint64_t other)
{
	uint64_t h = mix(seed ^ len), word;

	for (; len >= sizeof(word); text += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, text, sizeof(word));
		h = mix(h ^ word) + other;
	}
	word = 0;
	memcpy(&word, text, len);
	return mix(h ^ word);
}

static void text_read(struct list *list, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	ssize_t n;

	if (fd < 0 || fstat(fd, &about))
		args_fail("--users is \"%s\", which cannot be read: %s", path, strerror(errno));
	if (!S_ISREG(about.st_mode))
		args_fail("--users is \"%s\", which is no file: allowed is the path of a file",
			  path);
	list->text = malloc((size_t)about.st_size + 1);
	check(list->text != NULL);
	while (list->len < (size_t)about.st_size) {
		n = read(fd, list->text + list->len, (size_t)about.st_size - list->len);
		if (n < 0)
			args_fail("--users is \"%s\", which cannot be read: %s", path,
				  strerror(errno));
		if (n == 0)
			break;
		list->len += (size_t)n;
	}
	close(fd);
}

static struct listed *user_add(struct list *list, const struct list_options *options)
{
	if (list->n == LIST_USERS_MAX)
		args_fail("--users is \"%s\", which has too many lines: allowed are %d users",
			  options->path, LIST_USERS_MAX);
	if (list->n == list->size) {
		list->size = list->size ? list->size * 2 : 4096;
		list->users = realloc(list->users, list->size * sizeof(*list->users));
		check(list->users != NULL);
	}
	return &list->users[list->n++];
}

static int is_heading(const char *text, size_t len, const struct list_options *options)
{
	if (options->has_heading)
		return 1;
	return options->format == LIST_CSV && ((len == 4 && strncasecmp(text, "user", 4) == 0) ||
					       (len == 7 && strncasecmp(text, "user_id", 7) == 0));
}

/* The entry whose text is at `at`, unless it is the heading. */
static void entry_add(struct list *list, const struct list_options *options, size_t at, size_t len,
		      int64_t line)
{
	const char *text = list->text + at;
	size_t valid = user_id_valid_length(text, len);
	int is_first = !list->has_entry;

	list->has_entry = 1;
	if (is_first && is_heading(text, len, options))
		return;
	*user_add(list, options) = (struct listed){
		.at = at,
		.len = (uint32_t)len,
		.line = (uint32_t)line,
		.flaw = valid == len && valid > 0 && valid <= USER_ID_MAX ? END_WAITING
									  : END_INVALID,
	};
}

/* From there on. */
static void lines_read(struct list *list, const struct list_options *options, size_t at)
{
	for (int64_t line = 1; at < list->len; line++) {
		const char *text = list->text + at, *stop = memchr(text, '\n', list->len - at);
		size_t len = stop ? (size_t)(stop - text) : list->len - at;
		size_t shown = len > 0 && text[len - 1] == '\r' ? len - 1 : len;

		if (shown > 0)
			entry_add(list, options, at, shown, line);
		at += len + (stop != NULL);
	}
}

static const char *fault_text(enum csv_fault fault)
{
	switch (fault) {
	case ROW_AFTER_QUOTE:
		return "a field in quotes is followed by something else than a comma";
	case ROW_UNENDED:
		return "a field begins with a quote that no other quote ends";
	case ROW_FINE:
	case ROW_LONG:
	case ROW_QUOTE:
	case ROW_RETURN:
		break;
	}
	return csv_fault_text(fault);
}

/* The first cell of each row; its text replaces the beginning of the row, which is not shorter. */
static void rows_read(struct list *list, const struct list_options *options, size_t at)
{
	struct line_reader *reader = calloc(1, sizeof(*reader));
	struct csv_rows *rows;
	struct csv_row row;

	check(reader != NULL);
	reader->memory = list->text + at;
	reader->memory_len = list->len - at;
	rows = csv_rows_new(reader, CSV_SPACES_KEEP);
	while (csv_rows_next(rows, &row)) {
		size_t begin = at + (size_t)row.at;

		if (row.fault != ROW_FINE)
			args_fail("--users is \"%s\", which is no CSV: line %lld: %s",
				  options->path, (long long)row.line, fault_text(row.fault));
		memcpy(list->text + begin, row.cells[0].text, row.cells[0].len);
		entry_add(list, options, begin, row.cells[0].len, row.line);
	}
	csv_rows_free(rows);
	free(reader);
}

static void entries_read(struct list *list, const struct list_options *options)
{
	size_t at = list->len >= 3 && memcmp(list->text, BOM, 3) == 0 ? 3 : 0;

	if (options->format == LIST_CSV)
		rows_read(list, options, at);
	else
		lines_read(list, options, at);
}

static void index_new(struct list *list)
{
	uint64_t size = 16;

	while (size < (uint64_t)list->n * 2)
		size *= 2;
	list->index = calloc(size, sizeof(*list->index));
	check(list->index != NULL);
	list->index_mask = size - 1;
	/* Ids are chosen by others: none may choose many that have the same hash. */
	check(getrandom(list->seed, sizeof(list->seed), 0) == sizeof(list->seed));
}

/* The cell that has this user and repeat, or the free one where it belongs. */
static uint32_t *cell_find(const struct list *list, const char *text, size_t len, uint32_t repeat)
{
	uint64_t at = hash(text, len, list->seed[0] + repeat, list->seed[1]);

	for (;; at++) {
		uint32_t *cell = &list->index[at & list->index_mask];
		const struct listed *user = *cell ? &list->users[*cell - 1] : NULL;

		if (!user || (user->repeat == repeat && user->len == len &&
			      memcmp(list->text + user->at, text, len) == 0))
			return cell;
	}
}

int64_t list_find(const struct list *list, const char *text, size_t len, uint32_t repeat)
{
	return (int64_t)*cell_find(list, text, len, repeat) - 1;
}

/* Numbers the entries of each user, and flags those that are too many. */
static void repeats_count(struct list *list, int with_repeats)
{
	uint32_t most = with_repeats ? LIST_REPEATS_MAX : 1;

	for (uint32_t i = 0; i < list->n; i++) {
		struct listed *user = &list->users[i];
		uint32_t repeat = 0, *cell;

		if (user->flaw != END_WAITING)
			continue;
		do
			cell = cell_find(list, list->text + user->at, user->len, ++repeat);
		while (*cell && repeat < most);
		if (*cell) {
			user->flaw = with_repeats ? END_TOO_MANY : END_DUPLICATE;
			continue;
		}
		user->repeat = repeat;
		*cell = i + 1;
	}
}

void list_read(struct list *list, const struct list_options *options)
{
	memset(list, 0, sizeof(*list));
	text_read(list, options->path);
	list->print = hash(list->text, list->len, options->format == LIST_CSV,
			   (uint64_t)options->has_heading);
	entries_read(list, options);
	if (list->n == 0)
		args_fail("--users is \"%s\", which has no users", options->path);
	index_new(list);
	repeats_count(list, options->with_repeats);
}

void list_index_free(struct list *list)
{
	free(list->index);
	list->index = NULL;
}

void list_fini(struct list *list)
{
	list_index_free(list);
	free(list->users);
	free(list->text);
	memset(list, 0, sizeof(*list));
}

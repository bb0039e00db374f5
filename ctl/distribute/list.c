#include "ctl/distribute/list.h"

#include "common/check.h"
#include "common/message/user_id.h"
#include "ctl/args.h"
#include "ctl/csv.h"

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

/* A record of one line, without its end. */
static void line_take(char *text, size_t len, size_t *at, struct csv_first *first)
{
	char *stop = memchr(text + *at, '\n', len - *at);

	first->text = text + *at;
	first->len = stop ? (size_t)(stop - first->text) : len - *at;
	first->lines = 1;
	*at += first->len + (stop != NULL);
	if (first->len > 0 && first->text[first->len - 1] == '\r')
		first->len--;
}

static int is_heading(const struct csv_first *first, const struct list_options *options)
{
	if (options->has_heading)
		return 1;
	return options->format == LIST_CSV &&
	       ((first->len == 4 && strncasecmp(first->text, "user", 4) == 0) ||
		(first->len == 7 && strncasecmp(first->text, "user_id", 7) == 0));
}

static void record_add(struct list *list, const struct list_options *options,
		       const struct csv_first *first, size_t line)
{
	size_t valid = user_id_valid_length(first->text, first->len);
	struct listed *user = user_add(list, options);

	*user = (struct listed){
		.at = (uint64_t)(first->text - list->text),
		.len = (uint32_t)first->len,
		.line = (uint32_t)line,
		.flaw = valid == first->len && valid > 0 && valid <= USER_ID_MAX ? END_WAITING
										 : END_INVALID,
	};
}

static void records_read(struct list *list, const struct list_options *options)
{
	size_t at = list->len >= 3 && memcmp(list->text, BOM, 3) == 0 ? 3 : 0, line = 1;
	int is_first = 1;

	while (at < list->len) {
		struct csv_first first = { .lines = 1 };
		size_t begin = at;
		const char *error = NULL;

		if (options->format == LIST_CSV)
			error = csv_record(list->text, list->len, &at, &first);
		else
			line_take(list->text, list->len, &at, &first);
		if (error)
			args_fail("--users is \"%s\", which is no CSV: line %zu: %s", options->path,
				  line, error);
		/* An empty line, not an empty first column. */
		if (first.len > 0 || (at - begin > 2 && options->format == LIST_CSV)) {
			if (!is_first || !is_heading(&first, options))
				record_add(list, options, &first, line);
			is_first = 0;
		}
		line += first.lines;
	}
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
	records_read(list, options);
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

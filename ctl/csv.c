#include "ctl/csv.h"

#include <string.h>

static int needs_quotes(const char *text, size_t len)
{
	if (len == 0 || text[0] == ' ' || text[len - 1] == ' ')
		return 1;
	for (size_t i = 0; i < len; i++)
		if (text[i] == '"' || text[i] == ',' || text[i] == '\r' || text[i] == '\n')
			return 1;
	return 0;
}

void csv_put(FILE *out, const char *text, size_t len)
{
	if (!needs_quotes(text, len)) {
		fwrite_unlocked(text, 1, len, out);
		return;
	}
	putc_unlocked('"', out);
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"')
			putc_unlocked('"', out);
		putc_unlocked(text[i], out);
	}
	putc_unlocked('"', out);
}

/*
 * Reads a field in quotes whose text begins at `*at`; `to` gets the text. NULL, or what is wrong
 * with it.
 */
static const char *quoted_read(char *text, size_t len, size_t *at, char *to, size_t *to_len,
			       size_t *lines)
{
	for (*to_len = 0; *at < len; (*at)++) {
		if (text[*at] == '"') {
			if (*at + 1 >= len || text[*at + 1] != '"') {
				(*at)++;
				return NULL;
			}
			(*at)++;
		}
		*lines += text[*at] == '\n';
		to[(*to_len)++] = text[*at];
	}
	return "a field begins with a quote that no other quote ends";
}

/* Whether the record ends at `at`. */
static int is_end(const char *text, size_t len, size_t at)
{
	return at >= len || text[at] == '\n' ||
	       (text[at] == '\r' && (at + 1 == len || text[at + 1] == '\n'));
}

static const char *field_read(char *text, size_t len, size_t *at, struct csv_first *field)
{
	const char *error;

	field->text = text + *at;
	if (*at < len && text[*at] == '"') {
		(*at)++;
		error = quoted_read(text, len, at, field->text, &field->len, &field->lines);
		if (!error && !is_end(text, len, *at) && text[*at] != ',')
			error = "a field in quotes is followed by something else than a comma";
		return error;
	}
	while (!is_end(text, len, *at) && text[*at] != ',')
		(*at)++;
	field->len = (size_t)(text + *at - field->text);
	return NULL;
}

const char *csv_record(char *text, size_t len, size_t *at, struct csv_first *first)
{
	struct csv_first other = { .lines = 1 };
	const char *error = field_read(text, len, at, &other);

	*first = other;
	while (!error && !is_end(text, len, *at)) {
		(*at)++;
		error = field_read(text, len, at, &other);
	}
	first->lines = other.lines;
	if (*at < len && text[*at] == '\r')
		(*at)++;
	if (*at < len)
		(*at)++;
	return error;
}

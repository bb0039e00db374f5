#include "ctl/rush/coupons.h"

#include "common/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 60 /* bytes of a wrong id that an error shows */

void rush_coupons_fini(struct rush_coupons *coupons)
{
	free(coupons->list);
	memset(coupons, 0, sizeof(*coupons));
}

void rush_coupons_add(struct rush_coupons *coupons, int64_t id)
{
	struct rush_coupon *coupon;

	if (coupons->n == coupons->size) {
		coupons->size = coupons->size ? coupons->size * 2 : 16;
		coupons->list = realloc(coupons->list, coupons->size * sizeof(*coupons->list));
		check(coupons->list != NULL);
	}
	coupon = &coupons->list[coupons->n++];
	coupon->id = id;
	coupon->len = id_format(id, coupon->text);
}

static int coupon_compare(const void *a, const void *b)
{
	const struct rush_coupon *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

int64_t rush_coupons_sort(struct rush_coupons *coupons)
{
	qsort(coupons->list, coupons->n, sizeof(*coupons->list), coupon_compare);
	for (uint32_t i = 1; i < coupons->n; i++)
		if (coupons->list[i].id == coupons->list[i - 1].id)
			return coupons->list[i].id;
	return 0;
}

int64_t rush_coupons_find(const struct rush_coupons *coupons, int64_t id)
{
	struct rush_coupon wanted = { .id = id };
	const struct rush_coupon *found = bsearch(&wanted, coupons->list, coupons->n,
						  sizeof(*coupons->list), coupon_compare);

	return found ? found - coupons->list : -1;
}

/* Adds an id that `where` has; an error names it. */
static void text_add(struct rush_coupons *coupons, const char *text, size_t len, const char *where)
{
	int64_t id;

	if (id_parse(text, len, &id))
		args_fail("%s is \"%.*s\": allowed is an integer from 1 to 9223372036854775807",
			  where, (int)(len < NAMED_MAX ? len : NAMED_MAX), text);
	if (coupons->n == RUSH_COUPONS_MAX)
		args_fail("%s is one coupon too many: allowed are %d", where, RUSH_COUPONS_MAX);
	rush_coupons_add(coupons, id);
}

/* ID,ID,… */
static void list_read(struct rush_coupons *coupons, const char *text)
{
	const char *where = strchr(text, ',') ? "an id of --coupon" : "--coupon";

	for (;;) {
		size_t len = strcspn(text, ",");

		text_add(coupons, text, len, where);
		if (!text[len])
			return;
		text += len + 1;
	}
}

/* One id a line. Empty lines are skipped. */
static void lines_read(struct rush_coupons *coupons, FILE *file, const char *name)
{
	char *line = NULL, where[300];
	size_t room = 0;
	ssize_t len;

	for (int number = 1; (len = getline(&line, &room, file)) >= 0; number++) {
		while (len > 0 && memchr(" \t\r\n", line[len - 1], 4))
			len--;
		if (len == 0)
			continue;
		snprintf(where, sizeof(where), "--coupons-from: line %d of %.200s", number, name);
		text_add(coupons, line, (size_t)len, where);
	}
	free(line);
}

static void file_read(struct rush_coupons *coupons, const char *name)
{
	int is_stdin = strcmp(name, "-") == 0;
	FILE *file = is_stdin ? stdin : fopen(name, "r");

	if (is_stdin)
		name = "standard input";
	if (file)
		lines_read(coupons, file, name);
	if (!file || ferror(file))
		args_fail("--coupons-from: %s cannot be read: %s", name, strerror(errno));
	if (!is_stdin)
		fclose(file);
	if (coupons->n == 0)
		args_fail("--coupons-from: %s has no coupon", name);
}

void rush_coupons_read(struct rush_coupons *coupons, const struct args *args)
{
	const char *list = args_text(args, "coupon"), *file = args_text(args, "coupons-from");
	int64_t twice;

	memset(coupons, 0, sizeof(*coupons));
	if (list && file)
		args_fail("--coupon and --coupons-from are both given: allowed is one of them");
	if (file)
		file_read(coupons, file);
	else
		list_read(coupons, args_required(args, "coupon"));
	twice = rush_coupons_sort(coupons);
	if (twice)
		args_fail("coupon %lld is given twice", (long long)twice);
}

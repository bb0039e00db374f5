#include "codes/space.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>

#define LANES 64
#define TWEAK_SIZE (32 + CODE_TEXT_MAX + CODE_ALPHABET_MAX)

struct code_space {
	struct code_form form;
	struct ff1 *ff1;
};

/*
 * Two spaces with one key have different permutations: the tweak has the form. It never changes, or
 * the codes that exist would be others.
 */
static size_t tweak_write(const struct code_form *form, char tweak[TWEAK_SIZE])
{
	return (size_t)snprintf(tweak, TWEAK_SIZE, "couponmq codes 1 %s %s", form->plain,
				form->alphabet);
}

struct code_space *code_space_new(const struct code_form *form, const struct code_key *key)
{
	struct code_space *space = calloc(1, sizeof(*space));
	char tweak[TWEAK_SIZE];
	size_t len = tweak_write(form, tweak);

	check(space != NULL && len < TWEAK_SIZE);
	space->form = *form;
	space->ff1 = ff1_new(key->bytes, CODE_KEY_BYTES, form->radix, form->free_n, tweak, len);
	return space;
}

void code_space_free(struct code_space *space)
{
	if (!space)
		return;
	ff1_free(space->ff1);
	free(space);
}

static void lanes_write(struct code_space *space, const struct code_form *as, uint64_t first,
			size_t n, char *out)
{
	struct ff1_string strings[LANES];

	for (size_t i = 0; i < n; i++)
		strings[i] = (struct ff1_string){ .first = (first + i) / as->last_n,
						  .last = (first + i) % as->last_n };
	ff1_encrypt(space->ff1, strings, n);
	for (size_t i = 0; i < n; i++)
		code_form_write(as, &strings[i], out + i * as->width);
}

void code_space_write(struct code_space *space, const struct code_form *as, int64_t first, size_t n,
		      char *out)
{
	check(code_forms_same(as, &space->form));
	check(first >= 0 && (unsigned __int128)first + n <= as->size);
	for (size_t i = 0; i < n; i += LANES)
		lanes_write(space, as, (uint64_t)first + i, n - i < LANES ? n - i : LANES,
			    out + i * as->width);
}

static int64_t position_of(const struct code_form *form, const struct ff1_string *string)
{
	unsigned __int128 position = (unsigned __int128)string->first * form->last_n + string->last;

	return position > INT64_MAX ? INT64_MAX : (int64_t)position;
}

/* At most LANES texts. */
static void lanes_read(struct code_space *space, const struct code_text *texts, size_t n,
		       int64_t *positions)
{
	struct ff1_string strings[LANES];
	size_t places[LANES], found_n = 0;

	for (size_t i = 0; i < n; i++) {
		positions[i] = -1;
		if (code_form_read(&space->form, texts[i].text, texts[i].len, &strings[found_n]))
			continue;
		places[found_n++] = i;
	}
	ff1_decrypt(space->ff1, strings, found_n);
	for (size_t i = 0; i < found_n; i++)
		positions[places[i]] = position_of(&space->form, &strings[i]);
}

void code_space_read(struct code_space *space, const struct code_text *texts, size_t n,
		     int64_t *positions)
{
	for (size_t i = 0; i < n; i += LANES)
		lanes_read(space, texts + i, n - i < LANES ? n - i : LANES, positions + i);
}

const struct code_form *code_space_form(const struct code_space *space)
{
	return &space->form;
}

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

int64_t code_space_read(struct code_space *space, const char *text, size_t len)
{
	struct ff1_string string;
	unsigned __int128 position;

	if (code_form_read(&space->form, text, len, &string))
		return -1;
	ff1_decrypt(space->ff1, &string, 1);
	position = (unsigned __int128)string.first * space->form.last_n + string.last;
	return position > INT64_MAX ? -1 : (int64_t)position;
}

const struct code_form *code_space_form(const struct code_space *space)
{
	return &space->form;
}

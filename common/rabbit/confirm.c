#include "common/rabbit/confirm.h"

#include "common/check.h"

#include <stdlib.h>

struct entry {
	void *item; /* NULL: settled */
	int returned;
};

struct confirm_window {
	confirm_fn *done;
	void *context;
	struct entry *ring; /* `size` entries, a power of two; tag t stands at t & (size - 1) */
	size_t size;
	size_t open;
	uint64_t first; /* the oldest tag still open, or `next` */
	uint64_t next;
};

static struct entry *entry_at(const struct confirm_window *window, uint64_t tag)
{
	return &window->ring[tag & (window->size - 1)];
}

struct confirm_window *confirm_new(confirm_fn *done, void *context)
{
	struct confirm_window *window = calloc(1, sizeof(*window));

	check(window != NULL);
	window->done = done;
	window->context = context;
	window->size = 256;
	window->ring = calloc(window->size, sizeof(*window->ring));
	check(window->ring != NULL);
	window->first = window->next = 1;
	return window;
}

void confirm_free(struct confirm_window *window)
{
	if (!window)
		return;
	free(window->ring);
	free(window);
}

static void ring_grow(struct confirm_window *window)
{
	struct confirm_window larger = *window;

	larger.size *= 2;
	larger.ring = calloc(larger.size, sizeof(*larger.ring));
	check(larger.ring != NULL);
	for (uint64_t tag = window->first; tag != window->next; tag++)
		*entry_at(&larger, tag) = *entry_at(window, tag);
	free(window->ring);
	*window = larger;
}

uint64_t confirm_push(struct confirm_window *window, void *item)
{
	check(item != NULL);
	if (window->next - window->first == window->size)
		ring_grow(window);
	*entry_at(window, window->next) = (struct entry){ .item = item };
	window->open++;
	return window->next++;
}

static void entry_settle(struct confirm_window *window, uint64_t tag, enum confirm_result result)
{
	struct entry *entry = entry_at(window, tag);
	void *item = entry->item;

	if (!item)
		return;
	entry->item = NULL;
	window->open--;
	window->done(window->context, item, entry->returned ? CONFIRM_RETURNED : result);
}

int confirm_settle(struct confirm_window *window, uint64_t tag, int multiple,
		   enum confirm_result result)
{
	/* Tag 0 with `multiple` means all so far. */
	if (tag == 0 && multiple)
		tag = window->next - 1;
	if (tag < window->first || tag >= window->next ||
	    (!multiple && !entry_at(window, tag)->item))
		return -1;
	for (uint64_t t = multiple ? window->first : tag; t <= tag; t++)
		entry_settle(window, t, result);
	while (window->first != window->next && !entry_at(window, window->first)->item)
		window->first++;
	return 0;
}

int confirm_return(struct confirm_window *window, int (*same)(const void *item, const void *wanted),
		   const void *wanted)
{
	for (uint64_t tag = window->first; tag != window->next; tag++) {
		struct entry *entry = entry_at(window, tag);

		if (entry->item && !entry->returned && same(entry->item, wanted)) {
			entry->returned = 1;
			return 0;
		}
	}
	return -1;
}

int confirm_return_tag(struct confirm_window *window, uint64_t tag)
{
	if (tag < window->first || tag >= window->next || !entry_at(window, tag)->item ||
	    entry_at(window, tag)->returned)
		return -1;
	entry_at(window, tag)->returned = 1;
	return 0;
}

void confirm_reset(struct confirm_window *window)
{
	for (uint64_t tag = window->first; tag != window->next; tag++)
		entry_settle(window, tag, CONFIRM_LOST);
	window->first = window->next = 1;
}

size_t confirm_open(const struct confirm_window *window)
{
	return window->open;
}

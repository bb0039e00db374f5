/*
 * The listed users: one id a line of a file, or the first column of CSV. Empty lines are skipped.
 * An entry that is no valid id, or that must not be sent, has an end from the beginning.
 */
#ifndef CTL_DISTRIBUTE_LIST_H
#define CTL_DISTRIBUTE_LIST_H

#include "common/message/receive.h"
#include "ctl/distribute/end.h"
#include "ctl/table.h"

#include <stddef.h>
#include <stdint.h>

#define LIST_USERS_MAX 50000000
#define LIST_REPEATS_MAX RECEIVE_SLOT_MAX /* how often a user may be listed, with repeats */

enum list_format { LIST_LINES, LIST_CSV };

struct list_options {
	const char *path;
	enum list_format format;
	int has_heading;  /* the first line that is not empty names the columns */
	int with_repeats; /* a user gets as many coupons as it is listed; otherwise one */
};

struct listed {
	uint64_t at; /* in the text */
	uint32_t len, line;
	uint32_t repeat; /* 1: the user is listed for the first time */
	enum end end;
};

struct list {
	struct text_buffer text; /* the ids */
	struct listed *users;
	uint32_t n, size;
	int has_entry; /* also if it was the heading */
	/* finds a user and its repeat; 0: free, otherwise one more than in users */
	uint32_t *index;
	uint64_t index_mask;
};

/* A file that cannot be read, or has no users, ends the process. */
void list_read(struct list *list, const struct list_options *options);
void list_fini(struct list *list);

static inline const char *list_text(const struct list *list, uint32_t i)
{
	return list->text.data + list->users[i].at;
}

/* Which entry lists this user for the `repeat`th time: its index, or -1. */
int64_t list_find(const struct list *list, const char *text, size_t len, uint32_t repeat);

#endif

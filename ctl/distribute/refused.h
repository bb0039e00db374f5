/*
 * The file of the users that did not get the coupon, in the order of the list: CSV with the columns
 * user, line, status and message. It is locked while a run writes it.
 */
#ifndef CTL_DISTRIBUTE_REFUSED_H
#define CTL_DISTRIBUTE_REFUSED_H

#include "ctl/distribute/list.h"
#include "ctl/table.h"

#include <stdio.h>

struct refused {
	const char *path; /* lent */
	FILE *stream;
	int64_t bytes; /* that are on disk */
	enum csv_reader reader;
};

/*
 * Opens and locks the file, of which `bytes` has the length. Everything that fails here ends the
 * process: another run has it, for instance.
 */
void refused_open(struct refused *refused, const char *path, enum csv_reader reader);
/* Keeps `bytes` of the file and goes on after them; 0: begins it anew. */
void refused_begin(struct refused *refused, int64_t bytes);
void refused_close(struct refused *refused);

void refused_add(struct refused *refused, const struct list *list, uint32_t user, enum end end);

/* Brings all of it to disk. */
void refused_sync(struct refused *refused);

#endif

/*
 * Stores a file of codes over two connections at once: PostgreSQL has work for two processors, and
 * the file is read meanwhile.
 */
#ifndef CTL_CODES_IMPORT_LANES_H
#define CTL_CODES_IMPORT_LANES_H

#include "ctl/codes/import/chunk.h"

struct import_job {
	const struct ctl *ctl;
	const struct stored *stored;
	struct code_file *file;
	const char *path;
	int64_t set, coupon;
};

/* Stores all rows, with progress; tells those that are refused, by ascending lines. */
void import_lanes_run(const struct import_job *job, struct import_counts *counts);

#endif

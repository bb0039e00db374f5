/*
 * A file that is there as a whole or not at all: it is written under the name FILE.part, and
 * renamed when all of it is on the disk. Only its owner may read it. Every function ends the
 * process with a sentence when it fails.
 */
#ifndef CTL_CODES_NEW_FILE_H
#define CTL_CODES_NEW_FILE_H

#include <stdio.h>

struct new_file {
	const char *path; /* lent */
	char *part;
	FILE *file;
};

/* Begins anew; what an interrupted command left is removed. */
void new_file_open(struct new_file *file, const char *path);

/* Puts it in place. A file with this name is replaced, or, unless `replaces`, an error. */
void new_file_place(struct new_file *file, int replaces);

/* Writes the folder of the file to the disk: its names are then as they are now. */
void new_file_folder_sync(const char *path);

#endif

/*
 * A file that appears whole or not at all: it is written beside its place as PATH.part, brought to
 * disk, and renamed. A process that ends before leaves the file that was there. PATH.part is locked
 * meanwhile; one that a killed process has left is replaced. Only the owner may read the file: it
 * names users, or has codes or keys.
 */
#pragma once

#include <stdio.h>

struct file_new {
	char *path, *part;
	FILE *stream; /* buffered; errors show in file_new_place() */
};

/*
 * file_new_open() and file_new_place() end the process with a sentence when they fail.
 *
 * Opens PATH.part. A path that is no regular file, for instance a device, is refused.
 */
void file_new_open(struct file_new *file, const char *path);

/* Whether a file that exists already is replaced, or is an error. */
enum file_place { FILE_REPLACE, FILE_KEEP };

/* Puts the file in its place; else the file that was there is unchanged. */
void file_new_place(struct file_new *file, enum file_place place);

/* Instead of file_new_place(): removes PATH.part. */
void file_new_drop(struct file_new *file);

/*
 * Opens the file, with these flags of open(2) too, and locks it. A new file is readable only by its
 * owner. Returns the descriptor, or -1 with errno: EWOULDBLOCK when another process has the lock.
 */
int file_lock(const char *path, int flags);

/* Whether `fd` is the file that has this name now: its writer may have put another in its place. */
int file_has_name(int fd, const char *path);

/* Brings what was written to the stream to disk. 0, or -1 with errno. */
int file_sync(FILE *stream);
/* Brings the names in the folder of this file to disk. 0, or -1 with errno. */
int file_folder_sync(const char *path);

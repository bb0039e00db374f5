/*
 * A file that appears whole or not at all: it is written beside its place as PATH.part, brought to
 * disk, and renamed. A process that ends before leaves the file that was there. PATH.part is locked
 * meanwhile; one that a killed process has left is replaced. Only the owner may read the file: it
 * names users, or has codes or keys.
 */
#ifndef CTL_FILE_H
#define CTL_FILE_H

#include <stdio.h>

struct file_new {
	char *path, *part;
	FILE *stream; /* buffered; errors show in file_new_end() */
};

/* 0, or -1 with errno. What is there and is no regular file, a device for instance, stays. */
int file_new_begin(struct file_new *file, const char *path);

/* What an errno of these functions means. */
const char *file_error(int error);

/* Whether a file that is there already is replaced, or is an error (EEXIST). */
enum file_place { FILE_REPLACE, FILE_KEEP };

/* Puts the file in its place. 0, or -1 with errno: then the file that was there is unchanged. */
int file_new_end(struct file_new *file, enum file_place place);

/* Instead of file_new_end(): removes PATH.part. */
void file_new_drop(struct file_new *file);

/* As these two, but what fails ends the process with a sentence. */
void file_new_open(struct file_new *file, const char *path);
void file_new_place(struct file_new *file, enum file_place place);

/* Whether `fd` is the file that has this name now: its writer may have put another in its place. */
int file_has_name(int fd, const char *path);

/* Brings what was written to the stream to disk. 0, or -1 with errno. */
int file_sync(FILE *stream);
/* Brings the names in the folder of this file to disk. 0, or -1 with errno. */
int file_folder_sync(const char *path);

#endif

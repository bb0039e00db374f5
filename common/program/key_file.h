/*
 * Files that are read while the program runs: whole, and without waiting. Files with keys are files
 * that only their owner may write, and for secret keys nobody but their owner and group may read.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define KEY_FILE_WHY_SIZE 512
#define KEY_FILE_WRONG_SIZE 128

struct key_file {
	char *text; /* with a NUL behind it */
	size_t len;
	size_t size;
	int is_secret;   /* others may not read it */
	int is_writable; /* others or its group may write it */
};

/* What to say of a file with secret keys that is not `is_secret`. */
#define KEY_FILE_OTHERS "others may read it: allowed is chmod 600, or 640 for a group"

#define KEY_FILE_LATER (-2)

/*
 * Reads a regular file of at most `bytes_max` bytes; a named pipe, a device or a terminal is
 * refused, because it may block. 0, or -1 with what is wrong with the file, or KEY_FILE_LATER with
 * that: it may be good, and the process has no descriptor or no memory left. key_file_wipe()
 * follows a 0.
 */
int key_file_load(struct key_file *file, const char *path, size_t bytes_max,
		  char wrong[KEY_FILE_WRONG_SIZE]);
/* Reads a file with keys. The sentence names the file and what is allowed. */
int key_file_read(struct key_file *file, const char *path, size_t bytes_max,
		  char why[KEY_FILE_WHY_SIZE]);
void key_file_wipe(struct key_file *file);

/* Writes a sentence about what is wrong with the file. Returns -1. */
int key_file_why(const char *path, const char *wrong, char why[KEY_FILE_WHY_SIZE]);

/* Identifies a state of the file, for memcmp(); all 0: there is no file. */
struct key_file_stamp {
	int64_t inode, size;
	struct timespec modified, changed;
};

struct key_file_stamp key_file_stamp(const char *path);

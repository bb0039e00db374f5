#include "common/program/key_file.h"

#include "common/check.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int key_file_why(const char *path, const char *wrong, char why[KEY_FILE_WHY_SIZE])
{
	snprintf(why, KEY_FILE_WHY_SIZE, "the file of keys \"%.250s\" cannot be used: %.200s", path,
		 wrong);
	return -1;
}

/* NULL, or what is wrong with the file. */
static const char *kind_check(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return NULL;
	case S_IFDIR:
		return "it is a folder: allowed is a regular file";
	case S_IFIFO:
		return "it is a named pipe, which may block: allowed is a regular file";
	case S_IFCHR:
	case S_IFBLK:
		return "it is a device, which may block: allowed is a regular file";
	default:
		return "it is not a regular file";
	}
}

int key_file_load(struct key_file *file, const char *path, size_t bytes_max,
		  char wrong[KEY_FILE_WRONG_SIZE])
{
	/* Without O_NONBLOCK it would wait for the writer of a named pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error = 0;
	const char *kind = NULL;
	struct stat stat;
	ssize_t n = 0;

	*file = (struct key_file){ .size = bytes_max + 1 };
	if (fd < 0 || fstat(fd, &stat)) {
		error = errno;
	} else if ((kind = kind_check(stat.st_mode)) == NULL && stat.st_size <= (off_t)bytes_max) {
		file->is_secret = !(stat.st_mode & S_IRWXO);
		file->is_writable = (stat.st_mode & (S_IWGRP | S_IWOTH)) != 0;
		file->text = checked(calloc(1, file->size));
		while ((n = read(fd, file->text + file->len, bytes_max - file->len)) > 0)
			file->len += (size_t)n;
		error = n < 0 ? errno : 0;
	}
	if (fd >= 0)
		close(fd);
	if (file->text && !error)
		return 0;
	key_file_wipe(file);
	if (error || kind)
		snprintf(wrong, KEY_FILE_WRONG_SIZE, "%s", error ? strerror(error) : kind);
	else
		snprintf(wrong, KEY_FILE_WRONG_SIZE, "it is too large: allowed are %zu bytes",
			 bytes_max);
	return error == EMFILE || error == ENFILE || error == ENOMEM ? KEY_FILE_LATER : -1;
}

int key_file_read(struct key_file *file, const char *path, size_t bytes_max,
		  char why[KEY_FILE_WHY_SIZE])
{
	char wrong[KEY_FILE_WRONG_SIZE];
	int failed = key_file_load(file, path, bytes_max, wrong);

	if (!failed && !file->is_writable)
		return 0;
	key_file_why(path,
		     failed ? wrong
			    : "others may write it: allowed is chmod 600, 640 for a group, or 644 "
			      "for public keys",
		     why);
	key_file_wipe(file);
	return failed ? failed : -1;
}

void key_file_wipe(struct key_file *file)
{
	if (file->text)
		OPENSSL_cleanse(file->text, file->size);
	free(file->text);
	*file = (struct key_file){ 0 };
}

struct key_file_stamp key_file_stamp(const char *path)
{
	struct stat now;

	if (stat(path, &now))
		return (struct key_file_stamp){ 0 };
	return (struct key_file_stamp){ .inode = (int64_t)now.st_ino,
					.size = now.st_size,
					.modified = now.st_mtim,
					.changed = now.st_ctim };
}

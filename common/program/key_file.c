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
static const char *file_check(struct key_file *file, int fd, size_t bytes_max, char *large,
			      size_t large_size)
{
	struct stat stat;

	if (fstat(fd, &stat))
		return strerror(errno);
	if (!S_ISREG(stat.st_mode))
		return "it is not a file";
	file->is_secret = !(stat.st_mode & S_IRWXO);
	if (stat.st_mode & (S_IWGRP | S_IWOTH))
		return "others may write it: allowed is chmod 600, 640 for a group, or 644 for "
		       "public keys";
	if (stat.st_size > (off_t)bytes_max) {
		snprintf(large, large_size, "it is too large: allowed are %zu bytes", bytes_max);
		return large;
	}
	return NULL;
}

static int is_scarcity(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

int key_file_read(struct key_file *file, const char *path, size_t bytes_max,
		  char why[KEY_FILE_WHY_SIZE])
{
	/* Without O_NONBLOCK it would wait for the writer of a named pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int error = fd < 0 ? errno : 0;
	const char *wrong;
	char large[64];
	ssize_t n;

	*file = (struct key_file){ .size = bytes_max + 1 };
	wrong = fd < 0 ? strerror(error) : file_check(file, fd, bytes_max, large, sizeof(large));
	if (!wrong) {
		file->text = checked(calloc(1, file->size));
		while ((n = read(fd, file->text + file->len, bytes_max - file->len)) > 0)
			file->len += (size_t)n;
		wrong = n < 0 ? strerror(errno) : NULL;
	}
	if (fd >= 0)
		close(fd);
	if (!wrong)
		return 0;
	key_file_wipe(file);
	key_file_why(path, wrong, why);
	return is_scarcity(error) ? KEY_FILE_LATER : -1;
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

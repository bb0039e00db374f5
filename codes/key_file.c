#include "codes/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORBIDDEN_MODE (S_IWGRP | S_IRWXO)

/* NULL, or what is wrong with the file. */
static const char *file_check(int fd)
{
	struct stat stat;

	if (fstat(fd, &stat))
		return strerror(errno);
	if (!S_ISREG(stat.st_mode))
		return "it is not a file";
	if (stat.st_mode & FORBIDDEN_MODE)
		return "others may read or write it: allowed is chmod 600, or 640 for a group";
	if (stat.st_size > CODE_KEY_FILE_BYTES_MAX)
		return "it is too large: allowed are 65536 bytes";
	return NULL;
}

/* The number of bytes, or -1. */
static ssize_t all_read(int fd, char *text, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size && (n = read(fd, text + len, size - len)) != 0) {
		if (n < 0 && errno != EINTR)
			return -1;
		len += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)len;
}

static int keys_read(struct code_keys *keys, int fd, const char *path, char why[CODE_WHY_SIZE])
{
	char text[CODE_KEY_FILE_BYTES_MAX], wrong[CODE_WHY_SIZE];
	ssize_t len = all_read(fd, text, sizeof(text));
	int failed;

	if (len < 0) {
		snprintf(why, CODE_WHY_SIZE, "the file of keys \"%.300s\" cannot be read: %s", path,
			 strerror(errno));
		return -1;
	}
	failed = code_keys_parse(keys, text, (size_t)len, wrong);
	OPENSSL_cleanse(text, sizeof(text));
	if (failed)
		snprintf(why, CODE_WHY_SIZE, "the file of keys \"%.300s\": %.150s", path, wrong);
	return failed;
}

int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE])
{
	/* Without O_NONBLOCK it would wait for the writer of a named pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = -1;
	const char *wrong = fd < 0 ? strerror(errno) : file_check(fd);

	if (wrong)
		snprintf(why, CODE_WHY_SIZE, "the file of keys \"%.300s\" cannot be used: %s", path,
			 wrong);
	else
		failed = keys_read(keys, fd, path, why);
	if (fd >= 0)
		close(fd);
	return failed;
}

static int64_t ns_of(const struct timespec *time)
{
	return time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

struct code_key_stamp code_key_file_stamp(const char *path)
{
	struct stat now;

	if (stat(path, &now))
		return (struct code_key_stamp){ 0 };
	return (struct code_key_stamp){ .inode = (int64_t)now.st_ino,
					.size = now.st_size,
					.modified_ns = ns_of(&now.st_mtim),
					.changed_ns = ns_of(&now.st_ctim) };
}

int code_key_stamp_equal(const struct code_key_stamp *one, const struct code_key_stamp *other)
{
	return one->inode == other->inode && one->size == other->size &&
	       one->modified_ns == other->modified_ns && one->changed_ns == other->changed_ns;
}

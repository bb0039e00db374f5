#include "ctl/file.h"

#include "common/check.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE 0600
#define BUFFER_BYTES 1048576

int file_sync(FILE *stream)
{
	/* Pipes and terminals have nothing to bring to disk. */
	return fflush(stream) || (fsync(fileno(stream)) && errno != EINVAL) ? -1 : 0;
}

/* Whether `fd` is the file that has this name now: its former writer may have renamed it. */
static int has_name(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static int close_failed(int fd)
{
	int error = errno;

	close(fd);
	errno = error;
	return -1;
}

/* The descriptor of the empty, locked file, or -1. */
static int locked_open(const char *path)
{
	for (;;) {
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE);

		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX | LOCK_NB))
			return close_failed(fd);
		if (has_name(fd, path))
			return ftruncate(fd, 0) ? close_failed(fd) : fd;
		close(fd);
	}
}

static void clear(struct file_new *file)
{
	free(file->path);
	free(file->part);
	memset(file, 0, sizeof(*file));
}

const char *file_error(int error)
{
	if (error == EWOULDBLOCK)
		return "another couponctl is writing it";
	if (error == ENOTSUP)
		return "it is no regular file";
	return strerror(error);
}

int file_new_begin(struct file_new *file, const char *path)
{
	struct stat about;
	int fd, error;

	if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
		memset(file, 0, sizeof(*file));
		errno = S_ISDIR(about.st_mode) ? EISDIR : ENOTSUP;
		return -1;
	}
	*file = (struct file_new){ .path = strdup(path) };
	check(file->path != NULL && asprintf(&file->part, "%s.part", path) > 0);
	fd = locked_open(file->part);
	if (fd < 0) {
		error = errno;
		clear(file);
		errno = error;
		return -1;
	}
	file->stream = fdopen(fd, "w");
	check(file->stream != NULL && setvbuf(file->stream, NULL, _IOFBF, BUFFER_BYTES) == 0);
	return 0;
}

/* Brings the new name to disk. */
static int folder_sync(const char *path)
{
	char *copy = strdup(path);
	int fd, rc;

	check(copy != NULL);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -1;
	rc = fsync(fd) && errno != EINVAL ? -1 : 0;
	close(fd);
	return rc;
}

int file_new_end(struct file_new *file)
{
	/* A write that failed may have left only this mark; the disk is full in most cases. */
	int broken = ferror(file->stream), error;

	if (broken)
		errno = errno ? errno : EIO;
	if (broken || file_sync(file->stream) || rename(file->part, file->path) ||
	    folder_sync(file->path)) {
		error = errno;
		file_new_drop(file);
		errno = error;
		return -1;
	}
	fclose(file->stream);
	clear(file);
	return 0;
}

void file_new_drop(struct file_new *file)
{
	unlink(file->part);
	fclose(file->stream);
	clear(file);
}

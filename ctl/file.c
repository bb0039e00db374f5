#include "ctl/file.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/args.h"

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

int file_has_name(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int file_lock(const char *path, int flags)
{
	int error;

	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags,
			      MODE);

		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			error = errno;
			close(fd);
			errno = error;
			return -1;
		}
		if (file_has_name(fd, path))
			return fd;
		close(fd);
	}
}

static _Noreturn void failed(const char *path)
{
	const char *why = errno == EWOULDBLOCK ? "another couponctl is writing it"
			  : errno == ENOTSUP   ? "it is not a regular file"
			  : errno == EEXIST    ? "it exists already"
					       : strerror(errno);

	log_fatal_as(errno == EWOULDBLOCK ? CTL_AWAY : CTL_FAILED,
		     "the file \"%s\" cannot be written: %s", path, why);
}

void file_new_open(struct file_new *file, const char *path)
{
	struct stat about;
	int fd, is_private;

	if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
		errno = S_ISDIR(about.st_mode) ? EISDIR : ENOTSUP;
		failed(path);
	}
	*file = (struct file_new){ .path = strdup(path) };
	check(file->path != NULL && asprintf(&file->part, "%s.part", path) > 0);

	fd = file_lock(file->part, 0);
	if (fd < 0)
		failed(path);
	/* In a folder of all users somebody else may have made it, to read what is written. */
	is_private = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
		     about.st_uid == geteuid() && about.st_nlink == 1 && (about.st_mode & 077) == 0;
	if (!is_private) {
		if (unlink(file->part))
			failed(path);
		close(fd);
		fd = file_lock(file->part, O_EXCL);
	}
	if (fd < 0 || ftruncate(fd, 0))
		failed(path);
	file->stream = fdopen(fd, "w");
	check(file->stream != NULL && setvbuf(file->stream, NULL, _IOFBF, BUFFER_BYTES) == 0);
}

int file_folder_sync(const char *path)
{
	char *copy = checked(strdup(path));
	int fd, rc;

	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -1;
	rc = fsync(fd) && errno != EINVAL ? -1 : 0;
	close(fd);
	return rc;
}

/* Not every file system can refuse to replace: then a look before has to be enough. */
static int part_rename(const struct file_new *file, enum file_place place)
{
	if (place == FILE_REPLACE)
		return rename(file->part, file->path);
	if (renameat2(AT_FDCWD, file->part, AT_FDCWD, file->path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (access(file->path, F_OK) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(file->part, file->path);
}

static void fini(struct file_new *file)
{
	fclose(file->stream);
	free(file->path);
	free(file->part);
}

void file_new_place(struct file_new *file, enum file_place place)
{
	/* A write that failed may have left only this mark; the disk is full in most cases. */
	int broken = ferror(file->stream), error;

	if (broken)
		errno = errno ? errno : EIO;
	if (broken || file_sync(file->stream) || part_rename(file, place) ||
	    file_folder_sync(file->path)) {
		error = errno;
		unlink(file->part);
		errno = error;
		failed(file->path);
	}
	fini(file);
}

void file_new_drop(struct file_new *file)
{
	unlink(file->part);
	fini(file);
}

#include "ctl/codes/new_file.h"

#include "common/check.h"
#include "common/log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void new_file_open(struct new_file *file, const char *path)
{
	int fd;

	file->path = path;
	check(asprintf(&file->part, "%s.part", path) >= 0);
	unlink(file->part);
	fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		log_fatal("the file \"%s\" cannot be made: %s", file->part, strerror(errno));
	file->file = fdopen(fd, "w");
	check(file->file != NULL);
}

/* Not every file system can refuse to replace: then a look before has to be enough. */
static int part_rename(const struct new_file *file, int replaces)
{
	if (replaces)
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

void new_file_folder_sync(const char *path)
{
	char *copy = strdup(path);
	int fd;

	check(copy != NULL);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		log_fatal("the folder of \"%s\" cannot be written: %s", path, strerror(errno));
	close(fd);
	free(copy);
}

void new_file_place(struct new_file *file, int replaces)
{
	int failed = ferror(file->file) | fflush(file->file) | fsync(fileno(file->file));

	if (fclose(file->file) || failed)
		log_fatal("the file \"%s\" cannot be written: %s", file->part, strerror(errno));
	if (part_rename(file, replaces))
		log_fatal("the file \"%s\" cannot be renamed to \"%s\": %s", file->part, file->path,
			  strerror(errno));
	new_file_folder_sync(file->path);
	free(file->part);
}

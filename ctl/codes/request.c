/*
 * The file: the line HEAD, the lines that say what is wanted, and `request ID`. Without a complete
 * last line nothing was made yet.
 */
#include "ctl/codes/request.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "couponctl codes generate\n"
#define ID_LINE "request "
#define SIZE_MAX_BYTES 4096

static const char *unwritten; /* the path of a new request, to be removed at exit */

static void unwritten_remove(void)
{
	if (unwritten)
		unlink(unwritten);
}

static _Noreturn void failed(const struct request *request, const char *what)
{
	log_fatal("the file \"%s\" cannot be %s: %s", request->path, what, strerror(errno));
}

/* 0, or -1: the one that had it has just removed it. */
static int locked_open(struct request *request)
{
	struct stat stat;

	request->fd = open(request->path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (request->fd < 0)
		failed(request, "opened");
	if (flock(request->fd, LOCK_EX | LOCK_NB)) {
		if (errno == EWOULDBLOCK)
			log_fatal("another couponctl is writing this file: it has \"%s\"",
				  request->path);
		failed(request, "locked");
	}
	if (fstat(request->fd, &stat))
		failed(request, "read");
	if (stat.st_nlink > 0)
		return 0;
	close(request->fd);
	return -1;
}

static void text_read(const struct request *request, char text[SIZE_MAX_BYTES])
{
	ssize_t n = pread(request->fd, text, SIZE_MAX_BYTES - 1, 0);

	if (n < 0)
		failed(request, "read");
	text[n] = '\0';
	if (memchr(text, '\0', (size_t)n) || n == SIZE_MAX_BYTES - 1 ||
	    strncmp(text, HEAD, (size_t)n < strlen(HEAD) ? (size_t)n : strlen(HEAD)) != 0)
		log_fatal("the file \"%s\" is not of couponctl codes generate: move it away",
			  request->path);
}

/* Reads the id at the end; the length of what is before it, or 0: the text is incomplete. */
static size_t lines_before_id(const char *text, struct ulid *id)
{
	const size_t len = strlen(ID_LINE) + ULID_LEN + 1, all = strlen(text);
	const char *line = text + all - len;

	if (all < strlen(HEAD) + len || line[-1] != '\n' || line[len - 1] != '\n' ||
	    strncmp(line, ID_LINE, strlen(ID_LINE)) != 0 ||
	    ulid_parse(id, line + strlen(ID_LINE), ULID_LEN))
		return 0;
	return all - len;
}

/* `is` are the lines of the file, and `wanted` those of this command; each ends with a newline. */
static void wanted_check(const struct request *request, const char *is, const char *wanted)
{
	while (*is || *wanted) {
		size_t n = strcspn(is, "\n"), m = strcspn(wanted, "\n");

		if (n != m || memcmp(is, wanted, n) != 0)
			log_fatal("the file \"%s\" is of an unfinished command with \"%.*s\", and "
				  "this one has \"%.*s\": run that one again, or remove the file "
				  "to give its codes up",
				  request->path, (int)n, is, (int)m, wanted);
		is += n + 1;
		wanted += m + 1;
	}
}

static void new_begin(struct request *request)
{
	struct ulid id;

	ulid_new(&id, clock_wall_ms());
	ulid_format(&id, request->id);
	unwritten = request->path;
	check(atexit(unwritten_remove) == 0);
}

void request_write(struct request *request, const char *wanted)
{
	char text[SIZE_MAX_BYTES];
	int n;

	n = snprintf(text, sizeof(text), HEAD "%s" ID_LINE "%s\n", wanted, request->id);
	check(n > 0 && (size_t)n < sizeof(text) - 1);
	if (ftruncate(request->fd, 0) || pwrite(request->fd, text, (size_t)n, 0) != n ||
	    fsync(request->fd) || file_folder_sync(request->path))
		failed(request, "written");
	unwritten = NULL;
}

void request_open(struct request *request, const char *file, const char *wanted)
{
	char text[SIZE_MAX_BYTES];
	struct ulid id;
	size_t lines;

	check(asprintf(&request->path, "%s.request", file) >= 0);
	while (locked_open(request))
		;
	text_read(request, text);
	lines = lines_before_id(text, &id);
	request->is_new = lines == 0;
	if (request->is_new) {
		new_begin(request);
		return;
	}
	text[lines] = '\0';
	ulid_format(&id, request->id);
	wanted_check(request, text + strlen(HEAD), wanted);
}

void request_end(struct request *request)
{
	if (unlink(request->path) || file_folder_sync(request->path))
		failed(request, "removed");
	close(request->fd);
	free(request->path);
}

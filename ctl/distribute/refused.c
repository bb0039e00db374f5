#include "ctl/distribute/refused.h"

#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADING "user,line,status,message" CSV_END
#define MODE 0600
#define SHOWN_MAX 64 /* bytes of a text that is no user id */

_Noreturn static void failed(const struct refused *refused, const char *why)
{
	log_fatal("--refused: %s cannot be written: %s", refused->path, why);
}

void refused_open(struct refused *refused, const char *path, enum csv_reader reader)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, MODE);
	struct stat about;

	*refused = (struct refused){ .path = path, .reader = reader };
	if (fd < 0)
		failed(refused, strerror(errno));
	if (fstat(fd, &about) || !S_ISREG(about.st_mode))
		failed(refused, "it is no regular file");
	if (flock(fd, LOCK_EX | LOCK_NB))
		failed(refused, "another couponctl distribute is writing it");
	refused->bytes = about.st_size;
	refused->stream = fdopen(fd, "w");
	if (!refused->stream)
		failed(refused, strerror(errno));
}

void refused_begin(struct refused *refused, int64_t bytes)
{
	int fd = fileno(refused->stream);

	if (refused->bytes < bytes)
		failed(refused, "it has less than the state file says: begin anew with --again");
	if (ftruncate(fd, bytes) || lseek(fd, 0, SEEK_END) < 0)
		failed(refused, strerror(errno));
	if (bytes == 0)
		fputs(HEADING, refused->stream);
	refused_sync(refused);
}

void refused_close(struct refused *refused)
{
	fclose(refused->stream);
}

/* The text of a line that is no user id, which may contain anything. */
static void text_show(const struct refused *refused, const char *text, size_t len)
{
	char shown[4 * SHOWN_MAX + 4] = "";
	size_t n = 0;

	for (size_t i = 0; i < len && i < SHOWN_MAX; i++) {
		unsigned char c = (unsigned char)text[i];

		n += (size_t)snprintf(shown + n, sizeof(shown) - n,
				      c >= ' ' && c <= '~' ? "%c" : "\\x%02x", c);
	}
	if (len > SHOWN_MAX)
		n += (size_t)snprintf(shown + n, sizeof(shown) - n, "...");
	csv_put(refused->stream, shown, n, refused->reader);
}

void refused_add(struct refused *refused, const struct list *list, uint32_t user, enum end end)
{
	const struct listed *listed = &list->users[user];
	const char *text = list_text(list, user), *message = end_text(end);
	char why[USER_ID_WHY_SIZE];

	if (end == END_INVALID) {
		user_id_why(text, listed->len, why);
		message = why;
		text_show(refused, text, listed->len);
	} else {
		csv_put(refused->stream, text, listed->len, refused->reader);
	}
	fprintf(refused->stream, ",%u,%s,", listed->line, end_status(end));
	csv_put(refused->stream, message, strlen(message), refused->reader);
	fputs(CSV_END, refused->stream);
}

void refused_sync(struct refused *refused)
{
	off_t at;

	if (ferror(refused->stream) || file_sync(refused->stream))
		failed(refused, errno ? strerror(errno) : "a write failed");
	at = lseek(fileno(refused->stream), 0, SEEK_CUR);
	if (at < 0)
		failed(refused, strerror(errno));
	refused->bytes = at;
}

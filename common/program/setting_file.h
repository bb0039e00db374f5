/*
 * Files of settings in COUPON_CONFIG_DIR: lines NAME=value, as systemd's EnvironmentFile= reads
 * them. A line that systemd would read otherwise than it looks (a value over several lines, a
 * backslash outside of double quotes, text behind a closing quote) is refused, so that the file
 * means the same to both.
 */
#pragma once

#include <stddef.h>

#define SETTING_FILE_WHERE_SIZE 512

struct setting_line {
	char *name, *value;
	int number; /* from 1 */
};

struct setting_file {
	char *path;
	struct setting_line *lines;
	size_t n, size;
};

/*
 * Reads `name` in `folder`; without such a file there are no lines. A file that cannot be read, and
 * a wrong line, end the process with a sentence that names the file and the line, but no value,
 * which may be a secret.
 */
void setting_file_read(struct setting_file *file, const char *folder, const char *name);
/* The last line with this name and suffix; NULL: none. */
const struct setting_line *setting_file_find(const struct setting_file *file, const char *name,
					     const char *suffix);
/* "NAME in /etc/couponmq/couponmq.conf, line 3,": how a sentence about its value begins. */
const char *setting_file_where(const struct setting_file *file, const struct setting_line *line,
			       char where[SETTING_FILE_WHERE_SIZE]);
void setting_file_wipe(struct setting_file *file);

#include "common/program/setting_file.h"

#include "common/array.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/program/key_file.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX 65536
#define BLANKS " \t"

/*
 * Takes what is around the value from it, in place. NULL, or what is wrong. As in systemd's
 * parse_env_file(): ' keeps all, " takes \ before " \ $ ` away, and behind no quote a quote is a
 * character, # too.
 */
static const char *value_read(char *value)
{
	char quote = *value, *from = value + 1, *to = value;

	if (quote != '\'' && quote != '"')
		return strchr(value, '\\') ? "a value with a backslash is written in single quotes"
					   : NULL;
	while (*from && *from != quote) {
		if (quote == '"' && *from == '\\') {
			if (!from[1] || !strchr("\"\\$`", from[1]))
				return "in double quotes a backslash is only before \" \\ $ and `: "
				       "write the value in single quotes";
			from++;
		}
		*to++ = *from++;
	}
	if (!*from)
		return "the closing quote is missing: a value is one line";
	if (from[1])
		return "nothing is allowed behind the closing quote";
	*to = '\0';
	return NULL;
}

/* NULL, or what is wrong with the line. `text` has no blanks around it. */
static const char *line_read(struct setting_line *line, char *text)
{
	char *equals = strchr(text, '='), *end;
	size_t len;

	if (!equals)
		return "allowed are NAME=value, an empty line, and a comment that begins with # or "
		       ";";
	end = equals;
	while (end > text && strchr(BLANKS, end[-1]))
		end--;
	*end = '\0';
	len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	if (len == 0 || text[len] || isdigit((unsigned char)*text))
		return "the name before = has other characters than letters, digits and _";
	line->name = text;
	line->value = equals + 1 + strspn(equals + 1, BLANKS);
	return value_read(line->value);
}

void setting_file_read(struct setting_file *file, const char *folder, const char *name)
{
	char wrong[KEY_FILE_WRONG_SIZE], *next, *text;
	struct key_file content;
	int number = 0;

	*file = (struct setting_file){ 0 };
	check(asprintf(&file->path, "%s/%s", folder, name) > 0);
	if (access(file->path, F_OK) && (errno == ENOENT || errno == ENOTDIR))
		return;
	if (key_file_load(&content, file->path, FILE_BYTES_MAX, wrong))
		log_fatal("the settings in %s cannot be read: %s; use an account that may read "
			  "them, or COUPON_CONFIG_DIR= for no file",
			  file->path, wrong);
	if (strlen(content.text) != content.len)
		log_fatal("the settings in %s cannot be read: the file has a NUL byte", file->path);

	for (next = content.text; next;) {
		struct setting_line line = { .number = ++number };
		const char *why;
		size_t len;

		text = strsep(&next, "\n");
		text += strspn(text, BLANKS);
		len = strlen(text);
		while (len > 0 && strchr(BLANKS "\r", text[len - 1]))
			text[--len] = '\0';
		/* systemd ends a line at a carriage return, too. */
		for (const char *at = text; *at; at++)
			if (iscntrl((unsigned char)*at) && *at != '\t')
				log_fatal("%s, line %d: it has a control character", file->path,
					  number);
		/* Before version 254 systemd takes the next line for a part of such a comment. */
		if ((*text == '#' || *text == ';') && text[len - 1] == '\\')
			log_fatal("%s, line %d: a comment does not end with a backslash",
				  file->path, number);
		if (!*text || *text == '#' || *text == ';')
			continue;
		why = line_read(&line, text);
		if (why)
			log_fatal("%s, line %d: %s", file->path, number, why);
		line.name = checked(strdup(line.name));
		line.value = checked(strdup(line.value));
		file->lines = array_room(file->lines, file->n, &file->size, sizeof(*file->lines));
		file->lines[file->n++] = line;
	}
	key_file_wipe(&content);
}

const struct setting_line *setting_file_find(const struct setting_file *file, const char *name,
					     const char *suffix)
{
	size_t len = strlen(name);

	for (size_t i = file->n; i-- > 0;)
		if (strncmp(file->lines[i].name, name, len) == 0 &&
		    strcmp(file->lines[i].name + len, suffix) == 0)
			return &file->lines[i];
	return NULL;
}

const char *setting_file_where(const struct setting_file *file, const struct setting_line *line,
			       char where[SETTING_FILE_WHERE_SIZE])
{
	snprintf(where, SETTING_FILE_WHERE_SIZE, "%.100s in %.300s, line %d,", line->name,
		 file->path, line->number);
	return where;
}

void setting_file_wipe(struct setting_file *file)
{
	for (size_t i = 0; i < file->n; i++) {
		OPENSSL_cleanse(file->lines[i].value, strlen(file->lines[i].value));
		free(file->lines[i].name);
		free(file->lines[i].value);
	}
	free(file->lines);
	free(file->path);
	*file = (struct setting_file){ 0 };
}

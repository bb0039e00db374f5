#include "ctl/say.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_SIZE 40

static char *last; /* sentence of a failure */
static void (*collect)(const char *sentence, int is_warning);

int text_is_plain(const char *text, size_t len)
{
	char *copy = checked(strndup(text, len));
	int is_plain = strlen(copy) == len && json_text_is_valid(copy);

	free(copy);
	for (size_t i = 0; i < len && is_plain; i++)
		is_plain = !log_control_len(text + i, len - i);
	return is_plain;
}

void text_print_plain(const char *text, size_t len, FILE *out)
{
	size_t control = 0; /* bytes that are left of a control character */

	for (size_t i = 0; i < len; i++) {
		control = control > 0 ? control : log_control_len(text + i, len - i);
		if (control > 0)
			fprintf(out, "\\x%02x", (unsigned char)text[i]);
		else
			putc(text[i], out);
		control -= control > 0;
	}
}

/* Copies the name of an option as that of a member. Returns where it ends. */
static const char *member_copy(const char *name, FILE *out)
{
	if (strncmp(name, "key", 3) == 0 && !islower((unsigned char)name[3]) && name[3] != '-') {
		fputs("Idempotency-Key", out);
		return name + 3;
	}
	for (; islower((unsigned char)*name) || *name == '-'; name++)
		putc(*name == '-' ? '_' : *name, out);
	return name;
}

/* The format with the names of members (malloc). */
static char *format_of_members(const char *format)
{
	size_t size;
	char *text;
	FILE *out = checked(open_memstream(&text, &size));

	while (*format)
		if (strncmp(format, "--", 2) == 0 && islower((unsigned char)format[2]))
			format = member_copy(format + 2, out);
		else
			putc(*format++, out);
	check(fclose(out) == 0);
	return text;
}

void say_list(const char *format, va_list list, int is_warning)
{
	char *own = collect ? format_of_members(format) : NULL, *text, *plain;
	size_t size;
	FILE *out;

	/* It is the caller's, which the compiler has checked, with other names of options. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	check(vasprintf(&text, own ? own : format, list) >= 0);
#pragma GCC diagnostic pop
	free(own);
	out = checked(open_memstream(&plain, &size));
	text_print_plain(text, strlen(text), out);
	check(fclose(out) == 0);
	free(text);
	if (collect)
		collect(plain, is_warning);
	else
		fprintf(stderr, "%s: %s%s\n", log_program_name(), is_warning ? "warning: " : "",
			plain);
	if (is_warning) {
		free(plain);
	} else {
		free(last);
		last = plain;
	}
}

const char *say_last(void)
{
	return last;
}

void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	say_list(format, list, 0);
	va_end(list);
}

void say_warning(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	say_list(format, list, 1);
	va_end(list);
}

const char *say_option(const char *name)
{
	static char texts[4][OPTION_SIZE];
	static unsigned next;
	char *text = texts[next++ % 4];
	FILE *out;

	if (!collect) {
		snprintf(text, OPTION_SIZE, "--%s", name);
		return text;
	}
	out = checked(fmemopen(text, OPTION_SIZE, "w"));
	member_copy(name, out);
	check(fclose(out) == 0);
	return text;
}

const char *say_help(const char *command)
{
	static char text[96];

	snprintf(text, sizeof(text), "; see %s%s --help",
		 strcmp(command, log_program_name()) == 0 ? "" : "couponctl ", command);
	return collect ? "" : text;
}

static void fatal_say(const char *format, va_list list)
{
	say_list(format, list, 0);
}

void say_fatal(void)
{
	log_fatal_to(fatal_say);
}

void say_to(void (*take)(const char *sentence, int is_warning))
{
	collect = take;
	say_fatal();
}

int say_is_collected(void)
{
	return collect != NULL;
}

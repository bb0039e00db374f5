/*
 * What a command says beside its result. On a command line it is sentences on standard error, each
 * with the name of the program. For couponctl --api the sentences are collected: see ctl/api.h.
 *
 * A format names an option as people write it, --valid-days. For --api the name is that of the
 * member, valid_days, and --key is the header Idempotency-Key, by which coupon-admin gets it.
 * Control characters in a sentence are written as \xNN.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Why the command fails, or what it could not do for one of many. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The command has done its work, and this follows from it, or is still to be done. */
void say_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

void say_list(const char *format, va_list list, int is_warning)
	__attribute__((format(printf, 1, 0)));

/* The last sentence of say(), without control characters; NULL: there is none. Lent. */
const char *say_last(void);
/* From now on the sentence of log_fatal() is one of say(), too. */
void say_fatal(void);

/* The option with this name, as sentences name it. Lent, until the fourth call from now. */
const char *say_option(const char *name);
/*
 * What follows a sentence on a wrong command line, "; see couponctl edit --help", or "". Lent until
 * the next call.
 */
const char *say_help(const char *command);

/* Gets each sentence, from now on; it is lent. */
void say_to(void (*take)(const char *sentence, int is_warning));
int say_is_collected(void);

/* Whether the text is UTF-8 without control characters: U+0000 to U+001F, U+007F to U+009F. */
int text_is_plain(const char *text, size_t len);
/* Prints a text to a terminal. A control character, which could move the cursor, becomes \xNN. */
void text_print_plain(const char *text, size_t len, FILE *out);

/*
 * The command line of one command, read by its table of options. An error in it ends the process
 * with exit status 2 and one sentence without control bytes: the option, its value and what is
 * allowed.
 */
#pragma once

#include "common/message/receive.h"
#include "ctl/money.h"

#include <stdint.h>
#include <stdio.h>

#define ARGS_OPTIONS_MAX 32
#define ARGS_USAGE 2 /* exit status when the command line is wrong */

struct option {
	const char *name;  /* without its dashes; NULL ends a table */
	const char *value; /* the placeholder of its value in the help; NULL: a switch */
	const char *help;
	int takes_none;           /* the word none removes what there is */
	const char *const *words; /* that may be in its list, ended by NULL; NULL: any */
	int is_of_terminal;       /* it answers what only a person is asked */
};

#define OPTION(name_, value_, help_)                          \
	{                                                     \
		.name = name_, .value = value_, .help = help_ \
	}
#define OPTION_OR_NONE(name_, value_, help_)                                   \
	{                                                                      \
		.name = name_, .value = value_, .help = help_, .takes_none = 1 \
	}
#define OPTION_LIST(name_, words_, help_)                                      \
	{                                                                      \
		.name = name_, .value = "LIST", .help = help_, .words = words_ \
	}
#define SWITCH(name_, help_) OPTION(name_, NULL, help_)
/* --yes of a command that calls args_ask(). */
#define YES_OPTION                                                                     \
	{                                                                              \
		.name = "yes", .help = "do not ask on a terminal", .is_of_terminal = 1 \
	}
#define OPTIONS_END OPTION(NULL, NULL, NULL)
/* A table of options, or of commands, where it is used. */
#define OPTIONS(...) ((const struct option[]){ __VA_ARGS__, OPTIONS_END })
#define COMMANDS(...) ((const struct command *const[]){ __VA_ARGS__, NULL })

struct ctl;

struct command {
	const char *name;            /* that of the program, if it has only this one */
	int (*run)(struct ctl *ctl); /* returns the exit status */
	/* "ID", "[ID]" if it is optional, "ID FILE", "ID…" for one or more; NULL: there is none */
	const char *argument;
	const struct option *options; /* NULL: none */
	int takes_words;              /* those after -- */
	const char *summary;
	const char *detail; /* more text for --help; NULL: none */
	/* Ended by NULL. The next word selects one of them, and there is no `run`. NULL: none. */
	const struct command *const *subcommands;
};

struct args {
	const struct command *command;
	const char *argument; /* the first one; NULL: not given */
	char **arguments;     /* all of them, in the words that were read */
	int arguments_n;
	const char *values[ARGS_OPTIONS_MAX];
	char **words; /* those after --, ended by NULL; NULL: there was no -- */
};

/* Whether it is UTF-8 without control characters: U+0000 to U+001F, U+007F to U+009F. */
int text_is_plain(const char *text, size_t len);
/* For a terminal, on which no text may move the cursor or begin a line: those as \xNN. */
void text_print_plain(const char *text, size_t len, FILE *out);

_Noreturn void args_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Asks on a terminal, unless --yes is given, whether to go on: any answer but yes ends the process
 * with a sentence and exit status 1. Scripts are not asked. `what` is a sentence that tells what
 * will be done.
 */
void args_ask(const struct args *args, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* Reads argv[0…argc-1], the words after the command's name. */
void args_read(struct args *args, const struct command *command, int argc, char **argv);

/* The words again, for the record (malloc): not who it is recorded of, and no exchange codes. */
char *args_record(const struct args *args);

/* All of them but --key, --by and --json, with the codes, for a comparison (malloc). */
char *args_whole(const struct args *args);

/* Whether the word is an option of the command whose value is the next word, whatever that is. */
int args_takes_value(const struct command *command, const char *word);

/* The options and what they are for, as --help has them. */
void args_options_print(const struct command *command, FILE *out);

/* `name` must be in the command's table. */
int args_has(const struct args *args, const char *name);
const char *args_text(const struct args *args, const char *name);     /* NULL: not given */
const char *args_required(const struct args *args, const char *name); /* never NULL */
/* NULL: not given. */
const char *args_bytes(const struct args *args, const char *name, size_t most);
int64_t args_number(const struct args *args, const char *name, int64_t least, int64_t most,
		    int64_t fallback);
int64_t args_id(const struct args *args, const char *name); /* 0: not given */
/* A number of s, m, h or d, as 24h, of at most so many days. In seconds. */
int64_t args_duration_s(const struct args *args, const char *name, int most_days,
			int64_t fallback_s);
/* Of --currency: three capital letters; NULL: not given. */
const char *args_currency(const struct args *args);
/*
 * An amount, which must be given, in the smallest unit of the currency, at least `least`. People
 * write 7.00; after ARGS_MINOR is an integer in the smallest unit, by which coupon-admin passes
 * amounts on: then the currency may be NULL.
 */
#define ARGS_MONEY "AMOUNT" /* the `value` of such an option */
#define ARGS_MINOR "minor:"
int64_t args_money(const struct args *args, const char *name, const char *currency, int64_t least);
/* An amount in the form in which the option is given. Returns `out`. */
const char *args_money_text(const struct args *args, const char *name, int64_t units,
			    const char *currency, char out[MONEY_SIZE]);
/* The place of the value among `n` words; any other ends the process. */
int args_choice(const struct args *args, const char *name, const char *const *words, int n,
		int fallback);
/* The argument as the id of something that is no coupon; 0: not given. */
int64_t args_argument_id(const struct args *args);
int64_t args_coupon(const struct args *args); /* the argument as a coupon; 0: not given */
/* --coupon and --user, which must be given. */
void args_coupon_user(const struct args *args, struct receive *receive);
/* A receive as the argument, which must be given. */
void args_receive_argument(const struct args *args, struct receive *receive);
/* A receive as the argument, or --coupon and --user instead: then only these are set. */
void args_receive(const struct args *args, struct receive *receive);
/* The options of a command that only reads it; `json_` is the help of --json. */
#define RECEIVE_OPTIONS(json_)                                                                    \
	OPTIONS(OPTION("coupon", "ID",                                                            \
		       "instead of RECEIVE, with --user: each receive of a user of this coupon"), \
		OPTION("user", "ID", "the user"), SWITCH("json", json_))

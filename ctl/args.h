/*
 * The command line of one command, read by its table of options. An error in it ends the process
 * with exit status 2 and one sentence without control bytes: the option, its value and what is
 * allowed.
 */
#pragma once

#include "common/message/receive.h"
#include "ctl/money.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

#define ARGS_OPTIONS_MAX 32
/*
 * The exit statuses of all commands: EXIT(name, number, text). Each has one meaning; --help prints
 * the texts, and make docs writes them into docs/reference/couponctl/README.md.
 */
#define EXITS                                                                                      \
	EXIT(CTL_DONE, 0, "done; every check passed; the answer's code is 0")                      \
	EXIT(CTL_FAILED, 1, "the command, a check or the request failed; standard error says why") \
	EXIT(CTL_INVALID, 2,                                                                       \
	     "the command line, a file that it names, or the request is invalid; nothing "         \
	     "was done")                                                                           \
	EXIT(CTL_NOT_IN_REDIS, 3,                                                                  \
	     "PostgreSQL has the change, but Redis could not be updated: a keeper will do it")     \
	EXIT(CTL_KEY_REUSED, 4,                                                                    \
	     "the idempotency key was used for another request; nothing was done")                 \
	EXIT(CTL_STALLED, 5, "no check failed, but receives are in flight without progress")       \
	EXIT(CTL_REFUSED, 6,                                                                       \
	     "done, except for the users, rows, codes or receives that were refused, which "       \
	     "are named")                                                                          \
	EXIT(CTL_STOPPED, 7, "stopped before the end; the same command, run again, continues")     \
	EXIT(CTL_OTHER_VERSION, 8, "the coupon has another version; nothing was changed")          \
	EXIT(CTL_ABSENT, 9, "what the command line names does not exist")                          \
	EXIT(CTL_AWAY, 10,                                                                         \
	     "a store or the gateway is away or busy, or PostgreSQL is behind Redis: try "         \
	     "again later")                                                                        \
	EXIT(CTL_NO_TAIL, 11, "an operator has to recover; nothing was changed")                   \
	EXIT(CTL_UNKNOWN, 12,                                                                      \
	     "failed after a change, or unknown whether anything changed: check before you "       \
	     "repeat it")

enum exit_status {
#define EXIT(name, number, text) name = number,
	EXITS
#undef EXIT
};

struct option {
	const char *name;  /* without its dashes; NULL ends a table */
	const char *value; /* the placeholder of its value in the help; NULL: a switch */
	const char *help;
	int takes_none;           /* the word none removes the present value */
	const char *const *words; /* that it, or its LIST, may have, ended by NULL; NULL: any */
	int is_of_terminal;       /* it answers a question that only people are asked */
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
#define OPTION_WORDS(name_, value_, words_, help_)                             \
	{                                                                      \
		.name = name_, .value = value_, .help = help_, .words = words_ \
	}
#define SWITCH(name_, help_) OPTION(name_, NULL, help_)
/* --yes of a command that calls args_ask(). */
#define YES_OPTION                                                                     \
	{                                                                              \
		.name = "yes", .help = "do not ask on a terminal", .is_of_terminal = 1 \
	}
#define OPTIONS_END OPTION(NULL, NULL, NULL)
/* A table of options, of commands, or of words, where it is used. */
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define OPTIONS(...) ((const struct option[]){ __VA_ARGS__, OPTIONS_END })
#define COMMANDS(...) ((const struct command *const[]){ __VA_ARGS__, NULL })

struct ctl;

struct command {
	const char *name;            /* the name of the program, if it has no other command */
	int (*run)(struct ctl *ctl); /* returns the exit status */
	/* "ID", "[ID]" if it is optional, "ID FILE", "ID…" for one or more; NULL: there is none */
	const char *argument;
	const struct option *options; /* NULL: none */
	int takes_words;              /* the words after -- */
	const char *summary;
	const char *detail; /* more text for --help; NULL: none */
	int has_no_json;    /* it runs another program, or writes a file in its --format */
	/*
	 * Commands that an option selects instead of this one; ended by NULL; NULL: none. The name
	 * of such a command ends in the option: show with --curve is "show --curve", which has its
	 * own options.
	 */
	const struct command *const *modes;
	/* Ended by NULL. The next word selects one of them, and there is no `run`. NULL: none. */
	const struct command *const *subcommands;
};

struct args {
	const struct command *command;
	const char *argument; /* the first one; NULL: not given */
	char **arguments;     /* all of them */
	int arguments_n;
	size_t arguments_size;
	const char *values[ARGS_OPTIONS_MAX + 1]; /* the last one is of --json */
	char **words; /* the words after --, ended by NULL; NULL: there was no -- */
};

_Noreturn void args_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Asks on a terminal, unless --yes is given, whether to go on: any answer but yes ends the process
 * with a sentence and exit status 1. Scripts are not asked. `what` is a sentence that tells what
 * will be done.
 */
void args_ask(const struct args *args, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* Reads argv[0…argc-1], the words after the command's name: all of what follows. */
void args_read(struct args *args, const struct command *command, int argc, char **argv);
void args_begin(struct args *args, const struct command *command);
void args_option(struct args *args, const struct option *option, const char *value);
void args_argument(struct args *args, char *word);
void args_json(struct args *args); /* as --json does */
void args_end(struct args *args);

/* Whether the word is an option of the command whose value is the next word, whatever that is. */
int args_takes_value(const struct command *command, const char *word);
/* The length of the name without the option of a mode: that of "show" in "show --curve". */
int args_name_len(const struct command *command);
/* The mode of the command that one of the words chooses, or the command. */
const struct command *args_mode(const struct command *command, int argc, char **argv);

/* The options, as --help prints them, and as --help json does. */
void args_options_print(const struct command *command, FILE *out);
cJSON *args_options_list(const struct command *command);

/* `name` must be in the command's table. */
int args_has(const struct args *args, const char *name);
int args_takes_none(const struct args *args, const char *name);
const char *args_text(const struct args *args, const char *name);     /* NULL: not given */
const char *args_required(const struct args *args, const char *name); /* never NULL */
/* NULL: not given. */
const char *args_bytes(const struct args *args, const char *name, size_t most);
int64_t args_number(const struct args *args, const char *name, int64_t least, int64_t most,
		    int64_t fallback);
int64_t args_id(const struct args *args, const char *name); /* 0: not given */
/* A duration such as 24h, in s, m, h or d, of at most `most_days`. Returns seconds. */
int64_t args_duration_s(const struct args *args, const char *name, int most_days,
			int64_t fallback_s);
/* The value of --currency: three capital letters; NULL: not given. */
const char *args_currency(const struct args *args);
/*
 * An amount in the smallest unit of the currency, at least `least`; the option must be given.
 * People write 7.00. A request of --api has an integer in the smallest unit, which is read from
 * behind ARGS_MINOR: then the currency may be NULL.
 */
#define ARGS_MONEY "AMOUNT" /* the `value` of such an option */
#define ARGS_MINOR "minor:"
int64_t args_money(const struct args *args, const char *name, const char *currency, int64_t least);
/* An amount in the form in which the option is given. Returns `out`. */
const char *args_money_text(const struct args *args, const char *name, int64_t units,
			    const char *currency, char out[MONEY_SIZE]);
/* The index of the value among the words of the option; any other value ends the process. */
int args_choice(const struct args *args, const char *name, int fallback);
int64_t args_id_argument(const struct args *args); /* the argument as an id; 0: not given */
/* --coupon and --user, which must be given. */
void args_coupon_user(const struct args *args, struct receive *receive);
/* A receive as the argument, which must be given. */
void args_receive_argument(const struct args *args, struct receive *receive);
/* A receive as the argument, or --coupon and --user instead: then only these are set. */
void args_receive(const struct args *args, struct receive *receive);
/* The options of a command that reads a receive, or all of a user. */
#define RECEIVE_OPTIONS                                                                      \
	OPTIONS(OPTION("coupon", "ID",                                                       \
		       "with --user, instead of RECEIVE: every receive of the user of this " \
		       "coupon"),                                                            \
		OPTION("user", "ID", "the user"))
/*
 * The options of each command that prints a list in pages. `value_` and `after_` name what the last
 * row of a page is identified by; `count_` is the default number of rows, as --help prints it.
 */
#define PAGE_OPTIONS(value_, after_, count_)                                                   \
	OPTION("after", value_, "print the next page: the rows that come after this " after_), \
		OPTION("count", "N", "at most N, 1 to 100000; default: " count_)
#define PAGE_COUNT_MAX 100000
/* The value of --count. */
int64_t args_count(const struct args *args, int64_t fallback);

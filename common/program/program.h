/*
 * What the main function of every program calls: the version, and the checks of settings that
 * config_read() does not make.
 */
#pragma once

#include "common/program/config.h"

#define PROGRAM_VERSION "0.9.0-dev"

/*
 * Prints the version, and the commit when the program was built in its git repository:
 * "coupon-gateway 0.9.0-dev (git 1a2b3c4)".
 */
void program_version_print(const char *name);

/*
 * Comes first in each main function. No core dumps: they would have keys and passwords. And OpenSSL
 * is not taken down at the end of the process: a thread that hangs in it, and is not waited for,
 * would crash.
 */
void program_begin(void);

/* What --help prints of a program, and the tables by which its manual page is made. */
struct program_manual {
	const char *name, *summary; /* a sentence or more */
	enum config_program program;
	/* Prints what --help does, or --help TOPIC. NULL: the usage of a service, with -n. */
	void (*help)(const char *topic);
	const char *topic;       /* of `help`, NULL to it means none */
	cJSON *(*options)(void); /* for --help json; NULL: those of a service */
};

/*
 * Handles --help and --version at any position: the process ends with status 0. After --help a word
 * may follow: settings, for people, or json, for programs: all tables.
 */
void program_answer(const struct program_manual *manual, int argc, char **argv);
/* Ends the process unless there is no argument or -n. Returns whether there is. */
int program_checks_only(int argc, char **argv);
/* The settings, as --help settings prints them. */
void program_settings_print(const char *name, enum config_program program);

/* Makes the certificates of the settings those by which stores are verified (common/trust.h). */
void program_trust_stores(const struct config *config);

/*
 * Checks the URLs, COUPON_DATABASE_SYNCHRONOUS and these certificates without connecting; a
 * malformed one, TLS that this build does not have, and certificates that cannot be read end the
 * process with a sentence.
 */
void program_check_urls(const struct config *config);

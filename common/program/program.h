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

/*
 * Handles --help (with `help`) and --version at any position: the process ends with status 0.
 */
void program_answer(const char *name, void (*help)(void), int argc, char **argv);

/* Makes the certificates of the settings those by which stores are verified (common/trust.h). */
void program_trust_stores(const struct config *config);

/*
 * Checks the URLs, COUPON_DATABASE_SYNCHRONOUS and these certificates without connecting; a
 * malformed one, TLS that this build does not have, and certificates that cannot be read end the
 * process with a sentence.
 */
void program_check_urls(const struct config *config);

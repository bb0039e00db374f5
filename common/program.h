/*
 * What every program's main does alike: the version, and the look at settings that config_read
 * cannot judge.
 */
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#include "common/config.h"

#define PROGRAM_VERSION "0.1.0"

/*
 * Handles --help (with `help`) and --version, wherever they stand: then the process ends with
 * status 0.
 */
void program_answer(const char *name, void (*help)(void), int argc, char **argv);

/*
 * The URLs as far as they can be judged without connecting; a wrong one ends the process with a
 * sentence.
 */
void program_check_urls(const struct config *config);

#endif

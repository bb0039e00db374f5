/*
 * Settings: one table (setting_table.h) defines them and the text of --help. They are read from
 * flags, the environment, and for programs with COUPON_CONFIG_DIR from files, in this order of
 * precedence. A text setting NAME may instead be given as NAME_FILE, the path of a file that holds
 * the value (for secrets). A password that is a setting of its own is put into its URL.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

enum config_program {
	CONFIG_GATEWAY = 1,
	CONFIG_WORKER = 2,
	CONFIG_CTL = 4,
	CONFIG_RUSH = 8,
	CONFIG_ADMIN = 16
};

struct config {
#define SETTING_TEXT(field, env, flag, programs, fallback, help) char *field;
#define SETTING_NUMBER(field, env, flag, programs, fallback, least, most, help) int64_t field;
#include "common/program/setting_table.h"
#undef SETTING_TEXT
#undef SETTING_NUMBER
};

/*
 * Takes the flags of `program` (`--flag value` or `--flag=value`) out of argv[1…], for
 * config_fill(). Unknown flags are left, with the word after those for which `takes_value` is true
 * (NULL: none): returns how many arguments remain in `argv` (argv[0] included), in order, and with
 * them all from `--` on.
 */
int config_flags_take(enum config_program program, int argc, char **argv,
		      int (*takes_value)(const char *flag));
/*
 * Fills `config` for `program`. A wrong value ends the process with a sentence that names the
 * setting, the value and what is allowed.
 */
void config_fill(struct config *config, enum config_program program);
/* Both, one after the other. */
int config_read(struct config *config, enum config_program program, int argc, char **argv,
		int (*takes_value)(const char *flag));
void config_free(struct config *config);
/* The value of a text setting, or "" if it is the default. Lent. `env` must be in the table. */
const char *config_given(const struct config *config, const char *env);

/* Puts those that `program` reads too into the environment, for programs that this one starts. */
void config_export(const struct config *config, enum config_program own,
		   enum config_program program);

void config_help(enum config_program program, FILE *out); /* what --help settings prints */
cJSON *config_tables(enum config_program program);        /* the same for --help json */

/* Sets up logging by the settings; ends the process when they are wrong. */
void config_log(const struct config *config, const char *name);

/* Splits host:port ([host]:port for IPv6) in place; 0, or -1. `*port` is 1–65535. */
int config_address(char *text, char **host, int *port);

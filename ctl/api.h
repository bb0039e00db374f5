/*
 * couponctl --api: one request as JSON on standard input, one answer as JSON on standard output.
 * coupon-admin runs each command like this.
 *
 *	{"command":"edit","arguments":["1001"],"name":"Noon","valid_days":7,"end":null}
 *
 *	{"members":[
 *	{"coupon":"1001","version":4}
 *	],"status":0,"detail":null,"warnings":[]}
 *
 * `command` is a command with its mode, as "show --curve". `lines` is a list; each value becomes a
 * line of the file that the command reads, which is its last argument or --users, in the format
 * jsonl. Each other member is an option, with _ for - in its name. Its value is a text, or: a
 * number where the option has one, true or false for a switch and for yes|no, a list of texts, an
 * object for JSON, null for the word none. An amount is an integer in the smallest unit of its
 * currency, as a number or a text.
 *
 * `members` has what the command prints with --json: each object on a line of its own, so that a
 * reader can pass on the lines unchanged. `status` is the exit status, `detail` says why it is not
 * 0, or is null, and `warnings` has the warnings: with another status than 0 also the other
 * sentences of the command line.
 */
#pragma once

#include "ctl/ctl.h"

#include <cjson/cJSON.h>

/* The size of the sentences of an answer. Beyond it the earlier ones are left out, and counted. */
#define API_SENTENCES_BYTES 65536

/* At the start of the process: from now on it prints nothing but the answer, when it ends. */
void api_begin(void);
/* Reads the request and runs its command. Returns the exit status. */
int api_run(struct ctl *ctl);
/* Runs the command of a request, which prints texts unless `as_json`. Returns the exit status. */
int api_command_run(struct ctl *ctl, const cJSON *request, int as_json);

/* The option of a command that is the member of a request with this name; NULL: there is none. */
const struct option *api_option(const struct command *command, const char *member);
/* The name of the member. Returns `name`. */
#define API_NAME_SIZE 32
char *api_member(const struct option *option, char name[API_NAME_SIZE]);
/* The option that chooses this mode of a command; NULL: it is not a mode. */
const struct option *api_mode(const struct command *command);
/* Whether the value of the option may be a number of JSON, beside a text. */
int api_takes_number(const struct option *option);

/*
 * The text which the value of an option is on a command line (malloc); "" for a switch that is on.
 * NULL: for a switch that is off; or the value is not allowed, which `why` says, else "".
 */
#define API_WHY_SIZE 256
char *api_text(const struct option *option, const cJSON *value, char why[API_WHY_SIZE]);

/* What every command of couponctl gets, the list of the commands, and what one does for another. */
#pragma once

#include "common/program/config.h"
#include "ctl/args.h"

#define COMMAND_KEY_MAX 255 /* bytes of --key */
/* Begins the keys of commands that a second person has approved, and only those. */
#define APPROVAL_KEY "approval "

struct ctl {
	struct config config;
	struct args args;
	int runs_approved; /* couponctl approval give runs the command */
};

/*
 * The verdict that couponctl audit would print of a coupon that exists: PASS, FAIL, UNKNOWN or
 * STALLED. Ends the process when a store cannot be read.
 */
const char *audit_coupon(struct ctl *ctl, int64_t coupon);
/*
 * Finds the oldest dead letter with each of the receives, or with its batch if that letter cannot
 * be read. Returns an object: each letter that was found, as couponctl dead list prints it, under
 * the index of its receive in the list; and `is_all`, whether all dead letters were read: only the
 * first DEAD_FIND_MAX are. NULL: RabbitMQ does not answer in time, and standard error says why.
 */
#define DEAD_FIND_MAX 1000
struct cJSON *dead_find(const struct ctl *ctl, const struct receive *receives, size_t n);

/*
 * Sends the request to the gateway, prints the reply and frees the request. Returns the exit
 * status. A request that the gateway finds malformed ends the process as a wrong command line does;
 * without a reply the process ends with the status `unanswered`.
 */
int gateway_request_run(struct ctl *ctl, struct cJSON *request, int unanswered);
/* The operations of orders on a receive, an array; uses_print() prints a line for each. */
struct db;
struct cJSON *uses_read(struct db *db, const struct receive *receive);
void uses_print(const struct cJSON *uses);

/* The commands that can wait for a second person (cmd_approval.c), ended by NULL. */
extern const char *const ctl_approvable[];
int ctl_is_approvable(const char *command);

/* Whether the command is, or may be, recorded in the history: it may have changed something. */
int store_is_recorded(void);

/* The commands by subject, as --help lists them; a subject of NULL ends the list. */
struct command_group {
	const char *subject;
	const struct command *const *commands;
};
extern const struct command_group ctl_groups[];
/* One of them, of their subcommands or modes, as "dead list", "show --curve"; NULL: none. */
const struct command *command_find(const char *name);
/* What couponctl --help, its topics exit and json, and couponctl COMMAND --help print. */
void commands_help_print(FILE *out);
void exits_help_print(void);
void commands_tables_print(void);
void command_help_print(const struct command *command);

extern const struct command migrate_command, create_command, publish_command, pause_command,
	resume_command, close_command, stock_command, edit_command, history_command, check_command,
	void_command, show_command, list_command, issue_command, status_command, trace_command,
	audit_command, rebuild_command, recover_command, dead_command, queue_command, lock_command,
	distribute_command, export_command, report_command, codes_command, codes_generate_command,
	codes_word_command, codes_import_command, codes_revoke_command, codes_export_command,
	webhook_command, installation_command, key_command, budget_command, receive_command,
	setup_command, doctor_command, approval_command;

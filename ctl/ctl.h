/* What every command of couponctl gets, and the tables that describe the commands. */
#pragma once

#include "common/program/config.h"
#include "ctl/args.h"

/* Exit status: PostgreSQL has the change, but Redis could not be updated. */
#define CTL_NOT_IN_REDIS 3
/*
 * Exit status of audit: a store could not be read, or the data is undecided; no finding, but
 * receives are in flight without progress.
 */
#define CTL_NO_VERDICT 4
#define CTL_STALLED 5
/* Exit status of distribute: it has ended, but not all users have the coupon; it was stopped. */
#define CTL_REFUSED 6
#define CTL_STOPPED 7
/* Exit status: the coupon has another version than --version. */
#define CTL_OTHER_VERSION 8
/* Exit status: what is named, for instance a coupon or a key, does not exist. */
#define CTL_ABSENT 9
/* Exit status: nothing is wrong with the command, but a store cannot be asked or changed now. */
#define CTL_AWAY 10
/* Exit status of recover --tail: more is missing than that, and nothing was changed. */
#define CTL_NO_TAIL 11
/*
 * Exit status: the command has failed after it had changed something, or it is unknown whether it
 * has.
 */
#define CTL_UNKNOWN 12
/* Exit status: the key was used for another request. Nothing was done. */
#define CTL_KEY_REUSED 13
#define COMMAND_KEY_MAX 255 /* bytes of --key */

struct ctl {
	struct config config;
	struct args args;
};

/*
 * The verdict that couponctl audit would print of a coupon that exists: PASS, FAIL, UNKNOWN or
 * STALLED. Ends the process when a store cannot be read.
 */
const char *audit_coupon(struct ctl *ctl, int64_t coupon);
/*
 * The oldest dead letter with each of the receives, or with its batch if that cannot be read, as
 * couponctl dead list prints it: an object of those that there are, by the place of the receive in
 * the list, and `is_all`, whether all dead letters were looked at, which are at most DEAD_FIND_MAX.
 * NULL: RabbitMQ does not tell in time, and standard error says why.
 */
#define DEAD_FIND_MAX 1000
struct cJSON *dead_find(const struct ctl *ctl, const struct receive *receives, size_t n);

/*
 * Sends the request, prints the reply and frees the request. Returns the exit status; one that the
 * gateway finds malformed ends the process as a wrong command line does, and no reply with `away`.
 */
int gateway_request_run(struct ctl *ctl, struct cJSON *request, int away);
/* What orders did with a receive, an array; uses_print() prints a line for each. */
struct db;
struct cJSON *uses_read(struct db *db, const struct receive *receive);
void uses_print(const struct cJSON *uses);

extern const struct command *const ctl_commands[]; /* ended by NULL */
/* One of them, or one of their subcommands, as "dead list"; NULL: there is none. */
const struct command *command_find(const char *name);

extern const struct command migrate_command, create_command, publish_command, pause_command,
	resume_command, close_command, stock_command, edit_command, history_command,
	changes_command, arm_command, void_command, show_command, list_command, curve_command,
	recent_command, issue_command, status_command, trace_command, audit_command,
	rebuild_command, recover_command, dead_command, queue_command, lock_command,
	distribute_command, export_command, codes_command, codes_generate_command,
	codes_import_command, codes_revoke_command, codes_export_command, webhook_command,
	events_command, installation_command, key_command, budget_command, receive_command;

/* What every command of couponctl gets, and the tables that describe the commands. */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "common/program/config.h"
#include "ctl/args.h"

/* Exit status: PostgreSQL has the change, but Redis could not be updated. */
#define CTL_NOT_IN_REDIS 3
/* Exit status of distribute: it has ended, but not all users have the coupon; it was stopped. */
#define CTL_REFUSED 6
#define CTL_STOPPED 7
/* Exit status: the coupon has another version than --version. */
#define CTL_OTHER_VERSION 8

struct ctl {
	struct config config;
	struct args args;
};

extern const struct command migrate_command;
extern const struct command create_command;
extern const struct command publish_command, pause_command, resume_command, close_command;
extern const struct command stock_command, edit_command, history_command, arm_command, void_command;
extern const struct command show_command, list_command, events_command;
extern const struct command issue_command, status_command;
extern const struct command distribute_command, export_command;
extern const struct command audit_command;
extern const struct command rebuild_command;
extern const struct command recover_command;
extern const struct command queue_command;
extern const struct command installation_command;
extern const struct command lock_command;
extern const struct command codes_command, codes_generate_command, codes_import_command,
	codes_revoke_command, codes_export_command;
extern const struct command webhook_command;
extern const struct command dead_command;

#endif

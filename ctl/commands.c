/* The commands of couponctl by their names, for its main function and for coupon-admin. */
#include "ctl/ctl.h"

#include <string.h>

const struct command *const ctl_commands[] = {
	&migrate_command,
	&create_command,
	&publish_command,
	&pause_command,
	&resume_command,
	&close_command,
	&stock_command,
	&edit_command,
	&history_command,
	&check_command,
	&void_command,
	&show_command,
	&list_command,
	&issue_command,
	&status_command,
	&trace_command,
	&audit_command,
	&rebuild_command,
	&recover_command,
	&dead_command,
	&queue_command,
	&lock_command,
	&distribute_command,
	&export_command,
	&codes_command,
	&webhook_command,
	&installation_command,
	&key_command,
	&budget_command,
	&receive_command,
	NULL,
};

static const struct command *find(const struct command *const *list, const char *name)
{
	const struct command *found = NULL;

	for (; *list && !found; list++)
		found = strcmp((*list)->name, name) == 0 ? *list
			: (*list)->subcommands           ? find((*list)->subcommands, name)
			: (*list)->modes                 ? find((*list)->modes, name)
							 : NULL;
	return found;
}

const struct command *command_find(const char *name)
{
	return find(ctl_commands, name);
}

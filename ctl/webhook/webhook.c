/* couponctl webhook: the commands about webhooks. */
#include "ctl/ctl.h"

#include <stddef.h>

static const struct command *const webhook_commands[] = {
	&webhook_add_command,
	&webhook_list_command,
	&webhook_show_command,
	&webhook_test_command,
	&webhook_rotate_command,
	&webhook_disable_command,
	&webhook_enable_command,
	&webhook_remove_command,
	&webhook_deliveries_command,
	&webhook_resend_command,
	NULL,
};

const struct command webhook_command = {
	.name = "webhook",
	.subcommands = webhook_commands,
	.summary = "send events to endpoints of others, and see what has arrived",
};

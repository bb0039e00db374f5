/* couponctl codes: the commands about exchange codes. */
#include "ctl/ctl.h"

#include <stddef.h>

static const struct command *const codes_commands[] = {
	&codes_generate_command, &codes_import_command, &codes_word_command,
	&codes_show_command,     &codes_revoke_command, &codes_export_command,
	&codes_stats_command,    &codes_key_command,    NULL,
};

const struct command codes_command = {
	.name = "codes",
	.subcommands = codes_commands,
	.summary = "make, import, show, revoke and export exchange codes",
};

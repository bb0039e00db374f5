/*
 * The commands of couponctl by their names, and their help. Each is in cmd_NAME.c, here or in a
 * folder, but for these: status is with issue; pause, resume and close are with publish; edit is
 * with create.
 */
#include "ctl/ctl.h"

#include <string.h>

const struct command *const ctl_commands[] = {
	&migrate_command, &create_command,  &publish_command,      &pause_command,
	&resume_command,  &close_command,   &stock_command,        &edit_command,
	&history_command, &check_command,   &void_command,         &show_command,
	&list_command,    &issue_command,   &status_command,       &trace_command,
	&audit_command,   &rebuild_command, &recover_command,      &dead_command,
	&queue_command,   &lock_command,    &distribute_command,   &export_command,
	&codes_command,   &webhook_command, &installation_command, &key_command,
	&budget_command,  &receive_command, &doctor_command,       NULL,
};

static const struct command *list_find(const struct command *const *list, const char *name)
{
	const struct command *found = NULL;

	for (; list && *list && !found; list++) {
		found = strcmp((*list)->name, name) == 0 ? *list
							 : list_find((*list)->subcommands, name);
		if (!found)
			found = list_find((*list)->modes, name);
	}
	return found;
}

const struct command *command_find(const char *name)
{
	return list_find(ctl_commands, name);
}

void commands_help_print(FILE *out)
{
	fputs("Usage: couponctl COMMAND [ARGUMENTS]\n       couponctl --api\n       couponctl "
	      "--version\n\nCommands:\n",
	      out);
	for (const struct command *const *one = ctl_commands; *one; one++)
		fprintf(out, "  %-12s %-9s %s\n", (*one)->name,
			(*one)->argument ? (*one)->argument : "", (*one)->summary);
	fputs("\nSee couponctl COMMAND --help.\n\nSettings, by flag or environment variable:\n",
	      out);
	config_help(CONFIG_CTL, out);
	fputs("\nEach command that prints a result has --json. Exit status:\n", out);
#define EXIT(name, number, text) fprintf(out, "  %2d  %s\n", number, text);
	EXITS
#undef EXIT
}

/* "show ID --curve": the name of a command with its argument. */
static void synopsis_print(const struct command *command)
{
	int len = args_name_len(command);

	printf("%.*s%s%s%s", len, command->name, command->argument ? " " : "",
	       command->argument ? command->argument : "", command->name + len);
}

void command_help_print(const struct command *command)
{
	printf("Usage: couponctl ");
	synopsis_print(command);
	printf("%s%s\n\n%c%s.\n", command->subcommands ? " COMMAND" : "",
	       command->run ? " [OPTIONS]" : "", command->summary[0] - 'a' + 'A',
	       command->summary + 1);
	if (command->detail)
		printf("%s\n", command->detail);
	if (command->subcommands)
		puts("\nCommands:");
	for (const struct command *const *sub = command->subcommands; sub && *sub; sub++) {
		printf("  ");
		synopsis_print(*sub);
		printf("\n      %s\n", (*sub)->summary);
	}
	if (command->run && (command->options || !command->has_no_json)) {
		puts("\nOptions:");
		args_options_print(command, stdout);
	}
	for (const struct command *const *mode = command->modes; mode && *mode; mode++) {
		putchar('\n');
		command_help_print(*mode);
	}
}

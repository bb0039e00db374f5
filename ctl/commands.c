/*
 * The commands of couponctl by their names, and their help. Each is in cmd_NAME.c, here or in a
 * folder, but for these: status is with issue; pause, resume and close are with publish; edit is
 * with create.
 */
#include "common/check.h"
#include "common/program/program.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

#include <string.h>

const struct command_group ctl_groups[] = {
	{ "Campaigns", COMMANDS(&create_command, &edit_command, &publish_command, &pause_command,
				&resume_command, &close_command, &stock_command, &list_command,
				&show_command, &report_command, &check_command, &history_command) },
	{ "Receives", COMMANDS(&issue_command, &status_command, &trace_command, &receive_command,
			       &void_command, &distribute_command, &export_command) },
	{ "Codes, budgets, keys and webhooks",
	  COMMANDS(&codes_command, &budget_command, &key_command, &webhook_command,
		   &approval_command) },
	{ "Stores", COMMANDS(&migrate_command, &audit_command, &rebuild_command, &recover_command,
			     &dead_command, &queue_command, &installation_command, &lock_command,
			     &setup_command, &doctor_command) },
	{ NULL, NULL },
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
	const struct command *found = NULL;

	for (const struct command_group *group = ctl_groups; group->subject && !found; group++)
		found = list_find(group->commands, name);
	return found;
}

/* A screen: what else --help has is in its topics. */
void commands_help_print(FILE *out)
{
	fputs("Usage: couponctl COMMAND [ARGUMENTS]\n", out);
	for (const struct command_group *group = ctl_groups; group->subject; group++) {
		fprintf(out, "\n%s:\n", group->subject);
		for (const struct command *const *one = group->commands; *one; one++)
			fprintf(out, "  %-12s %s\n", (*one)->name, (*one)->summary);
	}
	fputs("\nMore: couponctl COMMAND --help; couponctl --help settings, exit or json;\n"
	      "couponctl --version; for programs couponctl --api.\n",
	      out);
}

void exits_help_print(void)
{
	puts("Each command ends with one of these statuses:\n");
#define EXIT(name, number, text) printf("  %2d  %s\n", number, text);
	EXITS
#undef EXIT
}

static cJSON *commands_list(const struct command *const *commands)
{
	cJSON *list = checked(cJSON_CreateArray());

	for (; commands && *commands; commands++) {
		const struct command *command = *commands;
		cJSON *one = output_object();

		cJSON_AddItemToArray(list, one);
		output_text(one, "name", command->name);
		output_text(one, "argument", command->argument);
		output_text(one, "summary", command->summary);
		output_text(one, "detail", command->detail);
		output_bool(one, "runs", command->run != NULL);
		output_bool(one, "takes_words", command->takes_words);
		output_add(one, "options",
			   command->run ? args_options_list(command) : cJSON_CreateArray());
		output_add(one, "modes", commands_list(command->modes));
		output_add(one, "commands", commands_list(command->subcommands));
	}
	return list;
}

void commands_tables_print(void)
{
	cJSON *object = output_object(), *groups = cJSON_CreateArray(),
	      *exits = cJSON_CreateArray(), *one;

	output_text(object, "name", "couponctl");
	output_text(object, "version", PROGRAM_VERSION);
	for (const struct command_group *group = ctl_groups; group->subject; group++) {
		one = output_object();
		output_text(one, "subject", group->subject);
		output_add(one, "commands", commands_list(group->commands));
		cJSON_AddItemToArray(groups, one);
	}
	output_add(object, "groups", groups);
	output_add(object, "settings", config_tables(CONFIG_CTL));
#define EXIT(name, number, text)              \
	one = output_object();                \
	output_number(one, "status", number); \
	output_text(one, "meaning", text);    \
	cJSON_AddItemToArray(exits, one);
	EXITS
#undef EXIT
	output_add(object, "exits", exits);
	output_print(object);
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

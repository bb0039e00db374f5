/*
 * couponctl: the operator's tool. Each command is described by its own table; this file finds it
 * and runs it.
 */
#include "common/log.h"
#include "ctl/ctl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command *const commands[] = {
	&migrate_command, &create_command, &publish_command, &pause_command,   &resume_command,
	&close_command,   &stock_command,  &show_command,    &list_command,    &issue_command,
	&status_command,  &rush_command,   &audit_command,   &rebuild_command, &dead_command,
};

#define COMMANDS_N (sizeof(commands) / sizeof(commands[0]))

static void help_print(FILE *out)
{
	fputs("Usage: couponctl COMMAND [ARGUMENTS]\n\nCommands:\n", out);
	for (size_t i = 0; i < COMMANDS_N; i++)
		fprintf(out, "  %-8s %-5s %s\n", commands[i]->name,
			commands[i]->argument ? commands[i]->argument : "", commands[i]->summary);
	fputs("\ncouponctl COMMAND --help tells more.\n\nSettings, by flag or environment:\n", out);
	config_help(CONFIG_CTL, out);
	fputs("\nExit status: 0 done; 1 it failed, or a check did; 2 the command line is wrong;\n"
	      "3 recorded in PostgreSQL, but Redis could not be told yet; 4 audit: no verdict.\n",
	      out);
}

static void command_help_print(const struct command *command)
{
	printf("Usage: couponctl %s%s%s%s%s\n\n%c%s.\n", command->name,
	       command->subcommands ? " COMMAND" : "", command->argument ? " " : "",
	       command->argument ? command->argument : "",
	       command->options[0].name ? " [OPTIONS]" : "", command->summary[0] - 'a' + 'A',
	       command->summary + 1);
	if (command->detail)
		printf("%s\n", command->detail);
	if (command->subcommands)
		puts("\nCommands:");
	for (const struct command *const *sub = command->subcommands; sub && *sub; sub++)
		printf("  %s%s%s\n      %s\n", (*sub)->name, (*sub)->argument ? " " : "",
		       (*sub)->argument ? (*sub)->argument : "", (*sub)->summary);
	if (command->options[0].name)
		puts("\nOptions:");
	for (const struct option *o = command->options; o->name; o++)
		printf("  --%s%s%s\n      %s\n", o->name, o->value ? " " : "",
		       o->value ? o->value : "", o->help);
}

static int is_help(const char *argument)
{
	return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0 ||
	       strcmp(argument, "help") == 0;
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < COMMANDS_N; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

/* The command "dead list" of "dead", by its last word; NULL: there is none. */
static const struct command *subcommand_find(const struct command *command, const char *word)
{
	for (const struct command *const *sub = command->subcommands; *sub; sub++)
		if (strcmp((*sub)->name + strlen(command->name) + 1, word) == 0)
			return *sub;
	return NULL;
}

/* Whether any argument asks for help: it wins over whatever else is wrong. */
static int help_asked(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const struct command *command;
	static struct ctl ctl; /* lives as long as the process, however it ends */
	int status;

	signal(SIGPIPE, SIG_IGN);
	log_init("couponctl", LOG_LEVEL_WARN, 0);
	argc = config_read(&ctl.config, CONFIG_CTL, argc, argv);
	config_log(&ctl.config, "couponctl");
	if (argc < 2) {
		help_print(stderr);
		return ARGS_USAGE;
	}
	if (is_help(argv[1])) {
		help_print(stdout);
		return 0;
	}
	command = command_find(argv[1]);
	if (!command)
		args_fail("there is no command \"%s\"; see couponctl --help", argv[1]);
	argc -= 2;
	argv += 2;
	if (command->subcommands && argc > 0 && !is_help(argv[0])) {
		const char *name = command->name;

		command = subcommand_find(command, argv[0]);
		if (!command)
			args_fail("%s has no command \"%s\"; see couponctl %s --help", name,
				  argv[0], name);
		argc--;
		argv++;
	}
	if (help_asked(argc, argv) || (command->subcommands && argc > 0)) {
		command_help_print(command);
		return 0;
	}
	if (command->subcommands)
		args_fail("%s needs a command; see couponctl %s --help", command->name,
			  command->name);
	args_read(&ctl.args, command, argc, argv);
	status = command->run(&ctl);
	config_free(&ctl.config);
	if (fflush(stdout) != 0)
		log_fatal("standard output cannot be written");
	return status;
}

/* couponctl: the operator's tool. Finds the command by its name and runs it. */
#include "common/log/log.h"
#include "common/program/program.h"
#include "ctl/output.h"
#include "ctl/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void help_print(FILE *out)
{
	fputs("Usage: couponctl COMMAND [ARGUMENTS]\n       couponctl --version\n\nCommands:\n",
	      out);
	for (const struct command *const *one = ctl_commands; *one; one++)
		fprintf(out, "  %-12s %-9s %s\n", (*one)->name,
			(*one)->argument ? (*one)->argument : "", (*one)->summary);
	fputs("\nSee couponctl COMMAND --help.\n\nSettings, by flag or environment:\n", out);
	config_help(CONFIG_CTL, out);
	fputs("\nExit status: 0 done; 1 the command or a check failed; 2 the command line is "
	      "invalid;\n"
	      "3 PostgreSQL has the change, but Redis could not be updated; 4 audit: no "
	      "verdict;\n5 audit: receives are in flight without progress; 6 distribute: some "
	      "users\nwere refused; 7 distribute: stopped before its end, run it again; 8 the "
	      "coupon has\nanother version than --version; 9 what is named does not exist; 10 a "
	      "store cannot be\nreached, or PostgreSQL is behind Redis; 11 recover --tail: an "
	      "operator has to\nrecover; 12 failed after it had changed something, or it is "
	      "unknown whether it has;\n13 --key is of a command with other words.\n",
	      out);
}

/* "rebuild ID": the name and the argument of a command. */
static void synopsis_print(const struct command *command)
{
	printf("%s%s%s", command->name, command->argument ? " " : "",
	       command->argument ? command->argument : "");
}

static void command_help_print(const struct command *command)
{
	printf("Usage: couponctl ");
	synopsis_print(command);
	printf("%s%s\n\n%c%s.\n", command->subcommands ? " COMMAND" : "",
	       command->options ? " [OPTIONS]" : "", command->summary[0] - 'a' + 'A',
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
	if (command->options)
		puts("\nOptions:");
	args_options_print(command, stdout);
}

static int is_help_flag(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int is_help(const char *word)
{
	return is_help_flag(word) || strcmp(word, "help") == 0;
}

/* Whether a word is a help flag, which takes precedence over errors, and no option's value. */
static int has_help_flag(const struct command *command, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (command->takes_words && strcmp(argv[i], "--") == 0)
			return 0;
		if (is_help_flag(argv[i]))
			return 1;
		if (args_takes_value(command, argv[i]))
			i++;
	}
	return 0;
}

/* Whether the word is an option with a value, of any command. */
static int is_option_with_value(const char *word)
{
	for (const struct command *const *one = ctl_commands; *one; one++) {
		const struct command *const *sub = (*one)->subcommands;

		if (args_takes_value(*one, word))
			return 1;
		for (; sub && *sub; sub++)
			if (args_takes_value(*sub, word))
				return 1;
	}
	return 0;
}

static const struct command *command_need(const char *name)
{
	const struct command *command = command_find(name);

	if (!command)
		args_fail("there is no command \"%s\"; see couponctl --help", name);
	return command;
}

/* The command "dead list" of "dead" by its last word. */
static const struct command *subcommand_need(const struct command *command, const char *word)
{
	for (const struct command *const *sub = command->subcommands; *sub; sub++)
		if (strcmp((*sub)->name + strlen(command->name) + 1, word) == 0)
			return *sub;
	args_fail("%s has no command \"%s\"; see couponctl %s --help", command->name, word,
		  command->name);
}

/* Runs the command that the first words name. Returns the exit status. */
static int command_run(struct ctl *ctl, int argc, char **argv)
{
	const struct command *command = command_need(argv[0]);
	int used = 1;

	if (command->subcommands && argc > 1 && !is_help(argv[1]))
		command = subcommand_need(command, argv[used++]);
	if (has_help_flag(command, argc - used, argv + used) ||
	    (command->subcommands && argc > used)) {
		command_help_print(command);
		return 0;
	}
	if (command->subcommands)
		args_fail("%s needs a command; see couponctl %s --help", command->name,
			  command->name);
	args_read(&ctl->args, command, argc - used, argv + used);
	return command->run(ctl);
}

int main(int argc, char **argv)
{
	static struct ctl ctl; /* lives as long as the process, however it ends */
	int status;

	program_begin();
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		program_version_print("couponctl");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	log_init("couponctl", LOG_LEVEL_WARN, 0);
	argc = config_read(&ctl.config, CONFIG_CTL, argc, argv, is_option_with_value);
	config_log(&ctl.config, "couponctl");
	if (argc < 2) {
		help_print(stderr);
		return ARGS_USAGE;
	}
	if (is_help(argv[1])) {
		help_print(stdout);
		return 0;
	}
	program_trust_stores(&ctl.config);
	status = output_end(command_run(&ctl, argc - 1, argv + 1), store_is_recorded());
	config_free(&ctl.config);
	return status;
}

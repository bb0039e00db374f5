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

static void command_help_print(const struct command *command)
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

static int takes_value(const struct command *command, const char *word)
{
	int takes = args_takes_value(command, word);

	for (const struct command *const *mode = command->modes; mode && *mode; mode++)
		takes |= args_takes_value(*mode, word);
	return takes;
}

/* Whether the word is an option with a value, of any command. */
static int is_option_with_value(const char *word)
{
	for (const struct command *const *one = ctl_commands; *one; one++) {
		if (takes_value(*one, word))
			return 1;
		for (const struct command *const *sub = (*one)->subcommands; sub && *sub; sub++)
			if (takes_value(*sub, word))
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
	command = args_mode(command, argc - used, argv + used);
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
		return CTL_INVALID;
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

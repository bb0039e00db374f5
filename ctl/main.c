/* couponctl: the operator's tool. Finds the command by its name and runs it. */
#include "common/log/log.h"
#include "common/program/program.h"
#include "ctl/api.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static int is_help_flag(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int is_help(const char *word)
{
	return is_help_flag(word) || strcmp(word, "help") == 0;
}

static int list_takes_value(const struct command *const *list, const char *word)
{
	for (; list && *list; list++)
		if (args_takes_value(*list, word) || list_takes_value((*list)->modes, word) ||
		    list_takes_value((*list)->subcommands, word))
			return 1;
	return 0;
}

/* Whether the word is an option with a value, of any command. */
static int is_option_with_value(const char *word)
{
	return list_takes_value(ctl_commands, word);
}

/* Runs the command that the first words name. Returns the exit status. */
static int command_run(struct ctl *ctl, int argc, char **argv)
{
	const struct command *command = command_find(argv[0]);
	int used = 1, wants_help = 0;

	if (!command)
		args_fail("there is no command \"%s\"; see couponctl --help", argv[0]);

	/* The second word of "dead list" is the end of the name of a command. */
	if (command->subcommands && argc > 1 && !is_help(argv[1])) {
		const struct command *const *sub = command->subcommands;
		size_t begin = strlen(command->name) + 1;

		while (*sub && strcmp((*sub)->name + begin, argv[1]) != 0)
			sub++;
		if (!*sub)
			args_fail("%s has no command \"%s\"%s", command->name, argv[1],
				  say_help(command->name));
		command = *sub;
		used = 2;
	}
	command = args_mode(command, argc - used, argv + used);

	/* A help flag takes precedence over errors, but not if it is the value of an option. */
	for (int i = used; i < argc && !wants_help; i++) {
		if (command->takes_words && strcmp(argv[i], "--") == 0)
			break;
		wants_help = is_help_flag(argv[i]);
		i += args_takes_value(command, argv[i]);
	}
	if (wants_help || (command->subcommands && argc > used)) {
		command_help_print(command);
		return 0;
	}
	if (command->subcommands)
		args_fail("%s needs a command%s", command->name, say_help(command->name));
	args_read(&ctl->args, command, argc - used, argv + used);
	return command->run(ctl);
}

int main(int argc, char **argv)
{
	static struct ctl ctl; /* lives as long as the process, however it ends */
	int is_api = argc > 1 && strcmp(argv[1], "--api") == 0, status;

	program_begin();
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		program_version_print("couponctl");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	log_init("couponctl", LOG_LEVEL_WARN, 0);
	if (is_api) {
		api_begin();
		argc--;
		argv++;
	}
	argc = config_read(&ctl.config, CONFIG_CTL, argc, argv, is_option_with_value);
	config_log(&ctl.config, "couponctl");
	if (is_api && argc > 1)
		args_fail("this mode takes settings only, but got \"%s\"", argv[1]);
	if (argc < 2 && !is_api) {
		commands_help_print(stderr);
		return CTL_INVALID;
	}
	if (!is_api && is_help(argv[1])) {
		commands_help_print(stdout);
		return 0;
	}
	program_trust_stores(&ctl.config);
	status = is_api ? api_run(&ctl) : command_run(&ctl, argc - 1, argv + 1);
	status = output_end(status, store_is_recorded());
	config_free(&ctl.config);
	return status;
}

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
	for (const struct command_group *group = ctl_groups; group->subject; group++)
		if (list_takes_value(group->commands, word))
			return 1;
	return 0;
}

/* How much of a word is told: the value of a misspelled flag may be a secret. */
static int word_len(const char *word)
{
	return (int)(strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word));
}

/*
 * The command that the first words name, with its mode, and how many words its name has. A wrong
 * name ends the process.
 */
static const struct command *command_choose(int argc, char **argv, int *used)
{
	const struct command *command = command_find(argv[0]);

	if (!command)
		args_fail("there is no command \"%.*s\"; see couponctl --help", word_len(argv[0]),
			  argv[0]);
	*used = 1;
	/* The second word of "dead list" is the end of the name of a command. */
	if (command->subcommands && argc > 1 && !is_help(argv[1])) {
		const struct command *const *sub = command->subcommands;
		size_t begin = strlen(command->name) + 1;

		while (*sub && strcmp((*sub)->name + begin, argv[1]) != 0)
			sub++;
		if (!*sub)
			args_fail("%s has no command \"%.*s\"%s", command->name, word_len(argv[1]),
				  argv[1], say_help(command->name));
		command = *sub;
		*used = 2;
	}
	return args_mode(command, argc - *used, argv + *used);
}

/* What --help [TOPIC] prints; a topic is one of these words, or a command. */
static void help_print(int argc, char **argv)
{
	const char *topic = argc > 0 ? argv[0] : "";
	int used;

	if (argc == 0)
		commands_help_print(stdout);
	else if (strcmp(topic, "settings") == 0)
		program_settings_print("couponctl", CONFIG_CTL);
	else if (strcmp(topic, "exit") == 0)
		exits_help_print();
	else if (strcmp(topic, "json") == 0)
		commands_tables_print();
	else
		command_help_print(command_choose(argc, argv, &used));
}

static void settings_read(struct config *config)
{
	config_fill(config, CONFIG_CTL);
	config_log(config, "couponctl");
	program_trust_stores(config);
}

/*
 * Runs the command that the first words name. Returns the exit status. Help needs no settings: the
 * user may not be able to read their files.
 */
static int command_run(struct ctl *ctl, int argc, char **argv)
{
	int used, wants_help = 0;
	const struct command *command = command_choose(argc, argv, &used);

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
	settings_read(&ctl->config);
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
	argc = config_flags_take(CONFIG_CTL, argc, argv, is_option_with_value);
	if (is_api && argc > 1)
		args_fail("this mode takes settings only, but got \"%.*s\"", word_len(argv[1]),
			  argv[1]);
	if (argc < 2 && !is_api) {
		commands_help_print(stderr);
		return CTL_INVALID;
	}
	if (!is_api && is_help(argv[1])) {
		help_print(argc - 2, argv + 2);
		return 0;
	}
	if (is_api)
		settings_read(&ctl.config);
	status = is_api ? api_run(&ctl) : command_run(&ctl, argc - 1, argv + 1);
	status = output_end(status, store_is_recorded());
	config_free(&ctl.config);
	return status;
}

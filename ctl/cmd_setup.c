/*
 * couponctl setup: makes a service of this machine, or undoes that. Nearly all steps are other
 * programs', so a script does them (deploy/setup). This command checks who calls it, lets the
 * script say what it will do, asks, and becomes the script.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/ctl.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_NOTHING 3 /* of the script: there is nothing to do */

/* Where it is installed, and where it is in the source tree, from the folder of this program. */
static const char *const places[] = { "../lib/couponmq/setup/setup.sh",
				      "../deploy/setup/setup.sh" };

/* Tells the script the path of this program. Sets `path` to the script. */
static void script_find(char path[PATH_MAX])
{
	char own[PATH_MAX] = "";
	const char *folder;

	check(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
	check(setenv("COUPONCTL", own, 1) == 0);
	folder = dirname(own);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		check((size_t)snprintf(path, PATH_MAX, "%s/%s", folder, places[i]) < PATH_MAX);
		if (access(path, X_OK) == 0)
			return;
	}
	log_fatal("the programs that couponctl setup sets up are not installed: %s/%s is missing; "
		  "install couponmq-server",
		  folder, places[0]);
}

static _Noreturn void script_become(const char *path, const char *word)
{
	char *words[] = { checked(strdup(path)), checked(strdup(word)), NULL };

	fflush(NULL);
	execv(path, words);
	log_fatal("%s cannot be run: %s", path, strerror(errno));
}

static int setup_run(struct ctl *ctl)
{
	static const char *const urls[] = { "REDIS_URL", "AMQP_URL", "DATABASE_URL",
					    "DATABASE_ADMIN_URL" };
	int is_remove = args_has(&ctl->args, "remove"), how;
	char path[PATH_MAX], name[64];
	pid_t child;

	if (geteuid() != 0)
		log_fatal("setup must be run by root, because it writes to /etc and starts "
			  "services: sudo couponctl setup");
	script_find(path);
	/* In the environment, because every user sees the words of a command. */
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		snprintf(name, sizeof(name), "SETUP_%s", urls[i]);
		check(setenv(name, config_given(&ctl->config, urls[i]), 1) == 0);
	}

	fflush(NULL);
	child = fork();
	if (child < 0)
		log_fatal("a process cannot be created: %s", strerror(errno));
	if (child == 0)
		script_become(path, is_remove ? "plan-remove" : "plan");
	while (waitpid(child, &how, 0) != child)
		check(errno == EINTR);
	if (WIFEXITED(how) && WEXITSTATUS(how) == STATUS_NOTHING)
		return CTL_DONE;
	if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
		return CTL_FAILED;
	args_ask(&ctl->args, is_remove ? "This cannot be undone." : "Nothing was changed yet.");
	script_become(path, is_remove ? "remove" : "apply");
}

const struct command setup_command = {
	.name = "setup",
	.has_no_json = 1,
	.run = setup_run,
	.options = OPTIONS(SWITCH("remove", "undo it: refused while there are receives"),
			   YES_OPTION),
	.summary = "set up couponmq on this machine as a service",
	.detail =
		"The command says what it will do; on a terminal it asks first. It uses Debian's\n"
		"Redis, RabbitMQ and PostgreSQL on this machine, or the stores that REDIS_URL,\n"
		"AMQP_URL and DATABASE_URL name, each with a login that has the rights of all\n"
		"programs; DATABASE_ADMIN_URL is then the owner of the tables. It makes logins,\n"
		"passwords, tables and settings, starts the programs, prints the first API key,\n"
		"and issues and voids one coupon. A second run changes nothing; a run that was\n"
		"stopped goes on when it is repeated.",
};

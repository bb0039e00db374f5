#include "common/program/couponctl.h"

#include "common/check.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

const char *couponctl_path(void)
{
	static const char *const places[] = { "couponctl", "../bin/couponctl" };
	static char path[PATH_MAX];
	char own[PATH_MAX] = "";
	const char *folder;

	if (*path)
		return path;
	check(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
	folder = dirname(own);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		check((size_t)snprintf(path, sizeof(path), "%s/%s", folder, places[i]) <
		      sizeof(path));
		if (access(path, X_OK) == 0)
			return path;
	}
	/* There is none: an error names the first place. */
	check((size_t)snprintf(path, sizeof(path), "%s/%s", folder, places[0]) < sizeof(path));
	return path;
}

int couponctl_spawn(pid_t *pid, char *const words[], int in, int out, int err)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int error;

	sigemptyset(&none);
	sigfillset(&all);
	check(posix_spawnattr_init(&attributes) == 0);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setpgroup(&attributes, 0);
	check(posix_spawn_file_actions_init(&actions) == 0);
	if (in < 0)
		posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	else
		posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
	posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	error = posix_spawn(pid, couponctl_path(), &actions, &attributes, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return error;
}

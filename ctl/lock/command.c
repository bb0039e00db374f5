#include "ctl/lock/command.h"

#include "common/check.h"
#include "common/log/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT };

static sigset_t signals_before;

static void signals_fill(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(set, passed_on[i]);
}

void command_signals_hold(void)
{
	sigset_t set;

	signals_fill(&set);
	check(sigprocmask(SIG_BLOCK, &set, &signals_before) == 0);
}

static _Noreturn void become(char **words, pid_t parent)
{
	int is_missing;

	signal(SIGPIPE, SIG_DFL);
	check(sigprocmask(SIG_SETMASK, &signals_before, NULL) == 0);
	check(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
	if (getppid() != parent)
		_exit(COMMAND_NOT_EXECUTABLE); /* it died before */
	execvp(words[0], words);
	is_missing = errno == ENOENT;
	fprintf(stderr, "couponctl: %s: %s\n", words[0], strerror(errno));
	_exit(is_missing ? COMMAND_NOT_FOUND : COMMAND_NOT_EXECUTABLE);
}

/* The child has ended: 1, with its *status. */
static int has_ended(pid_t child, int *status)
{
	int how;

	if (waitpid(child, &how, WNOHANG) != child)
		return 0;
	*status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
	return 1;
}

static void signals_pass(int signals, pid_t child)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
			kill(child, (int)info.ssi_signo);
}

int command_run_words(char **words, int stop_fd)
{
	pid_t parent = getpid(), child;
	struct pollfd ready[2] = { { .events = POLLIN }, { .fd = stop_fd, .events = POLLIN } };
	sigset_t set;
	int status;

	fflush(NULL);
	child = fork();
	if (child < 0)
		log_fatal("no process can be made: %s", strerror(errno));
	if (child == 0)
		become(words, parent);
	signals_fill(&set);
	ready[0].fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	check(ready[0].fd >= 0);
	while (!has_ended(child, &status)) {
		poll(ready, 2, -1);
		signals_pass(ready[0].fd, child);
		if (ready[1].revents) {
			kill(child, SIGTERM);
			ready[1].fd = -1;
			ready[1].revents = 0;
		}
	}
	close(ready[0].fd);
	return status;
}

/* A process that executes one instruction after the other, and may stop or die after each. */
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that stands before the step. -1: processes cannot be traced here. */
static inline pid_t dying_start(void (*step)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(1);
		raise(SIGSTOP);
		step();
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) ? pid : -1;
}

/* It goes on by an instruction. Returns whether it has ended. */
static inline int dying_step(pid_t pid)
{
	int status;

	return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid ||
	       !WIFSTOPPED(status);
}

/* It goes on to its end. */
static inline void dying_end(pid_t pid)
{
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	waitpid(pid, NULL, 0);
}

static inline void dying_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

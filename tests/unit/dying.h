/* A process that executes one instruction after the other, and may die after each of them. */
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

static inline void dying_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

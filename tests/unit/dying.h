/*
 * Processes that die in the middle: at every instruction of a step, one after the other, or at any
 * time. What they share with the test must then be whole.
 */
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DYING_STRIDE 37 /* these make many instructions of one */
#else
#define DYING_STRIDE 1
#endif

/* Runs the step in a process of its own, and kills it after so many instructions of it. Returns
 * whether it had come to its end before. -1: processes cannot be traced here. */
static inline int dying_run(void (*step)(void), int instructions)
{
	pid_t pid = fork();
	int status, ended;

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(2);
		raise(SIGSTOP);
		step();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	for (int i = 0; i < instructions && WIFSTOPPED(status); i++) {
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
		waitpid(pid, &status, 0);
	}
	ended = !WIFSTOPPED(status);
	if (ended)
		return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? -1 : 1;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return 0;
}

/*
 * Kills it at each of its instructions; `before` makes each time what it begins with, and `after`
 * looks at what it has left. Returns how often it was killed; -1: this cannot be done here.
 */
static inline int dying_everywhere(void (*before)(void), void (*step)(void), void (*after)(void))
{
	int n = 0, ended = 0;

	for (int at = 0; !ended; at += DYING_STRIDE) {
		before();
		ended = dying_run(step, at);
		if (ended < 0)
			return -1;
		after();
		n++;
	}
	return n;
}

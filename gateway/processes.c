#include "gateway/processes.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "gateway/gateway.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* a process finishes its requests, then closes its connections */
#define STOP_GRACE_MS (GATEWAY_FINISH_MS + 3000)
#define SETTLED_MS 10000 /* a process that ran this long did not fail at its start */
#define WAIT_MAX_MS 60000

struct process {
	pid_t pid;        /* 0: it does not run */
	int64_t start_ms; /* when it was started, or is to be */
	struct backoff backoff;
};

struct processes {
	struct process list[PROCESSES_MAX];
	size_t n;
	process_fn *run;
	void *context;
	sigset_t signals; /* the parent waits for these */
	sigset_t before;  /* the masks that the processes get */
};

static void process_start(struct processes *processes, size_t i)
{
	struct process *process = &processes->list[i];
	pid_t parent = getpid(), pid = fork();

	process->start_ms = clock_monotonic_ms();
	if (pid < 0) {
		int64_t wait_ms = backoff_ms(&process->backoff);

		log_error("process_not_started", LOG_S("error", strerror(errno)),
			  LOG_I("again_in_ms", wait_ms));
		process->start_ms += wait_ms;
		return;
	}
	process->pid = pid;
	if (pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		exit(1);
	sigprocmask(SIG_SETMASK, &processes->before, NULL);
	exit(processes->run(processes->context, i));
}

/* Starts the processes that are due; returns the ms until the next one is. */
static int64_t processes_start(struct processes *processes)
{
	int64_t wait_ms = WAIT_MAX_MS;

	for (size_t i = 0; i < processes->n; i++) {
		struct process *process = &processes->list[i];
		int64_t due_ms = process->start_ms - clock_monotonic_ms();

		if (process->pid)
			continue;
		if (due_ms <= 0) {
			process_start(processes, i);
			due_ms = process->pid ? WAIT_MAX_MS
					      : process->start_ms - clock_monotonic_ms();
		}
		if (due_ms < wait_ms)
			wait_ms = due_ms;
	}
	return wait_ms > 0 ? wait_ms : 0;
}

static void process_ended(struct process *process, int status, int stopping)
{
	int64_t now_ms = clock_monotonic_ms(), wait_ms;
	pid_t pid = process->pid;

	process->pid = 0;
	if (stopping)
		return;
	if (now_ms - process->start_ms > SETTLED_MS)
		backoff_reset(&process->backoff);
	wait_ms = backoff_ms(&process->backoff);
	process->start_ms = now_ms + wait_ms;
	log_error("process_died", LOG_I("pid", pid), LOG_I("status", status),
		  LOG_I("again_in_ms", wait_ms));
}

/* Reaps the processes that have ended; returns how many run. */
static size_t processes_reap(struct processes *processes, int stopping)
{
	size_t running = 0;
	int status;

	for (size_t i = 0; i < processes->n; i++) {
		struct process *process = &processes->list[i];

		if (process->pid && waitpid(process->pid, &status, WNOHANG) == process->pid)
			process_ended(process, status, stopping);
		running += process->pid != 0;
	}
	return running;
}

/* The next signal, or -1 after the time. */
static int signal_wait(const struct processes *processes, int64_t wait_ms)
{
	struct timespec wait = { .tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000 };

	return sigtimedwait(&processes->signals, NULL, &wait);
}

static void processes_signal(const struct processes *processes, int signal)
{
	for (size_t i = 0; i < processes->n; i++) {
		if (!processes->list[i].pid)
			continue;
		if (signal == SIGKILL)
			log_error("process_killed", LOG_I("pid", processes->list[i].pid),
				  LOG_I("after_ms", STOP_GRACE_MS));
		kill(processes->list[i].pid, signal);
	}
}

/* Returns 0, or 1 when a process had to be killed. */
static int processes_stop(struct processes *processes)
{
	int64_t until_ms = clock_monotonic_ms() + STOP_GRACE_MS, left_ms;

	processes_signal(processes, SIGTERM);
	while (processes_reap(processes, 1) > 0) {
		left_ms = until_ms - clock_monotonic_ms();
		if (left_ms <= 0) {
			processes_signal(processes, SIGKILL);
			while (processes_reap(processes, 1) > 0)
				signal_wait(processes, 100);
			return 1;
		}
		signal_wait(processes, left_ms);
	}
	return 0;
}

int processes_run(size_t n, process_fn *run, void *context)
{
	struct processes processes = { .n = n, .run = run, .context = context };
	int signal = 0;

	check(n <= PROCESSES_MAX);
	/* Blocked from here on: a signal stays pending until sigtimedwait(). */
	sigemptyset(&processes.signals);
	sigaddset(&processes.signals, SIGCHLD);
	sigaddset(&processes.signals, SIGTERM);
	sigaddset(&processes.signals, SIGINT);
	sigprocmask(SIG_BLOCK, &processes.signals, &processes.before);
	while (signal != SIGTERM && signal != SIGINT) {
		signal = signal_wait(&processes, processes_start(&processes));
		processes_reap(&processes, 0);
	}
	return processes_stop(&processes);
}

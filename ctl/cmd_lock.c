/*
 * couponctl lock: runs a command under a lock, as flock(1) does, but between machines. The command
 * is a child process. Signals that end or steer a program are passed on to the child, except those
 * of a terminal, which the child gets by itself; while the lock is waited for, they end this
 * process. The child gets SIGTERM when this process dies.
 */
#include "lock/lock.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/say.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASE_MS 30000
#define STATUS_SKIPPED 0
#define STATUS_FAILED 1
#define STATUS_UNAVAILABLE 69     /* EX_UNAVAILABLE of sysexits.h */
#define STATUS_LOST 75            /* EX_TEMPFAIL */
#define STATUS_NOT_EXECUTABLE 126 /* as of env(1) */
#define STATUS_NOT_FOUND 127

#define LOST SIGRTMIN /* this process sends it to itself: the lock is lost */

static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT };

static sigset_t signals_before;

/* What words_run() waits for. `passes`: also what it passes on. */
static sigset_t signals_set(int passes)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, LOST);
	for (size_t i = 0; passes && i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	return set;
}

/*
 * Runs words[0] with these words until it ends. It gets SIGTERM when the lock is lost. Returns its
 * exit status, or 128 and the number of the signal that ended it.
 */
static int words_run(char **words)
{
	pid_t parent = getpid(), child;
	int how, is_missing;
	siginfo_t info;
	const sigset_t set = signals_set(1);

	fflush(NULL);
	child = fork();
	if (child < 0)
		log_fatal("a process cannot be created: %s", strerror(errno));
	if (child == 0) {
		signal(SIGPIPE, SIG_DFL);
		check(sigprocmask(SIG_SETMASK, &signals_before, NULL) == 0);
		check(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
		if (getppid() != parent)
			_exit(STATUS_NOT_EXECUTABLE); /* the parent died before */
		execvp(words[0], words);
		is_missing = errno == ENOENT;
		say("%s: %s", words[0], strerror(errno));
		_exit(is_missing ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
	}

	while (waitpid(child, &how, WNOHANG) != child) {
		if (sigwaitinfo(&set, &info) < 0)
			continue;
		if (info.si_signo == LOST)
			kill(child, SIGTERM);
		else if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
			kill(child, info.si_signo);
	}
	return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/* Called by the thread that renews the lease. */
static void on_lost(void *context, const char *name)
{
	(void)context;
	say("the lock \"%s\" is lost: the command gets SIGTERM", name);
	kill(getpid(), LOST);
}

/* Takes the lock, runs the command and releases the lock. Returns the exit status. */
static int locked_run(struct lock_owner *owner, const struct ctl *ctl,
		      const struct lock_options *options)
{
	const sigset_t set = signals_set(1);
	struct lock *lock;
	char fence[24];
	int status, is_held;

	switch (lock_take(owner, ctl->args.argument, options, &lock)) {
	case LOCK_TAKEN:
		break;
	case LOCK_SKIPPED:
		return STATUS_SKIPPED;
	case LOCK_FAILED:
		say("the lock \"%s\" is taken", ctl->args.argument);
		return STATUS_FAILED;
	case LOCK_UNREACHABLE:
	case LOCK_REFUSED:
		say("%s", lock_error(owner));
		return STATUS_UNAVAILABLE;
	}

	check(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	snprintf(fence, sizeof(fence), "%lld", (long long)lock_fence(lock));
	setenv("COUPON_LOCK_NAME", ctl->args.argument, 1);
	setenv("COUPON_LOCK_FENCE", fence, 1);
	status = words_run(ctl->args.words);
	is_held = lock_is_held(lock);
	if (lock_release(lock) == 0)
		return status;
	if (!is_held || !lock_error(owner)[0])
		return STATUS_LOST;
	say("the lock \"%s\" is free at the end of its lease: %s", ctl->args.argument,
	    lock_error(owner));
	return status;
}

static const char *const kinds[] = { [LOCK_EXCLUSIVE] = "exclusive",
				     [LOCK_FAIR] = "fair",
				     [LOCK_READ] = "read",
				     [LOCK_WRITE] = "write",
				     NULL };
static const char *const backends[] = {
	[LOCK_REDIS] = "redis", [LOCK_POSTGRES] = "postgres", [LOCK_ZOOKEEPER] = "zookeeper", NULL
};
static const char *const waits[] = { "skip", "fail", "keep", "skip:MS", "fail:MS", NULL };

static int lock_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *wait = args_text(args, "wait");
	enum lock_backend_id backend = (enum lock_backend_id)args_choice(args, "backend",
									 LOCK_REDIS);
	struct lock_options options = {
		.kind = (enum lock_kind)args_choice(args, "kind", LOCK_EXCLUSIVE),
		.is_watched = !args_has(args, "fixed"),
		.skips = wait && strncmp(wait, "skip", 4) == 0,
		.wait_ms = LOCK_WAIT_FOREVER,
		.lease_ms = args_number(args, "lease", LOCK_LEASE_LEAST_MS, LOCK_LEASE_MOST_MS,
					LEASE_MS),
	};
	const char *const urls[] = { [LOCK_REDIS] = ctl->config.redis_url,
				     [LOCK_POSTGRES] = ctl->config.database_url,
				     [LOCK_ZOOKEEPER] = ctl->config.zookeeper_hosts };
	struct lock_owner *owner;
	int status;
	sigset_t set;
	char *end;

	if (wait && (strncmp(wait, "skip:", 5) == 0 || strncmp(wait, "fail:", 5) == 0)) {
		options.wait_ms = strtoll(wait + 5, &end, 10);
		if (end == wait + 5 || *end || options.wait_ms < 0 ||
		    options.wait_ms > LOCK_LEASE_MOST_MS)
			args_fail("--wait is \"%s\": allowed after the colon are 0 to %d ms", wait,
				  LOCK_LEASE_MOST_MS);
	} else if (args_choice(args, "wait", 2) != 2) {
		options.wait_ms = 0;
	}
	if (!args->words || !args->words[0])
		args_fail("lock needs -- and a command%s", say_help("lock"));
	owner = lock_owner_new(backend, urls[backend], on_lost, NULL);
	if (!owner)
		args_fail("--backend is \"zookeeper\": this build has no ZooKeeper support; build "
			  "with make WITH_ZOOKEEPER=1");
	/* Some callers ignore SIGCHLD: then waitpid() would not report the end of the child. */
	signal(SIGCHLD, SIG_DFL);
	/* The others are not blocked before the lock is taken: they end a process that waits. */
	set = signals_set(0);
	check(sigprocmask(SIG_BLOCK, &set, &signals_before) == 0);
	status = locked_run(owner, ctl, &options);
	lock_owner_free(owner);
	return status;
}

const struct command lock_command = {
	.name = "lock",
	.has_no_json = 1,
	.run = lock_run,
	.argument = "NAME",
	.options = OPTIONS(
		OPTION_WORDS("kind", "KIND", kinds, "exclusive (default), fair, read or write"),
		OPTION_WORDS(
			"wait", "HOW", waits,
			"what to do while the lock is taken: keep trying (keep, the default), skip "
			"or fail "
			"at once (skip, fail), or after a time (skip:MS, fail:MS; 0 to "
			"86400000 "
			"ms)"),
		OPTION("lease", "MS",
		       "how long the lock lasts without renewal, 100 to 86400000 ms; default "
		       "30000"),
		SWITCH("fixed", "do not renew the lease: it ends after --lease"),
		OPTION_WORDS("backend", "STORE", backends,
			     "redis (default), postgres or zookeeper")),
	.takes_words = 1,
	.summary = "run a command under a lock: lock NAME [OPTIONS] -- COMMAND",
	.detail = "The exit status is that of COMMAND; or 128 and the number of the signal that\n"
		  "ended it; 0 if it was skipped; 1 if the lock was taken; 69 if the store cannot "
		  "be\n"
		  "reached or refuses; 75 if the lock was lost meanwhile: then COMMAND gets "
		  "SIGTERM.\n"
		  "COMMAND has COUPON_LOCK_NAME and COUPON_LOCK_FENCE in its environment. What it\n"
		  "changes should refuse a lower fence than it has seen (docs/reference/locks.md).",
};

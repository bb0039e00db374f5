/*
 * couponctl lock: runs a command under a lock, as flock(1) does, but between machines.
 */
#include "lock/lock.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/lock/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LEASE_MS 30000
#define STATUS_SKIPPED 0
#define STATUS_FAILED 1
#define STATUS_UNAVAILABLE 69 /* EX_UNAVAILABLE of sysexits.h */
#define STATUS_LOST 75        /* EX_TEMPFAIL */

/* The place of the word in the names, or a sentence and the end. */
static int word_find(const char *option, const char *word, const char *const *names, int n)
{
	char allowed[128] = "";

	for (int i = 0; i < n; i++) {
		if (strcmp(names[i], word) == 0)
			return i;
		snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s%s",
			 i == 0       ? ""
			 : i + 1 == n ? " and "
				      : ", ",
			 names[i]);
	}
	args_fail("--%s is \"%s\": allowed are %s", option, word, allowed);
}

static enum lock_kind kind_read(const struct args *args)
{
	static const char *const names[] = { [LOCK_EXCLUSIVE] = "exclusive",
					     [LOCK_FAIR] = "fair",
					     [LOCK_READ] = "read",
					     [LOCK_WRITE] = "write" };

	return args_has(args, "kind")
		       ? (enum lock_kind)word_find("kind", args_text(args, "kind"), names, 4)
		       : LOCK_EXCLUSIVE;
}

/* The time after "skip:" or "fail:", in ms. */
static int64_t wait_time_read(const char *wait)
{
	char *end;
	long long ms = strtoll(wait + 5, &end, 10);

	if (end == wait + 5 || *end || ms < 0 || ms > LOCK_LEASE_MOST_MS)
		args_fail("--wait is \"%s\": allowed after the colon are 0 to %d ms", wait,
			  LOCK_LEASE_MOST_MS);
	return ms;
}

static void wait_read(const struct args *args, struct lock_options *options)
{
	static const char *const names[] = { [LOCK_SKIP] = "skip",
					     [LOCK_FAIL] = "fail",
					     [LOCK_KEEP_TRYING] = "keep",
					     [LOCK_SKIP_AFTER] = "skip:MS",
					     [LOCK_FAIL_AFTER] = "fail:MS" };
	const char *wait = args_text(args, "wait");

	options->wait = LOCK_KEEP_TRYING;
	if (!wait)
		return;
	if (strncmp(wait, "skip:", 5) == 0)
		options->wait = LOCK_SKIP_AFTER;
	else if (strncmp(wait, "fail:", 5) == 0)
		options->wait = LOCK_FAIL_AFTER;
	else
		options->wait = (enum lock_wait)word_find("wait", wait, names, 5);
	if (options->wait == LOCK_SKIP_AFTER || options->wait == LOCK_FAIL_AFTER)
		options->wait_ms = wait_time_read(wait);
}

static enum lock_backend_id backend_read(const struct args *args)
{
	static const char *const names[] = {
		[LOCK_REDIS] = "redis", [LOCK_POSTGRES] = "postgres", [LOCK_ZOOKEEPER] = "zookeeper"
	};

	return args_has(args, "backend")
		       ? (enum lock_backend_id)word_find("backend", args_text(args, "backend"),
							 names, 3)
		       : LOCK_REDIS;
}

static const char *url_of(const struct ctl *ctl, enum lock_backend_id backend)
{
	switch (backend) {
	case LOCK_REDIS:
		return ctl->config.redis_url;
	case LOCK_POSTGRES:
		return ctl->config.database_url;
	case LOCK_ZOOKEEPER:
		return ctl->config.zookeeper_hosts;
	}
	return NULL;
}

/* From the thread that renews. */
static void on_lost(void *context, const char *name)
{
	const int *fd = context;

	fprintf(stderr, "couponctl: the lock \"%s\" is lost: the command gets SIGTERM\n", name);
	eventfd_write(*fd, 1);
}

/* The exit status. */
static int run_locked(struct lock_owner *owner, struct lock *lock, const struct ctl *ctl,
		      int lost_fd)
{
	char fence[24];
	int status, is_held;

	snprintf(fence, sizeof(fence), "%lld", (long long)lock_fence(lock));
	setenv("COUPON_LOCK_NAME", ctl->args.argument, 1);
	setenv("COUPON_LOCK_FENCE", fence, 1);
	status = command_run_words(ctl->args.words, lost_fd);
	is_held = lock_is_held(lock);
	if (lock_release(lock) == 0)
		return status;
	if (!is_held || !lock_error(owner)[0])
		return STATUS_LOST;
	fprintf(stderr, "couponctl: the lock \"%s\" is free at the end of its lease: %s\n",
		ctl->args.argument, lock_error(owner));
	return status;
}

static int take_and_run(struct lock_owner *owner, const struct ctl *ctl,
			const struct lock_options *options, int lost_fd)
{
	struct lock *lock;

	switch (lock_take(owner, ctl->args.argument, options, &lock)) {
	case LOCK_TAKEN:
		return run_locked(owner, lock, ctl, lost_fd);
	case LOCK_SKIPPED:
		return STATUS_SKIPPED;
	case LOCK_FAILED:
		fprintf(stderr, "couponctl: the lock \"%s\" is taken\n", ctl->args.argument);
		return STATUS_FAILED;
	case LOCK_UNREACHABLE:
	case LOCK_REFUSED:
		fprintf(stderr, "couponctl: %s\n", lock_error(owner));
		return STATUS_UNAVAILABLE;
	}
	return STATUS_UNAVAILABLE;
}

static int lock_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	enum lock_backend_id backend = backend_read(args);
	struct lock_options options = { .kind = kind_read(args),
					.is_watched = !args_has(args, "fixed") };
	struct lock_owner *owner;
	int lost_fd, status;

	wait_read(args, &options);
	options.lease_ms = args_number(args, "lease", LOCK_LEASE_LEAST_MS, LOCK_LEASE_MOST_MS,
				       LEASE_MS);
	if (!args->words || !args->words[0])
		args_fail("lock needs -- and a command; see couponctl lock --help");
	lost_fd = eventfd(0, EFD_CLOEXEC);
	check(lost_fd >= 0);
	owner = lock_owner_new(backend, url_of(ctl, backend), on_lost, &lost_fd);
	if (!owner)
		args_fail("--backend is \"zookeeper\": this build has no ZooKeeper; make "
			  "WITH_ZOOKEEPER=1 has it");
	command_signals_hold();
	status = take_and_run(owner, ctl, &options, lost_fd);
	lock_owner_free(owner);
	close(lost_fd);
	return status;
}

static const struct option lock_options[] = {
	OPTION("kind", "KIND", "exclusive (default), fair, read or write"),
	OPTION("wait", "HOW",
	       "when it is taken: keep trying (keep, the default), or skip or fail at once, or "
	       "after\n"
	       "      a time (skip:MS, fail:MS)"),
	OPTION("lease", "MS", "how long it lasts without renewal, 100 to 86400000 (default 30000)"),
	SWITCH("fixed", "do not renew the lease: it ends after --lease"),
	OPTION("backend", "STORE", "redis (default), postgres or zookeeper"),
	OPTIONS_END,
};

const struct command lock_command = {
	.name = "lock",
	.run = lock_run,
	.argument = "NAME",
	.options = lock_options,
	.takes_words = 1,
	.summary = "run a command under a lock: lock NAME [OPTIONS] -- COMMAND",
	.detail =
		"The exit status is that of COMMAND; 128 and the signal if one ended it; 0 if it\n"
		"was skipped; 1 if the lock was taken; 69 if the store cannot be reached or\n"
		"refuses; 75 if the lock was lost meanwhile, and COMMAND got SIGTERM. COMMAND\n"
		"finds COUPON_LOCK_NAME and COUPON_LOCK_FENCE in its environment: what it changes\n"
		"should refuse a lower fence than it has seen (docs/locks.md).",
};

/*
 * couponctl publish, pause, resume, close: a campaign's way through its life. Running one again
 * changes nothing.
 */
#include "common/clock.h"
#include "common/log.h"
#include "ctl/command/change.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PUBLISH_WAIT_S 5
#define PUBLISH_POLL_US 10000

struct step {
	const char *wanted;  /* the status afterwards */
	const char *from[3]; /* where this may be asked for, besides where it is done already */
	const char *done;    /* "coupon 1001 is …" */
};

static int step_allowed(const struct step *step, const char *status)
{
	for (int i = 0; i < 3 && step->from[i]; i++)
		if (strcmp(step->from[i], status) == 0)
			return 1;
	return strcmp(step->wanted, status) == 0;
}

/* Leaves `change` committed, for change_fini(). */
static int step_run(struct ctl *ctl, const struct step *step, struct change *change)
{
	char id[DB_NUMBER_SIZE];

	change_begin(change, ctl);
	if (!step_allowed(step, change->status))
		log_fatal("coupon %lld is %s: %s is allowed when it is %s%s%s",
			  (long long)change->coupon, change->status, ctl->args.command->name,
			  step->from[0], step->from[1] ? " or " : "",
			  step->from[1] ? step->from[1] : "");
	PQclear(db_query(change->db, sql_query_coupon_status_set, 2,
			 (const char *[]){ db_number(change->coupon, id), step->wanted }));
	return change_commit(change);
}

static int step_command(struct ctl *ctl, const struct step *step)
{
	struct change change;
	int status = step_run(ctl, step, &change);

	printf("coupon %lld is %s\n", (long long)change.coupon, step->done);
	change_fini(&change);
	return status;
}

/*
 * Whether requests are answered by what Redis has: loaded, of these terms, and verified on this
 * Redis process.
 */
static int is_open(struct change *change)
{
	char run_id[CACHE_RUN_ID_SIZE];
	struct cache_coupon cached;

	return cache_coupon_read(change->cache, change->coupon, &cached) == 1 &&
	       strcmp(cached.status, "open") == 0 && cached.version >= change->terms.version &&
	       cache_run_id(change->cache, run_id) == 0 && strcmp(cached.run_id, run_id) == 0;
}

static int publish_run(struct ctl *ctl)
{
	static const struct step step = { "published", { "draft" }, "published" };
	int64_t wait_s = args_number(&ctl->args, "wait-s", 0, 3600, PUBLISH_WAIT_S);
	struct change change;
	int64_t until_ms;
	int open = 0;

	step_run(ctl, &step, &change);
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	while (change.cached >= 0 && !(open = is_open(&change)) && clock_monotonic_ms() < until_ms)
		usleep(PUBLISH_POLL_US);
	if (open)
		printf("coupon %lld is published, and open in Redis\n", (long long)change.coupon);
	else
		printf("coupon %lld is published\n", (long long)change.coupon);
	if (!open && wait_s > 0)
		fprintf(stderr,
			"couponctl: warning: no keeper has loaded coupon %lld into Redis yet: "
			"it opens as soon as a coupon-worker runs\n",
			(long long)change.coupon);
	change_fini(&change);
	return 0;
}

static int pause_run(struct ctl *ctl)
{
	return step_command(ctl, &(const struct step){ "paused", { "published" }, "paused" });
}

static int resume_run(struct ctl *ctl)
{
	return step_command(ctl,
			    &(const struct step){ "published", { "paused" }, "published again" });
}

static int close_run(struct ctl *ctl)
{
	return step_command(ctl,
			    &(const struct step){ "closed", { "published", "paused" }, "closed" });
}

static const struct option publish_options[] = {
	OPTION("wait-s", "S", "how long to wait until Redis has it; default 5, 0: not at all"),
	OPTIONS_END,
};

const struct command publish_command = {
	.name = "publish",
	.run = publish_run,
	.argument = "ID",
	.options = publish_options,
	.summary = "open a draft",
	.detail = "PostgreSQL records it, and the keeper, a thread of coupon-worker, loads it into "
		  "Redis. Never refills: publishing\n"
		  "again changes nothing. When no keeper does its part in time there is a warning, "
		  "and the exit status is still 0.",
};
const struct command pause_command = {
	.name = "pause",
	.run = pause_run,
	.argument = "ID",
	.summary = "stop giving out for a while",
};
const struct command resume_command = {
	.name = "resume",
	.run = resume_run,
	.argument = "ID",
	.summary = "go on after a pause",
};
const struct command close_command = {
	.name = "close",
	.run = close_run,
	.argument = "ID",
	.summary = "end a campaign for good",
};

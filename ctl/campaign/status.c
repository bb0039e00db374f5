/*
 * couponctl publish, pause, resume and close: changes of a campaign's status. Repeating one changes
 * nothing.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/campaign/change.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PUBLISH_WAIT_S 5
#define PUBLISH_POLL_US 10000

struct step {
	const char *wanted;  /* the new status */
	const char *from[3]; /* the allowed ones before, besides `wanted` */
	const char *done;    /* "coupon 1001 is …" */
};

static int step_allowed(const struct step *step, const char *status)
{
	for (int i = 0; i < 3 && step->from[i]; i++)
		if (strcmp(step->from[i], status) == 0)
			return 1;
	return strcmp(step->wanted, status) == 0;
}

/* Commits `change`, for change_fini(). Returns the exit status. */
static int step_run(struct ctl *ctl, const struct step *step, struct change *change)
{
	char id[DB_NUMBER_SIZE];

	change_begin(change, ctl);
	if (!step_allowed(step, change->status))
		log_fatal("coupon %lld is %s: %s is allowed when it is %s%s%s",
			  (long long)change->coupon, change->status, ctl->args.command->name,
			  step->from[0], step->from[1] ? " or " : "",
			  step->from[1] ? step->from[1] : "");
	if (strcmp(step->wanted, change->status) != 0)
		change_needed(change);
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
 * Whether requests are decided by Redis: the coupon is loaded, with these terms or later ones, and
 * verified on this Redis process.
 */
static int is_open(struct change *change)
{
	struct redis_coupon coupon;

	return redis_coupon_read(change->redis, change->coupon, &coupon) == 1 &&
	       strcmp(coupon.status, "open") == 0 && coupon.version >= change->terms.version &&
	       redis_coupon_is_verified(change->redis, &coupon);
}

static int publish_run(struct ctl *ctl)
{
	static const struct step step = { .wanted = "published",
					  .from = { "draft" },
					  .done = "published" };
	int64_t wait_s = args_number(&ctl->args, "wait-s", 0, 3600, PUBLISH_WAIT_S);
	struct change change;
	int64_t until_ms;
	int open = 0;

	step_run(ctl, &step, &change);
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	while (change.loaded >= 0 && !(open = is_open(&change)) && clock_monotonic_ms() < until_ms)
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
	static const struct step step = { .wanted = "paused",
					  .from = { "published" },
					  .done = "paused" };

	return step_command(ctl, &step);
}

static int resume_run(struct ctl *ctl)
{
	static const struct step step = { .wanted = "published",
					  .from = { "paused" },
					  .done = "published again" };

	return step_command(ctl, &step);
}

static int close_run(struct ctl *ctl)
{
	static const struct step step = { .wanted = "closed",
					  .from = { "published", "paused" },
					  .done = "closed" };

	return step_command(ctl, &step);
}

static const struct option publish_options[] = {
	OPTION("wait-s", "S", "time to wait until Redis has the coupon; default 5, 0: do not wait"),
	CHANGE_OPTIONS,
	OPTIONS_END,
};
static const struct option step_options[] = {
	CHANGE_OPTIONS,
	OPTIONS_END,
};

const struct command publish_command = {
	.name = "publish",
	.run = publish_run,
	.argument = "ID",
	.options = publish_options,
	.summary = "publish a draft",
	.detail = "PostgreSQL records the status; the keeper, a thread of coupon-worker, loads\n"
		  "the coupon into Redis. Publishing again never refills a coupon. If the\n"
		  "keeper does not load it in time, the command prints a warning and exits\n"
		  "with 0.",
};
const struct command pause_command = {
	.name = "pause",
	.run = pause_run,
	.argument = "ID",
	.options = step_options,
	.summary = "stop issuing until the campaign is resumed",
};
const struct command resume_command = {
	.name = "resume",
	.run = resume_run,
	.argument = "ID",
	.options = step_options,
	.summary = "continue a paused campaign",
};
const struct command close_command = {
	.name = "close",
	.run = close_run,
	.argument = "ID",
	.options = step_options,
	.summary = "end a campaign permanently",
};

/*
 * couponctl publish, pause, resume and close: the steps of a campaign's status. Repeating one
 * changes nothing.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/campaign/change.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PUBLISH_WAIT_S 5
#define PUBLISH_POLL_US 10000

static const struct step {
	const char *command;
	const char *wanted; /* the new status */
	const char *from;   /* the statuses from which the step is allowed, besides `wanted` */
	const char *done;   /* the template of what is printed */
} steps[] = {
	{ "publish", "published", "draft", NULL },
	{ "pause", "paused", "published", "coupon {coupon} is paused\n" },
	{ "resume", "published", "paused", "coupon {coupon} is published again\n" },
	{ "close", "closed", "published or paused", "coupon {coupon} is closed\n" },
};

/*
 * Refuses to open a campaign whose end has passed: the keeper would close it for ever within
 * seconds. Also refuses a validity that ends before the campaign begins: create and edit refuse it,
 * but a campaign may have got its terms in another way.
 */
static void open_check(const struct change *change, const char *command)
{
	const struct terms *terms = &change->terms;
	char end[CLOCK_RFC3339_SIZE], begin[CLOCK_RFC3339_SIZE];

	if (!terms->end_ms)
		return;
	clock_rfc3339(terms->end_ms, end);
	if (terms->end_ms <= change->now_ms && terms->end_ms == change->end_ms)
		log_fatal("coupon %lld has ended at %s: %s is allowed before the end; nothing was "
			  "changed; couponctl edit %lld --end T moves it",
			  (long long)change->coupon, end, command, (long long)change->coupon);
	if (terms->end_ms <= change->now_ms)
		log_fatal("the validity of coupon %lld has ended at %s: nobody could use what is "
			  "issued; nothing was changed; couponctl edit %lld --valid-from T "
			  "--valid-to T moves it",
			  (long long)change->coupon, end, (long long)change->coupon);
	if (terms->end_ms <= terms->begin_ms)
		log_fatal(
			"the validity of coupon %lld ends at %s, before the campaign begins at "
			"%s: nobody could use what is issued; nothing was changed; couponctl edit "
			"%lld moves either",
			(long long)change->coupon, end, clock_rfc3339(terms->begin_ms, begin),
			(long long)change->coupon);
}

/*
 * Takes the step of the command and commits it. change_fini() follows. Returns the exit status. If
 * the step was taken before with the same --key nothing is done, and `*before` is what was printed
 * then: another step may have come since.
 */
static int step_take(struct ctl *ctl, struct change *change, const struct step **taken,
		     cJSON **before)
{
	const struct step *step = steps;

	while (strcmp(step->command, ctl->args.command->name) != 0)
		step++;
	*taken = step;
	change_begin(change, ctl);
	*before = store_key_take(change->db, ctl, NULL);
	if (*before) {
		db_run(change->db, "ROLLBACK");
		return 0;
	}
	change->is_keyed = 1;
	if (strcmp(step->wanted, change->status) != 0) {
		if (!strstr(step->from, change->status))
			log_fatal("coupon %lld is %s: %s is allowed when it is %s",
				  (long long)change->coupon, change->status, step->command,
				  step->from);
		change_needed(change);
	}
	if (strcmp(step->wanted, "published") == 0)
		open_check(change, step->command);
	db_do(change->db, sql_query_coupon_status_set, postgres_number(change->coupon),
	      postgres_text(step->wanted));
	return change_commit(change);
}

static int step_run(struct ctl *ctl)
{
	const struct step *step;
	struct change change;
	cJSON *before;
	int status;

	if (ctl->args.command == &close_command)
		args_ask(&ctl->args,
			 "Coupon %lld will be closed for ever: nothing more will be issued.",
			 (long long)args_id_argument(&ctl->args));
	status = step_take(ctl, &change, &step, &before);
	output_made("coupon %lld is %s", (long long)change.coupon, step->wanted);
	if (before)
		output_say(before, step->done, args_has(&ctl->args, "json"));
	else
		change_say(&change, step->done);
	change_fini(&change);
	return status;
}

static int publish_run(struct ctl *ctl)
{
	int64_t wait_s = args_number(&ctl->args, "wait-s", 0, 3600, PUBLISH_WAIT_S);
	struct change change;
	int64_t until_ms, end_ms;
	int status, open = 0, ended = 0;
	char end[CLOCK_RFC3339_SIZE];
	struct redis_coupon coupon;
	const struct step *step;
	cJSON *before;

	status = step_take(ctl, &change, &step, &before);
	output_made("coupon %lld is published", (long long)change.coupon);
	if (before) {
		output_say(before, "coupon {coupon} is published\n", args_has(&ctl->args, "json"));
		change_fini(&change);
		return 0;
	}

	/*
	 * Waits until Redis decides requests: the coupon is loaded there, with these terms or later
	 * ones, and verified on this Redis process.
	 */
	end_ms = change.terms.end_ms;
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	while (change.loaded >= 0) {
		open = redis_coupon_read(change.redis, change.coupon, &coupon) == 1 &&
		       strcmp(coupon.status, "open") == 0 &&
		       coupon.version >= change.terms.version &&
		       redis_coupon_is_verified(change.redis, &coupon);
		ended = !open && end_ms && clock_wall_ms() >= end_ms;
		if (open || ended || clock_monotonic_ms() >= until_ms)
			break;
		usleep(PUBLISH_POLL_US);
	}
	if (open && status == 0) /* gateways may remember that it was not there */
		status = store_gateways_wait(change.db, change.redis, STORE_NEWS_TERMS);
	change_say(&change, open ? "coupon {coupon} is published, and open in Redis\n"
				 : "coupon {coupon} is published\n");
	if (ended)
		say_warning(
			"coupon %lld has ended at %s, before a keeper loaded "
			"it into Redis: it issues nothing; couponctl edit %lld --end T moves the "
			"end until the keeper closes it",
			(long long)change.coupon, clock_rfc3339(end_ms, end),
			(long long)change.coupon);
	else if (!open && wait_s > 0)
		say_warning("no keeper has loaded coupon %lld into Redis yet: "
			    "it opens as soon as a coupon-worker runs",
			    (long long)change.coupon);
	change_fini(&change);
	return status == CTL_UNKNOWN ? status : 0;
}

static const struct option step_options[] = {
	KEY_OPTION,
	CHANGE_OPTIONS,
	OPTIONS_END,
};

const struct command publish_command = {
	.name = "publish",
	.run = publish_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("wait-s", "S",
		       "time to wait until Redis has the coupon, 0 to 3600 s; default 5; 0: do not "
		       "wait"),
		KEY_OPTION, CHANGE_OPTIONS),
	.summary = "publish a draft",
	.detail =
		"PostgreSQL records the status. The keeper, a thread of coupon-worker, loads the\n"
		"coupon into Redis. Publishing again never refills a coupon. If the keeper does\n"
		"not load the coupon in time, the command prints a warning and the exit status\n"
		"is 0. A campaign whose end or validity has passed is refused.",
};
const struct command pause_command = {
	.name = "pause",
	.run = step_run,
	.argument = "ID",
	.options = step_options,
	.summary = "stop the issuing of a campaign until it is resumed",
};
const struct command resume_command = {
	.name = "resume",
	.run = step_run,
	.argument = "ID",
	.options = step_options,
	.summary = "continue a paused campaign",
};
const struct command close_command = {
	.name = "close",
	.run = step_run,
	.argument = "ID",
	.options = OPTIONS(KEY_OPTION, CHANGE_OPTIONS, YES_OPTION),
	.summary = "end a campaign permanently",
	.detail = "On a terminal, the command asks first.",
};

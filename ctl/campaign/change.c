/*
 * couponctl publish, pause, resume, close and stock: changes of a campaign's status and total, and
 * what every change of terms does.
 *
 * stock: an increase is committed in PostgreSQL first. A decrease is applied to Redis before the
 * COMMIT, because Redis has the taken slots, under the lock of the row in PostgreSQL. So Redis
 * never issues more than PostgreSQL accepts, wherever the command is interrupted, and repeating it
 * completes the change.
 */
#include "ctl/campaign/change.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/output.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PUBLISH_WAIT_S 5
#define PUBLISH_POLL_US 10000

static void row_lock(struct change *change)
{
	PGresult *result = store_coupon_row(change->db, sql_query_coupon_lock, change->coupon);

	snprintf(change->status, sizeof(change->status), "%s", column_text(result, 0, "status"));
	change->issued_num = column_number(result, 0, "issued_num");
	change->terms = (struct terms){
		.version = column_number(result, 0, "version"),
		.status = change->status,
		.total = column_number(result, 0, "total_num"),
		.begin_ms = column_number(result, 0, "begin_ms"),
		.end_ms = column_number(result, 0, "end_ms"),
		.limit = column_number(result, 0, "user_limit"),
	};
	change->end_ms = column_number(result, 0, "own_end_ms");
	change->valid_to_ms = column_number(result, 0, "valid_to_ms");
	change->now_ms = column_number(result, 0, "now_ms");
	PQclear(result);
}

static int terms_differ(const struct change *change)
{
	const struct terms *terms = &change->terms;
	const struct redis_coupon *loaded = &change->in_redis;
	const char *status = strcmp(terms->status, "published") == 0 ? "open" : terms->status;

	return strcmp(loaded->status, status) != 0 || loaded->total != terms->total ||
	       loaded->begin_ms != terms->begin_ms || loaded->end_ms != terms->end_ms ||
	       loaded->limit != terms->limit;
}

void change_version_raise(struct change *change)
{
	db_do(change->db, sql_query_coupon_version_raise, postgres_number(change->coupon),
	      postgres_number(change->in_redis.version));
}

void change_begin(struct change *change, struct ctl *ctl)
{
	memset(change, 0, sizeof(*change));
	change->ctl = ctl;
	change->args = &ctl->args;
	change->coupon = args_coupon(&ctl->args);
	change->db = store_postgres_open(ctl);
	store_by_set(change->db, ctl);
	/* Before the lock, for which settling waits: connecting may take seconds. */
	change->redis = redis_client_new(ctl->config.redis_url, NULL);
	(void)redis_client_open(change->redis); /* or every call fails */
	behind_refuse(change->db, change->redis);
	db_run(change->db, "BEGIN");
	row_lock(change);
	change->loaded = redis_coupon_read(change->redis, change->coupon, &change->in_redis);
	/* A decrease was interrupted. What the caller counts from here on is above it. */
	if (change->loaded == 1 &&
	    (change->in_redis.version > change->terms.version ||
	     (change->in_redis.version == change->terms.version && terms_differ(change))))
		change_version_raise(change);
}

void change_needed(struct change *change)
{
	int64_t version = args_number(change->args, "version", 1, INT32_MAX, 0);

	if (version == 0 || version == change->terms.version)
		return;
	log_fatal_status(CTL_OTHER_VERSION);
	log_fatal("--version is %lld, but coupon %lld has version %lld: it was changed meanwhile, "
		  "see couponctl history %lld; nothing was changed",
		  (long long)version, (long long)change->coupon, (long long)change->terms.version,
		  (long long)change->coupon);
}

/* Otherwise Redis may have an older state, and its taken slots mean nothing. */
static void taken_needed(struct change *change)
{
	if (change->loaded < 0)
		log_fatal("Redis, which has the taken slots, cannot be read: %s; nothing was "
			  "changed",
			  redis_client_error(change->redis));
	if (change->loaded == 0)
		log_fatal(
			"Redis, which has the taken slots, does not have coupon %lld: nothing was "
			"changed",
			(long long)change->coupon);
	if (!redis_coupon_is_verified(change->redis, &change->in_redis))
		log_fatal(
			"Redis was restarted, and no coupon-worker has verified coupon %lld since: "
			"nothing was changed; run this again when it is verified",
			(long long)change->coupon);
}

int64_t change_lower(struct change *change, struct terms *lower)
{
	int64_t taken = 0;

	if (strcmp(change->status, "draft") == 0 && change->loaded != 1)
		return -1;
	taken_needed(change);
	row_lock(change);
	lower->version = change->terms.version;
	switch (redis_coupon_terms(change->redis, change->coupon, lower, &taken)) {
	case TERMS_APPLIED:
		change->in_redis.version = lower->version;
		return -1;
	case TERMS_TAKEN:
		return taken;
	case TERMS_FAILED:
		log_fatal("Redis refused, and nothing was changed: %s",
			  redis_client_error(change->redis));
	case TERMS_CURRENT:
	case TERMS_MISSING:
		break;
	}
	log_fatal("coupon %lld was changed in Redis at the same time: run this again",
		  (long long)change->coupon);
}

static cJSON *change_object(const struct change *change)
{
	cJSON *object = output_object();

	output_id(object, "coupon", change->coupon);
	output_text(object, "status", change->status);
	output_number(object, "version", change->terms.version);
	output_number(object, "total", change->terms.total);
	output_number(object, "issued", change->issued_num);
	return object;
}

int change_commit(struct change *change)
{
	enum terms_result result = TERMS_FAILED;
	int64_t taken = 0;

	row_lock(change);
	if (change->is_keyed) {
		cJSON *object = change_object(change);

		store_key_answer(change->db, change->ctl, object);
		cJSON_Delete(object);
	}
	db_run(change->db, "COMMIT");
	if (strcmp(change->status, "draft") == 0)
		return 0;
	if (change->loaded >= 0 && behind_copy(change->db, change->redis) == 0)
		result = redis_coupon_terms(change->redis, change->coupon, &change->terms, &taken);
	switch (result) {
	case TERMS_APPLIED:
	case TERMS_CURRENT:
		return store_gateways_wait(change->db, change->redis, STORE_NEWS_TERMS);
	case TERMS_MISSING: /* the keeper will load the present terms */
		return 0;
	case TERMS_TAKEN:
		fprintf(stderr,
			"couponctl: warning: recorded, but Redis keeps its terms, because %lld "
			"coupons are taken there\n",
			(long long)taken);
		return CTL_NOT_IN_REDIS;
	case TERMS_FAILED:
		break;
	}
	fprintf(stderr,
		"couponctl: warning: recorded, but Redis could not be updated: %s; a keeper will "
		"update it, or run this command again\n",
		redis_client_error(change->redis));
	return CTL_NOT_IN_REDIS;
}

void change_say(struct change *change, const char *template)
{
	output_say(change_object(change), template, args_has(change->args, "json"));
}

void change_fini(struct change *change)
{
	redis_client_free(change->redis);
	db_close(change->db);
}

struct step {
	const char *command;
	const char *wanted; /* the new status */
	const char *from;   /* the allowed ones before, besides `wanted` */
	const char *done;   /* the template of what is printed */
};

/* Repeating one changes nothing. */
static const struct step steps[] = {
	{ "publish", "published", "draft", NULL },
	{ "pause", "paused", "published", "coupon {coupon} is paused\n" },
	{ "resume", "published", "paused", "coupon {coupon} is published again\n" },
	{ "close", "closed", "published or paused", "coupon {coupon} is closed\n" },
};

static const struct step *step_of(const struct command *command)
{
	const struct step *step = steps;

	while (strcmp(step->command, command->name) != 0)
		step++;
	return step;
}

/*
 * Refuses to open a campaign whose end has passed: the keeper would close it for ever within
 * seconds. The same for a validity that ends before the campaign begins; create and edit refuse
 * it, but a campaign may have got its terms in another way.
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
 * Takes the step of the command and commits it, for change_fini(). Returns the exit status. With a
 * --key that has taken it before it does nothing, and `*before` is what was printed then: another
 * step may have come since.
 */
static int step_take(struct ctl *ctl, const struct step *step, struct change *change,
		     cJSON **before)
{
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
	const struct step *step = step_of(ctl->args.command);
	struct change change;
	cJSON *before;
	int status;

	if (strcmp(step->command, "close") == 0)
		args_ask(&ctl->args, "Coupon %lld will be closed for ever: nothing more is issued.",
			 (long long)args_coupon(&ctl->args));
	status = step_take(ctl, step, &change, &before);
	output_made("coupon %lld is %s", (long long)change.coupon, step->wanted);
	if (before)
		output_say(before, step->done, args_has(&ctl->args, "json"));
	else
		change_say(&change, step->done);
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
	int64_t wait_s = args_number(&ctl->args, "wait-s", 0, 3600, PUBLISH_WAIT_S);
	struct change change;
	int64_t until_ms, end_ms;
	int open = 0, ended = 0;
	char end[CLOCK_RFC3339_SIZE];
	cJSON *before;
	int status;

	status = step_take(ctl, step_of(ctl->args.command), &change, &before);
	output_made("coupon %lld is published", (long long)change.coupon);
	if (before) {
		output_say(before, "coupon {coupon} is published\n", args_has(&ctl->args, "json"));
		change_fini(&change);
		return 0;
	}
	end_ms = change.terms.end_ms;
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	while (change.loaded >= 0 && !(open = is_open(&change)) &&
	       !(ended = end_ms && clock_wall_ms() >= end_ms) && clock_monotonic_ms() < until_ms)
		usleep(PUBLISH_POLL_US);
	if (open && status == 0) /* gateways may remember that it was not there */
		status = store_gateways_wait(change.db, change.redis, STORE_NEWS_TERMS);
	change_say(&change, open ? "coupon {coupon} is published, and open in Redis\n"
				 : "coupon {coupon} is published\n");
	if (ended)
		fprintf(stderr,
			"couponctl: warning: coupon %lld has ended at %s, before a keeper loaded "
			"it "
			"into Redis: it issues nothing; couponctl edit %lld --end T moves the end "
			"until the keeper closes it\n",
			(long long)change.coupon, clock_rfc3339(end_ms, end),
			(long long)change.coupon);
	else if (!open && wait_s > 0)
		fprintf(stderr,
			"couponctl: warning: no keeper has loaded coupon %lld into Redis yet: "
			"it opens as soon as a coupon-worker runs\n",
			(long long)change.coupon);
	change_fini(&change);
	return status == CTL_UNKNOWN ? status : 0;
}

static void total_set(struct change *change, int64_t total)
{
	PGresult *result = db_ask(change->db, sql_query_coupon_total_set,
				  postgres_number(change->coupon), postgres_number(total));
	int64_t set = column_number(result, 0, "total_num"),
		issued = column_number(result, 0, "issued_num");

	PQclear(result);
	if (set != total)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)issued);
}

static void total_lower(struct change *change, int64_t total)
{
	int64_t taken = change->loaded == 1 ? change->in_redis.total - change->in_redis.stock -
						      change->in_redis.lost
					    : 0;
	struct terms lower = change->terms;

	/* Redis may be behind PostgreSQL, for instance just after it lost its data. */
	if (total < change->issued_num && taken <= change->issued_num)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)change->issued_num);
	lower.total = total;
	if (total >= taken) {
		total_set(change, total);
		taken = change_lower(change, &lower);
	}
	if (taken > total)
		log_fatal("--total is %lld: allowed is at least the %lld that are taken",
			  (long long)total, (long long)taken);
}

static int stock_run(struct ctl *ctl)
{
	int64_t total;
	struct change change;
	int status;

	args_required(&ctl->args, "total");
	total = args_number(&ctl->args, "total", 0, JSON_INTEGER_MAX, 0);
	change_begin(&change, ctl);
	if (total != change.terms.total)
		change_needed(&change);
	if (total < change.terms.total)
		total_lower(&change, total);
	else if (total > change.terms.total)
		total_set(&change, total);
	status = change_commit(&change);
	change_say(&change,
		   "coupon {coupon} has a total of {total}, of which {issued} are issued\n");
	change_fini(&change);
	return status;
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
		       "time to wait until Redis has the coupon; default 5, 0: do not wait"),
		KEY_OPTION, CHANGE_OPTIONS),
	.summary = "publish a draft",
	.detail = "PostgreSQL records the status; the keeper, a thread of coupon-worker, loads\n"
		  "the coupon into Redis. Publishing again never refills a coupon. If the\n"
		  "keeper does not load it in time, the command prints a warning and exits\n"
		  "with 0. A campaign whose end or validity has passed is refused.",
};
const struct command pause_command = {
	.name = "pause",
	.run = step_run,
	.argument = "ID",
	.options = step_options,
	.summary = "stop issuing until the campaign is resumed",
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
	.detail = "Asks first on a terminal.",
};

const struct command stock_command = {
	.name = "stock",
	.run = stock_run,
	.argument = "ID",
	.options = OPTIONS(OPTION("total", "N",
				  "number of coupons, including the issued ones; at least the "
				  "number of taken slots"),
			   CHANGE_OPTIONS),
	.summary = "set the total",
	.detail = "N is absolute, so repeating the command changes nothing.",
};

#include "ctl/audit/stall.h"

#include "common/check.h"
#include "common/clock.h"
#include "ctl/audit/watch.h"
#include "ctl/audit/compare.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define SEARCH_PAUSE_US ((LOCKS_OPEN_MS + 100) * 1000)

/* What the search reads before it looks at the receives. */
struct search {
	struct pass *pass;
	int64_t limit_ms;
	int64_t redis_ms;
	int64_t idle_ms;
	int64_t newest_ms; /* of the receives that have an outcome; 0: none is new enough */
};

/* A batch that claims to be made in the future has no usable age: it counts as old. */
static int is_old(const struct search *search, const struct suspect *suspect)
{
	return search->redis_ms - ulid_time_ms(&suspect->slot.batch) > search->limit_ms ||
	       look_is_future(search->redis_ms, &suspect->slot);
}

static int is_stalled(const struct search *search, const struct suspect *suspect)
{
	if (suspect->state == SUSPECT_HELD || watch_found_wrong(search->pass, suspect) ||
	    !is_old(search, suspect))
		return 0;
	return search->idle_ms > search->limit_ms ||
	       ulid_time_ms(&suspect->slot.batch) + search->limit_ms < search->newest_ms;
}

/* Receive numbers without an outcome in generations without progress. */
static int64_t unnamed_stalled(const struct search *search, const struct audit_row *row)
{
	struct pass *pass = search->pass;
	struct generations now = { 0 };
	int64_t n = 0;

	if (pass->unnamed == 0 || pass->unnamed_overdue)
		return 0;
	audit_generations_read(pass->audit->db, pass->coupon, row, &now);
	for (size_t i = 0; i < now.n; i++) {
		const struct generation *then = generation_find(&pass->generations,
								now.list[i].number);
		int64_t high = then && then->high > now.list[i].high ? then->high
								     : now.list[i].high;

		if (now.list[i].idle_ms > search->limit_ms && high > now.list[i].settled)
			n += high - now.list[i].settled;
	}
	generations_fini(&now);
	return n < pass->unnamed ? n : pass->unnamed;
}

/* The age of the oldest receive that the search looks at; 0: there is none. */
static int64_t oldest_age_ms(const struct search *search)
{
	const struct suspects *open = &search->pass->open;
	int64_t oldest_ms = 0;

	for (size_t i = 0; i < open->n; i++) {
		int64_t age_ms = search->redis_ms - ulid_time_ms(&open->list[i].slot.batch);

		if (is_old(search, &open->list[i]) && age_ms > oldest_ms)
			oldest_ms = age_ms;
	}
	return oldest_ms;
}

/* With `stalled` it collects those that have a slot. */
static void stalled_count(const struct search *search, struct stall *stall, struct slots *stalled)
{
	const struct suspects *open = &search->pass->open;

	for (size_t i = 0; i < open->n; i++) {
		const struct suspect *suspect = &open->list[i];
		int64_t age_ms = search->redis_ms - ulid_time_ms(&suspect->slot.batch);

		if (!is_stalled(search, suspect))
			continue;
		if (stall->n++ == stall->unnamed || age_ms > stall->age_ms) {
			stall->oldest = suspect->slot;
			stall->age_ms = age_ms;
		}
		if (stalled)
			slots_add(stalled, &suspect->slot);
	}
}

/* One search for stalled receives. Outcomes are read last: what has one is not in flight. */
static void stalled_find(struct pass *pass, struct slots *stalled)
{
	struct stall *stall = &pass->stall;
	struct search search = { .pass = pass, .limit_ms = pass->audit->stalled_ms };
	struct audit_row row;
	struct cut cut;
	int64_t age_ms;

	cut_read(pass->audit, pass->coupon, &cut, NULL, 0);
	search.redis_ms = cut.at_ms;
	audit_row_read(pass->audit->db, pass->coupon, &row);
	search.idle_ms = row.idle_ms;
	age_ms = oldest_age_ms(&search);
	if (age_ms > search.limit_ms && search.idle_ms <= search.limit_ms)
		search.newest_ms = audit_newest_read(pass->audit->db, pass->coupon,
						     cut.at_ms - age_ms + search.limit_ms);
	open_resolve(pass);
	memset(stall, 0, sizeof(*stall));
	stall->idle_ms = search.idle_ms;
	stall->keeper = cut.keeper;
	stall->unnamed = stall->n = unnamed_stalled(&search, &row);
	stalled_count(&search, stall, stalled);
}

/* Where the messages of the stalled receives are. */
static void messages_find(struct pass *pass, const struct slots *stalled)
{
	static int has[AUDIT_ASK_MAX], dead[AUDIT_ASK_MAX];

	for (size_t at = 0, n; at < stalled->n; at += n) {
		n = stalled->n - at < AUDIT_ASK_MAX ? stalled->n - at : AUDIT_ASK_MAX;
		outbox_has(pass->audit->redis, pass->coupon, stalled->list + at, n, has);
		outbox_dead(pass->audit->redis, pass->coupon, stalled->list + at, n, dead);
		for (size_t i = 0; i < n; i++) {
			pass->stall.dead += dead[i];
			pass->stall.outbox += has[i] && !dead[i];
		}
	}
}

int stall_search(struct pass *pass)
{
	if (!pass->row.known || pass->cut.bad || pass->cut.held ||
	    (pass->open.n == 0 && pass->unnamed == 0))
		return 0;
	stalled_find(pass, NULL);
	return pass->stall.n > 0;
}

void stall_pause(struct audit *audit, struct locks *locks)
{
	locks_look(locks, audit->db, clock_monotonic_ms());
	usleep(SEARCH_PAUSE_US);
}

void stall_confirm(struct pass *pass, struct locks *locks)
{
	struct slots stalled = { 0 };

	stalled_find(pass, &stalled);
	messages_find(pass, &stalled);
	slots_fini(&stalled);
	if (pass->stall.n == 0)
		return;
	pass->stall.locked_ms = locks_look(locks, pass->audit->db, clock_monotonic_ms());
	pass->stall.held = locks_workers_hold(pass->audit->db);
	broker_look(pass->audit->broker, &pass->stall.broker);
}

/* Where the reasons go: to standard output, or into a list. */
struct reasons {
	const struct pass *pass;
	cJSON *list; /* NULL: print */
	int n;
};

static void reason_add(struct reasons *reasons, const char *what, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void reason_add(struct reasons *reasons, const char *what, const char *format, ...)
{
	char text[400];
	va_list list;
	cJSON *object;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	reasons->n++;
	if (!reasons->list) {
		printf("coupon %" PRId64 ": waits for %s (%s)\n", reasons->pass->coupon, text,
		       what);
		return;
	}
	object = output_object();
	output_text(object, "what", what);
	output_text(object, "text", text);
	check(cJSON_AddItemToArray(reasons->list, object));
}

/* Stalled receives without a message in the outbox; those without a slot have none to look for. */
static int64_t stalled_outside(const struct stall *stall)
{
	return stall->n - stall->outbox - stall->dead;
}

static void queues_explain(struct reasons *reasons, const struct broker_look *broker)
{
	if (!broker->ok)
		reason_add(reasons, "rabbitmq", "RabbitMQ, which cannot be queried: %s",
			   broker_error(reasons->pass->audit->broker));
	else if (broker->ready > 0)
		reason_add(reasons, "queue",
			   "a worker: %" PRId64
			   " messages in the queues, of any coupon, and %" PRId64 " consumers",
			   broker->ready, broker->consumers);
	/* One that has no mark may be a receive that is not in the outbox either. */
	if (broker->ok && broker->dead > 0 && stalled_outside(&reasons->pass->stall) > 0)
		reason_add(reasons, "dead",
			   "an operator: %" PRId64
			   " messages in the dead-letter queue, of any coupon; see couponctl dead",
			   broker->dead);
}

/* Dead letters that are marked. */
static void dead_explain(struct reasons *reasons)
{
	const struct stall *stall = &reasons->pass->stall;
	char key[COUPON_KEY_SIZE];

	if (stall->dead == 0)
		return;
	if (stall->broker.ok && stall->broker.dead == 0)
		reason_add(reasons, "dead",
			   "an operator: the messages of %" PRId64
			   " receives were dead-lettered, and the dead-letter queue is empty; "
			   "delete %s in Redis, and the keeper publishes them again",
			   stall->dead, coupon_key(reasons->pass->coupon, COUPON_KEY_DEAD, key));
	else
		reason_add(reasons, "dead",
			   "an operator: the messages of %" PRId64
			   " receives are dead letters; see couponctl dead",
			   stall->dead);
}

static void outbox_explain(struct reasons *reasons)
{
	const struct stall *stall = &reasons->pass->stall;

	if (stall->outbox > 0)
		reason_add(reasons, "outbox",
			   "%s: %" PRId64 " receives have a message in the outbox",
			   stall->keeper ? "the keeper, which publishes it again"
					 : "a keeper, and none is elected",
			   stall->outbox);
}

/* Where the messages may be that are neither in a queue nor dead letters. */
static void messages_explain(struct reasons *reasons)
{
	const struct stall *stall = &reasons->pass->stall;
	int64_t outside = stalled_outside(stall);

	outbox_explain(reasons);
	if (stall->broker.consumers > 0 && stall->outbox + outside > 0)
		reason_add(reasons, "unacked", "a worker that may hold their messages unacked%s",
			   outside > 0 ? "; or the messages are lost" : "");
	else if (outside > 0)
		reason_add(reasons, "lost",
			   "nothing: %" PRId64
			   " receives have no message in the outbox or in a queue",
			   outside);
}

static void reasons_explain(struct reasons *reasons)
{
	const struct stall *stall = &reasons->pass->stall;
	int n;

	queues_explain(reasons, &stall->broker);
	if (stall->locked_ms > 0)
		reason_add(reasons, "lock",
			   "the end of a transaction of another session, which holds a lock");
	if (stall->held)
		reason_add(reasons, "worker",
			   "a worker that is in a long transaction, or has put off coupons");
	n = reasons->n;
	dead_explain(reasons);
	if (n == 0)
		messages_explain(reasons);
	else if (!stall->keeper && stall->broker.consumers > 0)
		outbox_explain(reasons);
}

/* "95 s", or "an unknown time". */
static const char *seconds_text(int64_t ms, char out[40])
{
	if (ms == INT64_MAX)
		snprintf(out, 40, "an unknown time");
	else
		snprintf(out, 40, "%" PRId64 " s", ms / 1000);
	return out;
}

void stall_print(const struct pass *pass)
{
	const struct stall *stall = &pass->stall;
	char oldest[RECEIVE_SIZE], idle[40];

	if (stall->n == 0)
		return;
	printf("STALLED coupon %" PRId64 ": %" PRId64 " receives in flight without progress; last "
	       "outcome of the coupon: %s ago",
	       pass->coupon, stall->n, seconds_text(stall->idle_ms, idle));
	if (stall->n > stall->unnamed)
		printf("; oldest: %s, %" PRId64 " s",
		       slot_receive_format(&stall->oldest, pass->coupon, oldest),
		       stall->age_ms / 1000);
	printf("\n");
	reasons_explain(&(struct reasons){ .pass = pass });
}

cJSON *stall_json(const struct pass *pass)
{
	struct reasons reasons = { .pass = pass, .list = cJSON_CreateArray() };

	check(reasons.list != NULL);
	if (pass->stall.n > 0)
		reasons_explain(&reasons);
	return reasons.list;
}

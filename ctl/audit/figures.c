/* What an audit prints besides findings: counts, and what stalled receives wait for. */
#include "ctl/audit/pass.h"

#include "common/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

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

static void stall_print(const struct pass *pass)
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

static cJSON *stall_json(const struct pass *pass)
{
	struct reasons reasons = { .pass = pass, .list = cJSON_CreateArray() };

	check(reasons.list != NULL);
	if (pass->stall.n > 0)
		reasons_explain(&reasons);
	return reasons.list;
}

/* Receives without an outcome, over all generations. */
static int64_t in_flight(const struct pass *pass)
{
	return generations_unsettled(&pass->generations, 0);
}

/* Rejected receives whose slots Redis still holds. */
static int64_t unreleased(const struct pass *pass)
{
	return pass->pending > pass->row.unreleased ? pass->pending : pass->row.unreleased;
}

static int is_settled(const struct pass *pass)
{
	return pass->compared && pass->open.n == 0 && unreleased(pass) == 0 && in_flight(pass) == 0;
}

static int64_t overdue(const struct pass *pass)
{
	int64_t n = pass->undecided ? pass->unnamed : 0;

	for (size_t i = 0; i < pass->open.n && pass->undecided; i++)
		n += pass->open.list[i].state == SUSPECT_OVERDUE;
	return n;
}

static void undecided_print(const struct pass *pass)
{
	if (!pass->undecided)
		return;
	printf("coupon %lld: %lld receives are older than the grace, and have neither an outcome "
	       "nor a message in the outbox; ",
	       (long long)pass->coupon, (long long)overdue(pass));
	if (!pass->broker.ok)
		printf("RabbitMQ cannot be queried: %s\n", broker_error(pass->audit->broker));
	else if (pass->locked_ms > 0)
		printf("a transaction of another session has held a lock for %lld s or longer: "
		       "whether a receive is lost cannot be decided until it ends\n",
		       (long long)(pass->locked_ms / 1000));
	else
		printf("%lld messages in the queue, %lld in the dead-letter queue: whether a "
		       "receive is lost cannot be decided yet\n",
		       (long long)pass->broker.ready, (long long)pass->broker.dead);
}

void figures_print(const struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;

	if (pass->cut.present)
		printf("coupon %lld: total %lld, stock %lld, taken slots %lld, reserved %lld, in "
		       "flight %lld%s; %s\n",
		       (long long)pass->coupon, (long long)c->total, (long long)c->stock,
		       (long long)cut_taken(&pass->cut), (long long)c->reserved,
		       (long long)in_flight(pass),
		       pass->cut.verified ? ""
		       : pass->cut.held   ? ", a keeper is at work on it"
					  : ", not verified on this Redis process",
		       is_settled(pass) ? "settled, and each slot was compared"
		       : pass->compared ? "each slot was compared"
					: "its slots cannot be compared");
	else
		printf("coupon %lld: not in Redis; user coupons %lld, in flight %lld\n",
		       (long long)pass->coupon, (long long)pass->rows_n,
		       (long long)in_flight(pass));
	if (pass->cut.present && unreleased(pass) > 0)
		printf("coupon %lld: %lld rejected receives, not released yet\n",
		       (long long)pass->coupon, (long long)unreleased(pass));
	if (c->lost)
		printf("coupon %lld: %lld of the total are lost until it is rebuilt\n",
		       (long long)pass->coupon, (long long)c->lost);
	undecided_print(pass);
	stall_print(pass);
}

cJSON *figures_json(const struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	cJSON *object = output_object();

	output_id(object, "coupon", pass->coupon);
	output_bool(object, "loaded", pass->cut.present);
	output_number(object, "issued", pass->rows_n);
	output_number(object, "rejected", pass->row.rejected);
	output_number(object, "in_flight", in_flight(pass));
	output_number(object, "overdue", overdue(pass));
	output_number(object, "stalled", pass->stall.n);
	output_add(object, "waits_for", stall_json(pass));
	if (pass->broker_asked && pass->broker.ok) {
		output_number(object, "queued", pass->broker.ready);
		output_number(object, "dead", pass->broker.dead);
	}
	if (!pass->cut.present)
		return object;
	output_bool(object, "verified", pass->cut.verified);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", cut_taken(&pass->cut));
	output_number(object, "reserved", c->reserved);
	output_bool(object, "compared", pass->compared);
	output_bool(object, "settled", is_settled(pass));
	output_number(object, "unreleased", unreleased(pass));
	output_number(object, "lost", c->lost);
	return object;
}

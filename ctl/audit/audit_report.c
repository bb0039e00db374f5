/* What an audit prints: findings, counts, and what stalled receives wait for. */
#include "common/message/json.h"
#include "ctl/audit/audit.h"

#include "common/check.h"
#include "common/message/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
	const char *word, *promise;
} finding_kinds[] = {
#define FINDING(name, word, promise) { word, promise },
#include "ctl/audit/finding_table.h"
#undef FINDING
};

void finding_add(const struct pass *pass, enum finding finding, const struct slot *slot,
		 const char *format, ...)
{
	struct findings *findings = &pass->audit->findings;
	char text[512], number[NUMBER_SIZE] = "", receive[RECEIVE_SIZE] = "", *line;
	const char *user = slot && slot->user.len > 0 ? slot->user.text : "";
	cJSON *object;
	va_list list;

	findings->n++;
	if (findings->silent)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (slot && slot->number > 0) {
		slot_receive_format(slot, pass->coupon, receive);
		number_text(slot->number, number);
	}
	object = output_object();
	output_text(object, "kind", finding_kinds[finding].word);
	output_text(object, "promise", finding_kinds[finding].promise);
	output_id(object, "coupon", pass->coupon);
	output_text(object, "user", user);
	output_raw(object, "slot", number);
	output_text(object, "receive", receive);
	output_text(object, "text", text);
	if (findings->json) {
		line = checked(json_write(object));
		printf("%s%s", findings->begun ? "," : "{\"wrong\":[", line);
		findings->begun = 1;
		cJSON_free(line);
	} else {
		output_template("WRONG {promise}: coupon {coupon|none}", object);
		output_template(*user ? ", user {user}" : "", object);
		output_template("[slot , slot {slot}, receive {receive}]: {text} ({kind})\n",
				object);
	}
	cJSON_Delete(object);
}

void findings_end(struct findings *findings, cJSON *rest)
{
	char *text = json_write(rest);

	check(text != NULL && text[0] == '{');
	printf("%s],%s\n", findings->begun ? "" : "{\"wrong\":[", text + 1);
	cJSON_free(text);
	cJSON_Delete(rest);
}

/* A reason why receives are stalled, if it `holds`. */
__attribute__((format(printf, 4, 5))) static void reason_add(cJSON *reasons, int holds,
							     const char *what, const char *format,
							     ...)
{
	cJSON *object;
	char text[400];
	va_list list;

	if (!holds)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	object = output_object();
	output_text(object, "what", what);
	output_text(object, "text", text);
	check(cJSON_AddItemToArray(reasons, object));
}

static void reasons_explain(cJSON *reasons, const struct pass *pass)
{
	const struct stall *stall = &pass->stall;
	const struct broker_look *broker = &stall->broker;
	/* Receives without a message in the outbox, or without a slot by which to look for one. */
	int64_t outside = stall->n - stall->outbox - stall->dead;
	int is_consumed = broker->consumers > 0, is_emptied = broker->ok && broker->dead == 0, n;
	char key[COUPON_KEY_SIZE];

	reason_add(reasons, !broker->ok, "rabbitmq", "RabbitMQ, which cannot be queried: %s",
		   pass->audit->broker.error);
	reason_add(reasons, broker->ok && broker->ready > 0, "queue",
		   "a worker: %" PRId64 " messages in the queues, of any coupon, and %" PRId64
		   " consumers",
		   broker->ready, broker->consumers);
	/* A dead letter without a mark may have a receive that is not in the outbox either. */
	reason_add(reasons, broker->ok && broker->dead > 0 && outside > 0, "dead",
		   "an operator: %" PRId64
		   " messages in the dead-letter queue, of any coupon; see couponctl dead",
		   broker->dead);
	reason_add(reasons, stall->locked_ms > 0, "lock",
		   "the end of a transaction of another session, which holds a lock");
	reason_add(reasons, *pass->gateways != '\0', "gateway",
		   "gateways that may have receives which neither RabbitMQ nor Redis has: %s",
		   pass->gateways);
	reason_add(reasons, stall->held, "worker",
		   "a worker that is in a long transaction, or has put off coupons");
	n = cJSON_GetArraySize(reasons);
	/* Receives whose dead letters are marked. */
	reason_add(reasons, stall->dead > 0 && is_emptied, "dead",
		   "an operator: the messages of %" PRId64
		   " receives were dead-lettered, and the dead-letter queue is empty; delete %s "
		   "in Redis, and the keeper publishes them again",
		   stall->dead, coupon_key(pass->coupon, COUPON_KEY_DEAD, key));
	reason_add(reasons, stall->dead > 0 && !is_emptied, "dead",
		   "an operator: the messages of %" PRId64
		   " receives are dead letters; see couponctl dead",
		   stall->dead);
	/* Messages that are neither in a queue nor dead letters. */
	reason_add(reasons, stall->outbox > 0 && (n == 0 || (!stall->keeper && is_consumed)),
		   "outbox", "%s: %" PRId64 " receives have a message in the outbox",
		   stall->keeper ? "the keeper, which publishes it again"
				 : "a keeper, and none is elected",
		   stall->outbox);
	reason_add(reasons, n == 0 && is_consumed && stall->outbox + outside > 0, "unacked",
		   "a worker that may hold their messages unacked%s",
		   outside > 0 ? "; or the messages are lost" : "");
	reason_add(reasons, n == 0 && !is_consumed && outside > 0, "lost",
		   "nothing: %" PRId64 " receives have no message in the outbox or in a queue",
		   outside);
}

cJSON *figures_json(const struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	cJSON *object = output_object(), *reasons = cJSON_CreateArray();
	int64_t in_flight = generations_unsettled(&pass->generations, 0);
	/* Rejected receives whose slots Redis still holds. */
	int64_t unfreed = pass->pending > pass->row.unfreed ? pass->pending : pass->row.unfreed;
	int64_t overdue = pass->undecided ? pass->unnamed : 0;

	for (size_t i = 0; i < pass->open.n && pass->undecided; i++)
		overdue += pass->open.list[i].state == SUSPECT_OVERDUE;

	output_id(object, "coupon", pass->coupon);
	output_bool(object, "loaded", pass->cut.present);
	output_number(object, "issued", pass->rows_n);
	output_number(object, "rejected", pass->row.rejected);
	output_number(object, "in_flight", in_flight);
	output_number(object, "overdue", overdue);
	output_number(object, "stalled", pass->stall.n);
	output_add(object, "waits_for", reasons);
	if (pass->stall.n > 0)
		reasons_explain(reasons, pass);
	if (pass->broker_asked && pass->broker.ok) {
		output_number(object, "queued", pass->broker.ready);
		output_number(object, "dead", pass->broker.dead);
	}
	if (*pass->gateways)
		output_text(object, "uncopied", pass->gateways);
	if (!pass->cut.present)
		return object;
	output_bool(object, "verified", pass->cut.verified);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", redis_coupon_taken(&pass->cut.coupon));
	output_number(object, "reserved", c->reserved);
	output_bool(object, "compared", pass->compared);
	output_bool(object, "settled",
		    pass->compared && pass->open.n == 0 && unfreed == 0 && in_flight == 0);
	output_number(object, "unfreed", unfreed);
	output_number(object, "lost", c->lost);
	return object;
}

static const char figures_template[] =
	"[loaded coupon {coupon}: total {total}, stock {stock}, taken slots {taken}, reserved "
	"{reserved}, in flight {in_flight}[!verified [held , a keeper is at work on it]"
	"[!held , not verified on this Redis process]]; [settled settled, and ]"
	"[compared each slot was compared][!compared its slots cannot be compared]\n"
	"[unfreed coupon {coupon}: {unfreed} rejected receives, not freed yet\n]]"
	"[!loaded coupon {coupon}: not in Redis; user coupons {issued}, in flight {in_flight}\n]"
	"[lost coupon {coupon}: {lost} of the total are lost until it is rebuilt\n]"
	"[undecided coupon {coupon}: {overdue} receives are older than the grace, and have neither "
	"an outcome nor a message in the outbox; [rabbitmq RabbitMQ cannot be queried: {rabbitmq}]"
	"[locked_s a transaction of another session has held a lock for {locked_s} s or longer: "
	"whether a receive is lost cannot be decided until it ends]"
	"[gateways gateways may have receives that neither RabbitMQ nor Redis has: {gateways}]"
	"[!rabbitmq [!locked_s [!gateways {queued} messages in the queue, {dead} in the "
	"dead-letter queue: whether a receive is lost cannot be decided yet]]]\n]"
	"[stalled STALLED coupon {coupon}: {stalled} receives in flight without progress; last "
	"outcome of the coupon: {idle|an unknown time} ago"
	"[oldest ; oldest: {oldest}, {age_s} s]\n]";

void figures_print(const struct pass *pass)
{
	const struct stall *stall = &pass->stall;
	cJSON *object = figures_json(pass), *reason;
	char text[RECEIVE_SIZE];

	output_bool(object, "held", pass->cut.held);
	output_bool(object, "undecided", pass->undecided);
	if (!pass->broker.ok)
		output_text(object, "rabbitmq", pass->audit->broker.error);
	else
		output_number(object, "locked_s", pass->locked_ms / 1000);
	output_text(object, "gateways", *pass->gateways ? pass->gateways : NULL);
	if (stall->n > stall->unnamed)
		output_text(object, "oldest",
			    slot_receive_format(&stall->oldest, pass->coupon, text));
	output_number(object, "age_s", stall->age_ms / 1000);
	if (stall->idle_ms != INT64_MAX) {
		snprintf(text, sizeof(text), "%" PRId64 " s", stall->idle_ms / 1000);
		output_text(object, "idle", text);
	}
	output_template(figures_template, object);
	cJSON_ArrayForEach(reason, cJSON_GetObjectItemCaseSensitive(object, "waits_for"))
	{
		printf("coupon %" PRId64 ": waits for ", pass->coupon);
		output_template("{text} ({what})\n", reason);
	}
	cJSON_Delete(object);
}

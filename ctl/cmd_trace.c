/*
 * couponctl trace: what happened to a receive, in the order of its way:
 *
 *	gateway ─▶ Redis: slot, outbox ─▶ RabbitMQ: queue, dead letters ─▶ PostgreSQL ─▶ events,
 *	                                                                                webhooks
 *
 * It asks the stores themselves, so it also tells what a gateway cannot, and works without one. A
 * store that cannot be read is told in its place, except PostgreSQL, without which nothing is. Dead
 * letters are looked through once, after the rest.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define RECEIVES_MAX 512 /* of a user: 200 outcomes, and those with a slot */

struct tracing {
	struct ctl *ctl;
	struct db *db;
	struct redis_client *redis;
	int redis_fails;
	struct broker broker;
	struct broker_look queues;
	int failed;    /* a store cannot be read */
	int is_absent; /* a receive is not known */
};

/* What is told of one receive, while it is found. */
struct finding {
	const struct receive *receive;
	char batch[ULID_SIZE];
	cJSON *object;
	int is_known;
	char outcome[16]; /* in PostgreSQL; "": none */
	int is_marked;    /* as dead-lettered, in Redis */
	char trace[TRACE_SIZE];
	cJSON *gateway; /* in the object */
};

struct receives {
	struct receive list[RECEIVES_MAX];
	size_t n;
};

static void time_add(cJSON *object, const char *name, int64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, name, clock_rfc3339(wall_ms, text));
}

/* The slot of the receive in Redis. 0, or -1: it cannot be read. */
static int slot_find(struct tracing *tracing, struct finding *finding, cJSON *in_redis)
{
	redisReply *records = coupon_call(tracing->redis, finding->receive->coupon, "HGET",
					  COUPON_KEY_USERS, finding->receive->user.text, NULL);
	const char *text = records && records->type == REDIS_REPLY_STRING ? records->str : NULL;
	char key[RECEIVE_KEY_MAX + 1], code[RECEIVE_CODE_MAX + 1];
	struct slot slot;
	size_t code_len;

	while (slot_next(&text, &slot) == 0) {
		if (slot.index != finding->receive->index ||
		    memcmp(&slot.batch, &finding->receive->batch, sizeof(slot.batch)) != 0)
			continue;
		finding->is_known = 1;
		snprintf(key, sizeof(key), "%.*s", slot.key_len, slot.tail);
		text = receive_tail_code(slot.tail, slot.tail_len, slot.key_len, &code_len);
		snprintf(code, sizeof(code), "%.*s", (int)code_len, text);
		output_number(in_redis, "slot", slot.number);
		output_text(in_redis, "key", key);
		output_text(in_redis, "code", code);
		break;
	}
	if (!records)
		return -1;
	freeReplyObject(records);
	return 0;
}

static cJSON *outbox_json(struct finding *finding, const redisReply *body)
{
	static struct message message;
	struct json_arena *arena = json_arena_new();
	cJSON *outbox = NULL;
	const char *error;

	if (message_decode(arena, body->str, body->len, &message, &error)) {
		outbox = output_object();
		output_text(outbox, "unreadable", error);
	} else if (message_has(&message, finding->receive)) {
		outbox = output_object();
		time_add(outbox, "accepted_at", message.at_ms);
		output_number(outbox, "generation", message.generation);
		output_number(outbox, "seq", message.seq + finding->receive->index);
		for (size_t i = 0; i < message.traces.n; i++)
			if ((int)message.traces.list[i].index == finding->receive->index)
				memcpy(finding->trace, message.traces.list[i].text, TRACE_SIZE);
	}
	json_arena_free(arena);
	return outbox;
}

/* Its message in the outbox, which stays there until PostgreSQL has its outcome. As above. */
static int outbox_find(struct tracing *tracing, struct finding *finding)
{
	redisReply *body = coupon_call(tracing->redis, finding->receive->coupon, "HGET",
				       COUPON_KEY_OUTBOX, finding->batch, NULL);
	cJSON *outbox;

	if (!body)
		return -1;
	outbox = body->type == REDIS_REPLY_STRING ? outbox_json(finding, body) : NULL;
	freeReplyObject(body);
	finding->is_known |= outbox != NULL;
	if (outbox)
		output_add(finding->object, "outbox", outbox);
	else
		output_null(finding->object, "outbox");
	return 0;
}

/* Whether it is marked as dead-lettered. As above. */
static int mark_find(struct tracing *tracing, struct finding *finding)
{
	redisReply *reply = coupon_call(tracing->redis, finding->receive->coupon, "SISMEMBER",
					COUPON_KEY_DEAD, finding->batch, NULL);

	if (!reply)
		return -1;
	finding->is_marked = redis_reply_number(reply) == 1;
	freeReplyObject(reply);
	return 0;
}

static void redis_find(struct tracing *tracing, struct finding *finding)
{
	cJSON *in_redis = output_object();
	struct redis_coupon coupon;
	int loaded = tracing->redis_fails
			     ? -1
			     : redis_coupon_read(tracing->redis, finding->receive->coupon, &coupon);

	output_add(finding->object, "redis", in_redis);
	if (loaded >= 0) {
		output_bool(in_redis, "loaded", loaded);
		output_bool(in_redis, "verified",
			    loaded && redis_coupon_is_verified(tracing->redis, &coupon));
	}
	if (loaded < 0 || slot_find(tracing, finding, in_redis) || outbox_find(tracing, finding) ||
	    mark_find(tracing, finding)) {
		tracing->redis_fails = tracing->failed = 1;
		output_text(in_redis, "error", redis_client_error(tracing->redis));
	}
}

/* Which messages are in a queue cannot be told without taking them, but for dead letters. */
static void queues_find(struct tracing *tracing, struct finding *finding)
{
	cJSON *queue = output_object();

	output_add(finding->object, "queue", queue);
	if (!tracing->queues.ok) {
		tracing->failed = 1;
		output_text(queue, "error", tracing->broker.error);
		return;
	}
	output_number(queue, "ready", tracing->queues.ready);
	output_number(queue, "consumers", tracing->queues.consumers);
	output_number(queue, "dead", tracing->queues.dead);
}

/* Whether its message may be among the dead letters. */
static int may_be_dead(const struct tracing *tracing, const struct finding *finding)
{
	return (!tracing->queues.ok || tracing->queues.dead > 0) &&
	       (!*finding->outcome || finding->is_marked);
}

/* `found` is that of dead_find(). */
static void letter_add(struct tracing *tracing, struct finding *finding, cJSON *found, size_t place)
{
	int may_be = may_be_dead(tracing, finding),
	    is_all = cJSON_IsTrue(cJSON_GetObjectItem(found, "is_all"));
	char number[NUMBER_SIZE];
	cJSON *letter = may_be ? cJSON_DetachItemFromObject(found,
							    number_text((int64_t)place, number))
			       : NULL;
	int is_unknown = may_be && !letter && !is_all;

	tracing->failed |= is_unknown;
	finding->is_known |= letter != NULL;
	output_add(finding->object, "dead_letter", letter ? letter : cJSON_CreateNull());
	output_text(finding->object, "dead_letter_unknown",
		    !is_unknown ? NULL
		    : found     ? "there are more dead letters than are looked through"
				: "RabbitMQ is away, or refuses it");
	output_bool(finding->object, "dead_marked", finding->is_marked);
}

/* Finds all of them by one look through the queue, and only if one may be there. */
static void letters_find(struct tracing *tracing, struct finding *findings,
			 const struct receives *receives)
{
	size_t n = 0;
	cJSON *found = NULL;

	while (n < receives->n && !may_be_dead(tracing, &findings[n]))
		n++;
	if (tracing->queues.ok && n < receives->n)
		found = dead_find(tracing->ctl, receives->list, receives->n);
	for (size_t i = 0; i < receives->n; i++)
		letter_add(tracing, &findings[i], found, i);
	cJSON_Delete(found);
}

static void webhooks_find(struct tracing *tracing, struct finding *finding)
{
	cJSON *webhooks = checked(cJSON_AddArrayToObject(finding->object, "webhooks"));
	char id[ULID_SIZE + NUMBER_SIZE + 4];
	PGresult *rows;

	snprintf(id, sizeof(id), "\"%s.%d/", finding->batch, finding->receive->index);
	rows = db_ask(tracing->db, sql_query_receive_webhooks,
		      postgres_number(finding->receive->coupon), postgres_text(id));
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *webhook = output_object();

		output_row(webhook, rows, row);
		cJSON_AddItemToArray(webhooks, webhook);
	}
	PQclear(rows);
}

/* After Redis: what is settled in between is in both, never in neither. */
static void postgresql_find(struct tracing *tracing, struct finding *finding)
{
	const struct receive *receive = finding->receive;
	char batch[ULID_UUID_SIZE];
	PGresult *row = db_ask(tracing->db, sql_query_receive_trace,
			       postgres_number(receive->coupon), postgres_text(receive->user.text),
			       postgres_text(ulid_to_uuid(&receive->batch, batch)),
			       postgres_number(receive->index));

	output_row(finding->object, row, 0);
	snprintf(finding->outcome, sizeof(finding->outcome), "%s",
		 column_text(row, 0, "postgresql.state"));
	finding->is_known |= *finding->outcome != '\0';
	if (!*finding->trace)
		snprintf(finding->trace, sizeof(finding->trace), "%s",
			 column_text(row, 0, "trace"));
	cJSON_DeleteItemFromObject(finding->object, "trace");
	PQclear(row);
}

static const char trace_template[] =
	"receive {receive}: {state|not known}[postgresql.reason  ({postgresql.reason})]\n"
	"\n"
	"  gateway      its batch was made at {gateway.made_at}[gateway.trace , trace "
	"{gateway.trace}]\n"
	"  Redis        [redis.error {redis.error}][!redis.error [redis.slot slot {redis.slot}"
	"[redis.key , key {redis.key}][redis.code , code {redis.code}]][!redis.slot [redis.loaded "
	"no slot has it][!redis.loaded the coupon is not loaded]][redis.loaded "
	"[!redis.verified , not verified]]]\n"
	"[!redis.error   outbox       [outbox [outbox.unreadable {outbox.unreadable}]"
	"[!outbox.unreadable waits since {outbox.accepted_at}, number {outbox.seq} of generation "
	"{outbox.generation}]][!outbox its message does not wait]\n]"
	"  queue        [queue.error unknown: {queue.error}][!queue.error {queue.ready} messages "
	"wait, of "
	"any receives; {queue.consumers} consumers]\n"
	"[dead_letter   dead letter  number {dead_letter.number}: {dead_letter.reason|no reason}\n]"
	"[dead_letter_unknown   dead letter  unknown: {dead_letter_unknown}\n]"
	"[!dead_letter [dead_marked   dead letter  marked, but not in the queue: dropped, or "
	"held by a command\n]]"
	"  PostgreSQL   {postgresql.state|no outcome}[postgresql.slot , slot {postgresql.slot}"
	", accepted {postgresql.received_at}][postgresql.valid_from , valid from "
	"{postgresql.valid_from} to {postgresql.valid_to|no end}][postgresql.rejected_at , "
	"rejected "
	"{postgresql.rejected_at}, [postgresql.freed_at freed {postgresql.freed_at}]"
	"[!postgresql.freed_at not freed yet]]\n"
	"[use.state   use          {use.state} by order {use.order}[use.until  until "
	"{use.until}]\n]"
	"[void.at   void         {void.at} by {void.by}[void.why : {void.why}]; its slot "
	"[void.returned "
	"came back][!void.returned stays taken]\n]"
	"  events       [events.on on][!events.on off]";

static void events_print(const cJSON *object)
{
	const cJSON *waiting = cJSON_GetObjectItem(cJSON_GetObjectItem(object, "events"),
						   "waiting"),
		    *item;
	cJSON *list = cJSON_Parse(waiting->valuestring);

	cJSON_ArrayForEach(item, list)
		output_template("; {type} of {made_at} is not published yet", item);
	puts(cJSON_GetArraySize(list) == 0 ? "; none waits to be published" : "");
	cJSON_Delete(list);
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(object, "webhooks")) output_template(
		"  webhook      {webhook}, {url}, {state}: [delivery delivery {delivery} "
		"({type}) is {delivery_state}, {attempts} attempts[last_at , the last at "
		"{last_at}][last_error : {last_error}][next_at , the next at {next_at}]]"
		"[!delivery no delivery waits]\n",
		item);
}

/* All but dead letters. */
static void receive_find(struct tracing *tracing, struct finding *finding,
			 const struct receive *receive)
{
	char text[RECEIVE_SIZE];

	*finding = (struct finding){ .receive = receive, .object = output_object() };
	ulid_format(&receive->batch, finding->batch);
	receive_format(receive, text);
	output_text(finding->object, "receive", text);
	output_null(finding->object, "state");
	finding->gateway = output_object();
	output_add(finding->object, "gateway", finding->gateway);
	time_add(finding->gateway, "made_at", ulid_time_ms(&receive->batch));
	redis_find(tracing, finding);
	postgresql_find(tracing, finding);
	queues_find(tracing, finding);
	webhooks_find(tracing, finding);
	output_add(finding->object, "uses", uses_read(tracing->db, receive));
	output_text(finding->gateway, "trace", finding->trace);
}

static void finding_print(struct tracing *tracing, struct finding *finding)
{
	if (finding->is_known)
		cJSON_ReplaceItemInObject(finding->object, "state",
					  cJSON_CreateString(*finding->outcome ? finding->outcome
									       : "accepted"));
	tracing->is_absent |= !finding->is_known;
	if (args_has(&tracing->ctl->args, "json")) {
		output_print(finding->object);
		return;
	}
	output_template(trace_template, finding->object);
	events_print(finding->object);
	uses_print(cJSON_GetObjectItem(finding->object, "uses"));
	cJSON_Delete(finding->object);
}

static void receives_add(struct receives *receives, const struct receive *receive)
{
	for (size_t i = 0; i < receives->n; i++)
		if (receives->list[i].index == receive->index &&
		    memcmp(&receives->list[i].batch, &receive->batch, sizeof(receive->batch)) == 0)
			return;
	check(receives->n < RECEIVES_MAX);
	receives->list[receives->n++] = *receive;
}

/* All receives of the user: those with an outcome, then those that only have a slot in Redis. */
static void receives_read(struct tracing *tracing, struct receive receive,
			  struct receives *receives)
{
	PGresult *rows = store_receive_ask(tracing->db, sql_query_user_outcomes, 2, &receive);
	redisReply *records;
	const char *text;
	struct slot slot;

	for (int row = 0; row < PQntuples(rows); row++) {
		ulid_from_uuid(&receive.batch, column_text(rows, row, "batch"));
		receive.index = (int)column_number(rows, row, "idx");
		receives_add(receives, &receive);
	}
	PQclear(rows);
	records = tracing->redis_fails ? NULL
				       : coupon_call(tracing->redis, receive.coupon, "HGET",
						     COUPON_KEY_USERS, receive.user.text, NULL);
	text = records && records->type == REDIS_REPLY_STRING ? records->str : NULL;
	while (slot_next(&text, &slot) == 0) {
		receive.batch = slot.batch;
		receive.index = slot.index;
		receives_add(receives, &receive);
	}
	tracing->redis_fails |= !records;
	if (records)
		freeReplyObject(records);
}

static int trace_run(struct ctl *ctl)
{
	struct tracing tracing = { .ctl = ctl, .broker = { .url = ctl->config.amqp_url } };
	static struct receives receives;
	static struct finding findings[RECEIVES_MAX];
	struct receive receive = { 0 }; /* of a user alone: any batch */

	args_receive(&ctl->args, &receive);
	tracing.db = store_postgres_open(ctl);
	tracing.redis = redis_client_new(ctl->config.redis_url, NULL);
	tracing.redis_fails = redis_client_open(tracing.redis) != 0;
	broker_look(&tracing.broker, &tracing.queues);
	if (ctl->args.argument)
		receives_add(&receives, &receive);
	else
		receives_read(&tracing, receive, &receives);
	for (size_t i = 0; i < receives.n; i++)
		receive_find(&tracing, &findings[i], &receives.list[i]);
	letters_find(&tracing, findings, &receives);
	for (size_t i = 0; i < receives.n; i++) {
		if (i > 0 && !args_has(&ctl->args, "json"))
			putchar('\n');
		finding_print(&tracing, &findings[i]);
	}
	if (receives.n == 0)
		log_fatal_as(tracing.redis_fails ? CTL_AWAY : CTL_ABSENT,
			     "user %s has no receive of coupon %lld%s", receive.user.text,
			     (long long)receive.coupon,
			     tracing.redis_fails ? " in PostgreSQL, and Redis cannot be read" : "");
	if (tracing.queues.ok)
		rabbit_connection_close(tracing.broker.connection);
	redis_client_free(tracing.redis);
	db_close(tracing.db);
	return tracing.failed ? CTL_AWAY : tracing.is_absent ? CTL_ABSENT : CTL_DONE;
}

const struct command trace_command = {
	.name = "trace",
	.run = trace_run,
	.argument = "[RECEIVE]",
	.options = RECEIVE_OPTIONS,
	.summary = "print where a receive is: in Redis, RabbitMQ, PostgreSQL, events, webhooks",
	.detail = "Asks the stores, and no gateway. Dead letters are looked through where the\n"
		  "receive may be one; they stay.",
};

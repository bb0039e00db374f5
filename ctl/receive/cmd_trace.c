/*
 * couponctl trace: what every store has of a receive, in the order of its way:
 *
 *	gateway ─▶ Redis: slot, outbox ─▶ RabbitMQ: queue, dead letters ─▶ PostgreSQL ─▶ events,
 *	                                                                                webhooks
 *
 * The command reads the stores themselves, so it knows more than a gateway and works without one. A
 * store that cannot be read is reported in its place, except PostgreSQL, without which the command
 * fails. Dead letters are searched once for all receives, after the rest.
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
	struct receive receives[RECEIVES_MAX];
	size_t n;
	int failed;    /* a store cannot be read */
	int is_absent; /* a receive is not known */
};

/* What is known of one receive, while the stores are read. */
struct traced {
	const struct receive *receive;
	char batch[ULID_SIZE];
	cJSON *object;
	int is_known;
	char outcome[16]; /* in PostgreSQL; "": none */
	int is_marked;    /* as dead-lettered, in Redis */
	char trace[TRACE_SIZE];
};

static void time_add(cJSON *object, const char *name, int64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, name, clock_rfc3339(wall_ms, text));
}

/* Finds the slot of the receive in Redis. 0, or -1: Redis cannot be read. */
static int slot_find(struct tracing *tracing, struct traced *traced, cJSON *in_redis)
{
	redisReply *records = coupon_call(tracing->redis, traced->receive->coupon, "HGET",
					  COUPON_KEY_USERS, traced->receive->user.text, NULL);
	const char *text = records && records->type == REDIS_REPLY_STRING ? records->str : NULL;
	char key[RECEIVE_KEY_MAX + 1], code[RECEIVE_CODE_MAX + 1];
	struct slot slot;
	size_t code_len;

	while (slot_next(&text, &slot) == 0) {
		if (slot.index != traced->receive->index ||
		    memcmp(&slot.batch, &traced->receive->batch, sizeof(slot.batch)) != 0)
			continue;
		traced->is_known = 1;
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

/*
 * Finds the message of the receive in the outbox, where it stays until PostgreSQL has the outcome.
 * 0, or -1: Redis cannot be read.
 */
static int outbox_find(struct tracing *tracing, struct traced *traced)
{
	static struct message message;
	redisReply *body = coupon_call(tracing->redis, traced->receive->coupon, "HGET",
				       COUPON_KEY_OUTBOX, traced->batch, NULL);
	struct json_arena *arena = json_arena_new();
	cJSON *outbox = NULL;
	const char *error;

	if (body && body->type == REDIS_REPLY_STRING) {
		if (message_decode(arena, body->str, body->len, &message, &error)) {
			outbox = output_object();
			output_text(outbox, "unreadable", error);
		} else if (message_has(&message, traced->receive)) {
			outbox = output_object();
			time_add(outbox, "accepted_at", message.at_ms);
			output_number(outbox, "generation", message.generation);
			output_number(outbox, "seq", message.seq + traced->receive->index);
			for (size_t i = 0; i < message.traces.n; i++)
				if ((int)message.traces.list[i].index == traced->receive->index)
					memcpy(traced->trace, message.traces.list[i].text,
					       TRACE_SIZE);
		}
	}
	json_arena_free(arena);
	if (!body)
		return -1;
	freeReplyObject(body);
	traced->is_known |= outbox != NULL;
	output_add(traced->object, "outbox", outbox ? outbox : cJSON_CreateNull());
	return 0;
}

/* Whether the message of the receive may be among the dead letters. */
static int may_be_dead(const struct tracing *tracing, const struct traced *traced)
{
	return (!tracing->queues.ok || tracing->queues.dead > 0) &&
	       (!*traced->outcome || traced->is_marked);
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

/* Reads all stores, except the dead letters. */
static void receive_find(struct tracing *tracing, struct traced *traced,
			 const struct receive *receive)
{
	cJSON *gateway = output_object(), *queue = output_object();
	char text[RECEIVE_SIZE], uuid[ULID_UUID_SIZE], id[ULID_SIZE + NUMBER_SIZE + 4];
	PGresult *row;
	int64_t coupon;
	cJSON *in_redis;
	struct redis_coupon loaded_coupon;
	redisReply *mark = NULL;
	int loaded;

	*traced = (struct traced){ .receive = receive, .object = output_object() };
	ulid_format(&receive->batch, traced->batch);
	receive_format(receive, text);
	output_text(traced->object, "receive", text);
	output_null(traced->object, "state");
	output_add(traced->object, "gateway", gateway);
	time_add(gateway, "made_at", ulid_time_ms(&receive->batch));

	/* What Redis has of it. */
	coupon = traced->receive->coupon;
	in_redis = output_object();
	loaded = tracing->redis_fails ? -1
				      : redis_coupon_read(tracing->redis, coupon, &loaded_coupon);
	output_add(traced->object, "redis", in_redis);
	if (loaded >= 0) {
		output_bool(in_redis, "loaded", loaded);
		output_bool(in_redis, "verified",
			    loaded && redis_coupon_is_verified(tracing->redis, &loaded_coupon));
	}
	if (loaded >= 0 && slot_find(tracing, traced, in_redis) == 0 &&
	    outbox_find(tracing, traced) == 0)
		mark = coupon_call(tracing->redis, coupon, "SISMEMBER", COUPON_KEY_DEAD,
				   traced->batch, NULL);
	if (mark) {
		traced->is_marked = redis_reply_number(mark) == 1;
		freeReplyObject(mark);
	} else {
		tracing->redis_fails = tracing->failed = 1;
		output_text(in_redis, "error", redis_client_error(tracing->redis));
	}

	/* PostgreSQL after Redis: what is settled in between is in both, never in neither. */
	row = db_ask(tracing->db, sql_query_receive_trace, postgres_number(receive->coupon),
		     postgres_text(receive->user.text),
		     postgres_text(ulid_to_uuid(&receive->batch, uuid)),
		     postgres_number(receive->index));
	output_row(traced->object, row, 0);
	snprintf(traced->outcome, sizeof(traced->outcome), "%s",
		 column_text(row, 0, "postgresql.state"));
	traced->is_known |= *traced->outcome != '\0';
	if (!*traced->trace)
		snprintf(traced->trace, sizeof(traced->trace), "%s", column_text(row, 0, "trace"));
	cJSON_DeleteItemFromObject(traced->object, "trace");
	PQclear(row);

	/* A queue cannot be searched without taking its messages, except for dead letters. */
	output_add(traced->object, "queue", queue);
	if (tracing->queues.ok) {
		output_number(queue, "ready", tracing->queues.ready);
		output_number(queue, "consumers", tracing->queues.consumers);
		output_number(queue, "dead", tracing->queues.dead);
	} else {
		tracing->failed = 1;
		output_text(queue, "error", tracing->broker.error);
	}

	snprintf(id, sizeof(id), "\"%s.%d/", traced->batch, receive->index);
	output_add(traced->object, "webhooks",
		   output_array(db_ask(tracing->db, sql_query_receive_webhooks,
				       postgres_number(receive->coupon), postgres_text(id))));
	output_add(traced->object, "uses", uses_read(tracing->db, receive));
	output_text(gateway, "trace", traced->trace);
}

static void traced_print(struct tracing *tracing, struct traced *traced)
{
	cJSON *object = traced->object, *events;
	const cJSON *waiting, *item;

	if (traced->is_known)
		cJSON_ReplaceItemInObject(object, "state",
					  cJSON_CreateString(*traced->outcome ? traced->outcome
									      : "accepted"));
	tracing->is_absent |= !traced->is_known;
	if (args_has(&tracing->ctl->args, "json")) {
		output_print(object);
		return;
	}

	output_template(trace_template, object);
	waiting = cJSON_GetObjectItem(cJSON_GetObjectItem(object, "events"), "waiting");
	events = cJSON_Parse(waiting->valuestring);
	cJSON_ArrayForEach(item, events)
		output_template("; {type} of {made_at} is not published yet", item);
	puts(cJSON_GetArraySize(events) == 0 ? "; none waits to be published" : "");
	cJSON_Delete(events);
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(object, "webhooks"))
	{
		output_template(
			"  webhook      {webhook}, {url}, {state}: [delivery delivery {delivery} "
			"({type}) is {delivery_state}, {attempts} attempts[last_at , the last at "
			"{last_at}][last_error : {last_error}][next_at , the next at {next_at}]]"
			"[!delivery no delivery waits]\n",
			item);
	}
	uses_print(cJSON_GetObjectItem(object, "uses"));
	cJSON_Delete(object);
}

static void receives_add(struct tracing *tracing, const struct receive *receive)
{
	for (size_t i = 0; i < tracing->n; i++)
		if (tracing->receives[i].index == receive->index &&
		    memcmp(&tracing->receives[i].batch, &receive->batch, sizeof(receive->batch)) ==
			    0)
			return;
	check(tracing->n < RECEIVES_MAX);
	tracing->receives[tracing->n++] = *receive;
}

/* Adds all receives of the user: first those with an outcome, then those that have only a slot. */
static void receives_read(struct tracing *tracing, struct receive receive)
{
	PGresult *rows = store_receive_ask(tracing->db, sql_query_user_outcomes, 2, &receive);
	redisReply *records;
	const char *text;
	struct slot slot;

	for (int row = 0; row < PQntuples(rows); row++) {
		ulid_from_uuid(&receive.batch, column_text(rows, row, "batch"));
		receive.index = (int)column_number(rows, row, "idx");
		receives_add(tracing, &receive);
	}
	PQclear(rows);
	records = tracing->redis_fails ? NULL
				       : coupon_call(tracing->redis, receive.coupon, "HGET",
						     COUPON_KEY_USERS, receive.user.text, NULL);
	text = records && records->type == REDIS_REPLY_STRING ? records->str : NULL;
	while (slot_next(&text, &slot) == 0) {
		receive.batch = slot.batch;
		receive.index = slot.index;
		receives_add(tracing, &receive);
	}
	tracing->redis_fails |= !records;
	if (records)
		freeReplyObject(records);
}

static int trace_run(struct ctl *ctl)
{
	static struct tracing tracing;
	static struct traced list[RECEIVES_MAX];
	struct receive receive = { 0 }; /* of a user alone: any batch */
	cJSON *found = NULL;
	size_t first = 0;
	int is_all;

	args_receive(&ctl->args, &receive);
	tracing.ctl = ctl;
	tracing.broker.url = ctl->config.amqp_url;
	tracing.db = store_postgres_open(ctl);
	tracing.redis = redis_client_new(ctl->config.redis_url, NULL);
	tracing.redis_fails = redis_client_open(tracing.redis) != 0;
	broker_look(&tracing.broker, &tracing.queues);
	if (ctl->args.argument)
		receives_add(&tracing, &receive);
	else
		receives_read(&tracing, receive);

	for (size_t i = 0; i < tracing.n; i++)
		receive_find(&tracing, &list[i], &tracing.receives[i]);

	/* Search the dead letters for all receives, once, and only if one may be there. */
	while (first < tracing.n && !may_be_dead(&tracing, &list[first]))
		first++;
	if (tracing.queues.ok && first < tracing.n)
		found = dead_find(tracing.ctl, tracing.receives, tracing.n);
	is_all = cJSON_IsTrue(cJSON_GetObjectItem(found, "is_all"));
	for (size_t i = 0; i < tracing.n; i++) {
		struct traced *traced = &list[i];
		int may_be = may_be_dead(&tracing, traced), is_unknown;
		char index[NUMBER_SIZE];
		cJSON *letter = NULL;

		if (may_be)
			letter = cJSON_DetachItemFromObject(found, number_text((int64_t)i, index));
		is_unknown = may_be && !letter && !is_all;
		tracing.failed |= is_unknown;
		traced->is_known |= letter != NULL;
		output_add(traced->object, "dead_letter", letter ? letter : cJSON_CreateNull());
		output_text(traced->object, "dead_letter_unknown",
			    !is_unknown ? NULL
			    : found     ? "there are more dead letters than the search reads"
					: "RabbitMQ is away, or refuses it");
		output_bool(traced->object, "dead_marked", traced->is_marked);
	}
	cJSON_Delete(found);

	for (size_t i = 0; i < tracing.n; i++) {
		if (i > 0 && !args_has(&ctl->args, "json"))
			putchar('\n');
		traced_print(&tracing, &list[i]);
	}

	if (tracing.n == 0)
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
	.summary = "print what every store has of a receive, gateway to webhook",
	.detail = "The command asks the stores, and no gateway. If the receive may be among the "
		  "dead\n"
		  "letters, these are searched; they stay in their queue.",
};

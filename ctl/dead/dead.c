/*
 * couponctl dead: lists and shows dead letters, publishes them again, and drops them.
 *
 * Before a message is published again its mark in Redis is removed, so that the keeper sends it
 * again if RabbitMQ loses it.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/dead/walk.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE 20
#define PAGE_MAX 1000

/* dead list */

static void row_print(const struct dead_letter *letter)
{
	const struct dead_batch *batch = dead_letter_batch(letter);
	char coupon[ID_SIZE] = "-", ulid[ULID_SIZE] = "-", receives[24] = "-";

	if (batch && batch->coupon)
		id_format(batch->coupon, coupon);
	if (!batch)
		snprintf(ulid, sizeof(ulid), "%zu batches", letter->batches_n);
	else if (*batch->ulid)
		memcpy(ulid, batch->ulid, sizeof(ulid));
	if (letter->receives_n >= 0)
		snprintf(receives, sizeof(receives), "%" PRId64, letter->receives_n);
	printf("%6" PRId64 "  %-20s %-26s %8s %8zu  %s\n", letter->number, coupon, ulid, receives,
	       letter->raw.body.len, *letter->reason ? letter->reason : "-");
}

static int list_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct dead_walk walk = { .choice.first = args_number(&ctl->args, "limit", 1, PAGE_MAX,
							      PAGE) };
	cJSON *messages = args_has(&ctl->args, "json") ? cJSON_CreateArray() : NULL, *object;
	int64_t length;

	dead_walk_begin(&walk, ctl);
	length = hold_length(walk.hold);
	if (!messages && length == 0)
		printf("%s is empty\n", AMQP_DEAD_QUEUE);
	else if (!messages)
		printf("%s has %" PRId64
		       " message%s, the oldest first:\n\n%6s  %-20s %-26s %8s %8s  reason\n",
		       AMQP_DEAD_QUEUE, length, length == 1 ? "" : "s", "number", "coupon", "batch",
		       "receives", "bytes");
	while (dead_walk_next(&walk, &letter)) {
		if (messages)
			cJSON_AddItemToArray(messages, dead_letter_json(&letter));
		else
			row_print(&letter);
		dead_letter_fini(&letter);
	}
	if (messages) {
		object = output_object();
		output_text(object, "queue", AMQP_DEAD_QUEUE);
		output_number(object, "count", length);
		output_add(object, "messages", messages);
		output_print(object);
	} else if (walk.seen < length) {
		printf("\n%" PRId64 " more\n", length - walk.seen);
	}
	dead_walk_end(&walk);
	return 0;
}

static const struct option list_options[] = {
	OPTION("limit", "N", "at most N messages, 1 to 1000; default 20"),
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

static const struct command dead_list_command = {
	.name = "dead list",
	.run = list_run,
	.options = list_options,
	.summary = "print the number of dead letters, and the oldest of them",
	.detail = "Consumes nothing: the messages return to their places. Concurrent commands\n"
		  "each see only part of them.",
};

/* dead show */

static void letter_show(const struct dead_letter *letter, int as_json)
{
	cJSON *object;

	if (!as_json) {
		dead_letter_print(letter);
		return;
	}
	object = dead_letter_json(letter);
	dead_letter_json_add(letter, object);
	output_print(object);
}

static int show_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct dead_walk walk;

	dead_choice_read(&walk.choice, ctl);
	walk.choice.first = 1;
	dead_walk_begin(&walk, ctl);
	if (dead_walk_next(&walk, &letter)) {
		letter_show(&letter, args_has(&ctl->args, "json"));
		dead_letter_fini(&letter);
	}
	dead_walk_end(&walk);
	dead_walk_check_found(&walk);
	return 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

static const struct command dead_show_command = {
	.name = "dead show",
	.run = show_run,
	.argument = "N|BATCH",
	.options = show_options,
	.summary = "print one dead letter, by its number or its batch",
};

/*
 * What Redis has of each batch of a dead letter: the entry in its coupon's outbox, and the mark,
 * its id in the set of dead ones, with which the keeper does not send the entry again. A batch
 * whose coupon or id is unknown has neither. When Redis cannot be reached or refuses, the process
 * ends with one sentence.
 */
struct outbox {
	const struct ctl *ctl;
	struct redis_client *redis; /* NULL: not needed so far */
};

static int is_named(const struct dead_batch *batch)
{
	return batch->coupon && *batch->ulid;
}

/* Connects, if Redis is needed for this letter. Before its change is announced or begun. */
static void outbox_open(struct outbox *outbox, const struct dead_letter *letter)
{
	for (size_t i = 0; i < letter->batches_n && !outbox->redis; i++)
		if (is_named(&letter->batches[i]))
			outbox->redis = store_redis_open(outbox->ctl);
}

/* The reply to a command with the batch's id as its only argument. */
static redisReply *batch_call(struct outbox *outbox, const char *command, enum coupon_key key,
			      const struct dead_batch *batch)
{
	char name[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(batch->coupon, key, name), batch->ulid };
	redisReply *reply = redis_client_call(outbox->redis, 3, argv);

	store_redis_check(outbox->redis, reply != NULL);
	return reply;
}

static int is_same_message(const redisReply *entry, const struct dead_batch *batch)
{
	return entry->type == REDIS_REPLY_STRING && entry->len == batch->body.len &&
	       memcmp(entry->str, batch->body.bytes, entry->len) == 0;
}

static void batch_unmark(struct outbox *outbox, const struct dead_batch *batch)
{
	freeReplyObject(batch_call(outbox, "SREM", COUPON_KEY_DEAD, batch));
}

/* Should RabbitMQ lose the message, the keeper sends its batches again. */
static void outbox_unmark(struct outbox *outbox, const struct dead_letter *letter)
{
	outbox_open(outbox, letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		if (is_named(&letter->batches[i]))
			batch_unmark(outbox, &letter->batches[i]);
}

static void batch_remove(struct outbox *outbox, const struct dead_batch *batch)
{
	redisReply *entry = batch_call(outbox, "HGET", COUPON_KEY_OUTBOX, batch);

	/*
	 * Then the mark stays: without it the keeper could settle the receives from their slots.
	 * Another body is another message, which the keeper sends.
	 */
	if (is_same_message(entry, batch))
		freeReplyObject(batch_call(outbox, "HDEL", COUPON_KEY_OUTBOX, batch));
	else
		batch_unmark(outbox, batch);
	freeReplyObject(entry);
}

static void outbox_remove(struct outbox *outbox, const struct dead_letter *letter)
{
	outbox_open(outbox, letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		if (is_named(&letter->batches[i]))
			batch_remove(outbox, &letter->batches[i]);
}

/* dead requeue */

struct requeue {
	struct dead_walk walk;
	struct outbox outbox;
	int is_adopted; /* the id of the installation is dropped */
};

static void letter_publish(struct requeue *requeue, const struct dead_letter *letter)
{
	/* The properties that programs use. Headers are dropped: they describe the first death. */
	static const amqp_flags_t kept = AMQP_BASIC_CONTENT_TYPE_FLAG |
					 AMQP_BASIC_CONTENT_ENCODING_FLAG |
					 AMQP_BASIC_CORRELATION_ID_FLAG |
					 AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG;
	amqp_basic_properties_t properties = letter->raw.properties;

	properties._flags &= kept | (requeue->is_adopted ? 0 : AMQP_BASIC_APP_ID_FLAG);
	hold_send(requeue->walk.hold, letter->tag, AMQP_EXCHANGE, AMQP_ROUTING_KEY, &properties,
		  letter->raw.body);
}

/* NULL, or why not all were published. */
static const char *letters_requeue(struct requeue *requeue)
{
	static struct dead_letter letter;
	const char *trouble = NULL;

	while (!trouble && dead_walk_next(&requeue->walk, &letter)) {
		hold_send_begin(requeue->walk.hold);
		outbox_unmark(&requeue->outbox, &letter);
		letter_publish(requeue, &letter);
		dead_letter_fini(&letter);
		if (hold_is_full(requeue->walk.hold))
			trouble = hold_confirm(requeue->walk.hold);
	}
	return trouble ? trouble : hold_confirm(requeue->walk.hold);
}

static int requeue_run(struct ctl *ctl)
{
	struct requeue requeue = { .outbox.ctl = ctl, .is_adopted = args_has(&ctl->args, "adopt") };
	const char *failure;
	int64_t moved;

	dead_choice_read_many(&requeue.walk.choice, ctl);
	dead_walk_begin(&requeue.walk, ctl);
	failure = letters_requeue(&requeue);
	if (failure)
		fprintf(stderr, "couponctl: %s; what was not confirmed is still in %s\n", failure,
			AMQP_DEAD_QUEUE);
	moved = hold_moved(requeue.walk.hold);
	redis_client_free(requeue.outbox.redis);
	dead_walk_end(&requeue.walk);
	if (!failure)
		dead_walk_check_found(&requeue.walk);
	printf("%" PRId64 " message%s requeued\n", moved, moved == 1 ? "" : "s");
	return failure ? 1 : 0;
}

static const struct option requeue_options[] = {
	SWITCH("all", "all messages that are in the queue at the start"),
	OPTION("limit", "N", "the N oldest messages"),
	SWITCH("adopt", "as messages of this installation, whichever they are of"),
	OPTIONS_END,
};

static const struct command dead_requeue_command = {
	.name = "dead requeue",
	.run = requeue_run,
	.argument = "[N|BATCH]",
	.options = requeue_options,
	.summary = "publish dead letters to the workers again",
	.detail = "First repair what made them fail, or they return. A message leaves the\n"
		  "dead-letter queue only after RabbitMQ has confirmed its copy. After an\n"
		  "interruption it may be in both queues, which changes nothing: a receive is\n"
		  "settled once.",
};

/* dead drop */

struct drop {
	struct dead_walk walk;
	struct outbox outbox;
	const struct ctl *ctl;
	struct db *db;  /* NULL: not needed so far */
	int sure;       /* --yes */
	int is_checked; /* Redis is that of PostgreSQL */
	int64_t owed;   /* receives without an outcome */
};

static void database_open(struct drop *drop)
{
	if (!drop->db)
		drop->db = db_open("DATABASE_URL", drop->ctl->config.database_url);
}

/* What PostgreSQL says of a receive decides what is removed in Redis. */
static void installation_check(struct drop *drop)
{
	if (!drop->outbox.redis || drop->is_checked)
		return;
	database_open(drop);
	store_redis_check(drop->outbox.redis, behind_read(drop->db, drop->outbox.redis) >= 0);
	drop->is_checked = 1;
}

static int is_owed(struct drop *drop, const struct receive *receive)
{
	char batch[ULID_UUID_SIZE];
	PGresult *rows;
	int owed;

	database_open(drop);
	rows = db_ask(drop->db, sql_query_receive_outcome, postgres_number(receive->coupon),
		      postgres_text(receive->user.text),
		      postgres_text(ulid_to_uuid(&receive->batch, batch)),
		      postgres_number(receive->index));
	owed = PQntuples(rows) == 0;
	PQclear(rows);
	return owed;
}

/* A receive is owed unless another copy of its message was settled. */
static void owed_print(struct drop *drop, const struct message *message)
{
	char text[RECEIVE_SIZE];

	for (size_t i = 0; i < message->receives_n; i++) {
		struct receive receive = { .coupon = message->coupon,
					   .user = message->receives[i].user,
					   .batch = message->batch,
					   .index = (int)i };

		if (!is_owed(drop, &receive))
			continue;
		receive_format(&receive, text);
		printf("  owed: %s\n", text);
		drop->owed++;
	}
}

static void batch_print(struct drop *drop, const struct dead_batch *batch)
{
	static struct message message;

	if (dead_batch_decode(batch, drop->walk.arena, &message) == 0)
		owed_print(drop, &message);
	else
		printf("  cannot be read (%s): it may contain receives that are owed\n",
		       batch->unreadable);
}

static void letter_drop(struct drop *drop, const struct dead_letter *letter)
{
	if (drop->sure)
		outbox_open(&drop->outbox, letter);
	installation_check(drop);
	printf("%s %" PRId64 ": ", drop->sure ? "dropped" : "would drop", letter->number);
	dead_letter_summary_print(letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		batch_print(drop, &letter->batches[i]);
	/* Printed before the removal: then no receive vanishes unnamed. */
	fflush(stdout);
	if (!drop->sure)
		return;
	/* Before the removal: interrupted in between, the command finds the letter once more. */
	outbox_remove(&drop->outbox, letter);
	hold_remove(drop->walk.hold, letter->tag);
}

static int drop_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct drop drop = { .outbox.ctl = ctl, .ctl = ctl, .sure = args_has(&ctl->args, "yes") };

	dead_choice_read_many(&drop.walk.choice, ctl);
	dead_walk_begin(&drop.walk, ctl);
	while (dead_walk_next(&drop.walk, &letter)) {
		letter_drop(&drop, &letter);
		dead_letter_fini(&letter);
	}
	dead_walk_end(&drop.walk);
	db_close(drop.db);
	redis_client_free(drop.outbox.redis);
	dead_walk_check_found(&drop.walk);
	printf("%" PRId64 " message%s %s, with %" PRId64 " receive%s that %s owed\n",
	       drop.walk.chosen, drop.walk.chosen == 1 ? "" : "s",
	       drop.sure ? "dropped" : "would be dropped", drop.owed, drop.owed == 1 ? "" : "s",
	       drop.owed == 1 ? "was" : "were");
	if (!drop.sure)
		args_fail("nothing was dropped: that needs --yes");
	return 0;
}

static const struct option drop_options[] = {
	SWITCH("all", "all messages that are in the queue at the start"),
	OPTION("limit", "N", "the N oldest messages"),
	SWITCH("yes", "delete; without it, only print what would be deleted"),
	OPTIONS_END,
};

static const struct command dead_drop_command = {
	.name = "dead drop",
	.run = drop_run,
	.argument = "[N|BATCH]",
	.options = drop_options,
	.summary = "delete dead letters",
	.detail = "A receive in the dead-letter queue is still owed to its user: each one that\n"
		  "can be read and has no outcome is named. After the deletion it cannot get an\n"
		  "outcome, and its coupon counts it as in flight. The message is removed from\n"
		  "the outbox in Redis, too.",
};

static const struct command *const dead_commands[] = {
	&dead_list_command, &dead_show_command, &dead_requeue_command, &dead_drop_command, NULL,
};

const struct command dead_command = {
	.name = "dead",
	.subcommands = dead_commands,
	.summary = "list, show, requeue and drop dead letters",
};

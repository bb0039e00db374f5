/*
 * couponctl dead: lists and shows dead letters, publishes them again, and removes them.
 *
 * Before a message is published again its mark in Redis is removed, so that the keeper sends it
 * again if RabbitMQ loses it.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "common/rabbit/link.h"
#include "ctl/dead/dead_letter.h"
#include "ctl/rabbit.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 20
#define PROGRESS_EVERY 500
#define FIND_S 30
#define REFRESH_DELIVERIES 8 /* of a message: then all are published again */

/* Goes through the queue from its oldest message, and chooses messages. All zero at first. */
struct walk {
	const struct ctl *ctl;
	int is_removal;
	int sure;                      /* remove: --yes */
	int64_t number;                /* only this one; 0: any */
	int64_t after;                 /* only later ones */
	char batch[ULID_SIZE];         /* only with this one; "": any */
	char digest[DEAD_DIGEST_SIZE]; /* only with this one; "": any */
	int64_t most;                  /* so many of those */

	struct hold *hold;
	struct json_arena *arena;
	struct dead_letter letter; /* taken last; its `raw` is zero when there is none */
	int64_t seen, chosen;      /* messages taken so far, and how many of them were chosen */
	int64_t deliveries_most;   /* the highest delivery count of them */
	int show_progress;

	/* For requeue and remove. */
	struct redis_client *redis; /* NULL: not needed so far */
	struct db *db;              /* NULL: not needed so far */
	int64_t owed;               /* receives without an outcome */
};

/* By the argument: a number, a batch or a digest. */
static void choose(struct walk *walk, const char *text)
{
	struct ulid batch;

	walk->most = INT64_MAX;
	if (id_parse(text, strlen(text), &walk->number) == 0)
		return;
	if (strspn(text, "0123456789abcdef") == sizeof(walk->digest) - 1 &&
	    strlen(text) == sizeof(walk->digest) - 1) {
		memcpy(walk->digest, text, sizeof(walk->digest));
		return;
	}
	if (ulid_parse(&batch, text, strlen(text)))
		args_fail("\"%s\" is neither a number that couponctl dead list prints, nor a batch "
			  "of 26 characters, nor a digest of 32",
			  text);
	ulid_format(&batch, walk->batch);
}

/* By the argument, --all or --count. Exactly one must be given. */
static void choose_many(struct walk *walk, const struct args *args)
{
	if (args_has(args, "all") + args_has(args, "count") + (args->argument != NULL) != 1)
		args_fail("%s needs one of: a number, a batch or a digest, --all, --count N%s",
			  args->command->name, say_help(args->command->name));
	if (args->argument)
		choose(walk, args->argument);
	else
		walk->most = args_number(args, "count", 1, INT64_MAX, INT64_MAX);
}

static void walk_begin(struct walk *walk, const struct ctl *ctl)
{
	walk->ctl = ctl;
	walk->arena = json_arena_new();
	walk->show_progress = isatty(STDERR_FILENO);
	walk->hold = hold_open(ctl->config.amqp_url, AMQP_DEAD_QUEUE, 0,
			       "no queue took a message: start a coupon-worker, which "
			       "declares " AMQP_QUEUE);
}

static void message_free(struct walk *walk)
{
	amqp_destroy_message(&walk->letter.raw);
	walk->letter.raw = (amqp_message_t){ 0 };
}

/* Takes the next message in place of the last one. 1, or 0: there is none. */
static int message_take(struct walk *walk)
{
	int64_t deliveries;

	message_free(walk);
	if (walk->seen >= walk->hold->length ||
	    !hold_take(walk->hold, &walk->letter.raw, &walk->letter.tag, 0))
		return 0;
	deliveries = envelope_delivery_count(&walk->letter.raw.properties);
	if (deliveries > walk->deliveries_most)
		walk->deliveries_most = deliveries;
	walk->letter.number = ++walk->seen;
	if (walk->show_progress && walk->seen % PROGRESS_EVERY == 0)
		fprintf(stderr, "\rcouponctl: %" PRId64 " of %" PRId64 " looked at", walk->seen,
			walk->hold->length);
	return 1;
}

static int is_chosen(const struct walk *walk)
{
	if (*walk->digest)
		return strcmp(walk->letter.digest, walk->digest) == 0;
	if (!*walk->batch)
		return walk->seen > walk->after && (!walk->number || walk->number == walk->seen);
	for (size_t i = 0; i < walk->letter.batches_n; i++)
		if (strcmp(walk->letter.batches[i].ulid, walk->batch) == 0)
			return 1;
	return 0;
}

/*
 * Returns the next chosen message, which is valid until the next call; NULL: there is none. The
 * walk ends with the message that was the last in the queue at the start, so a message that is
 * dead-lettered again meanwhile is not taken twice.
 */
static const struct dead_letter *walk_next(struct walk *walk)
{
	while (walk->chosen < walk->most && (!walk->number || walk->seen < walk->number) &&
	       message_take(walk)) {
		dead_letter_read(&walk->letter, walk->arena);
		if (is_chosen(walk)) {
			walk->chosen++;
			return &walk->letter;
		}
	}
	return NULL;
}

/*
 * Messages that were not removed return to the queue. The remaining messages are taken first: when
 * all return together, their order and numbers stay the same. Each look is a delivery of every
 * message, and RabbitMQ drops a message at the delivery limit that a policy may set. Before that
 * limit all messages are published to the queue again, in their order, with a count of 0. If that
 * fails half-way, a message may be in the queue twice.
 */
static void walk_end(struct walk *walk)
{
	while (walk->hold->length <= HOLD_ORDER_MAX && walk->hold->held > 0 && message_take(walk))
		;
	message_free(walk);
	if (walk->show_progress && walk->seen >= PROGRESS_EVERY)
		fputc('\n', stderr);
	hold_close(walk->hold);
	if (walk->deliveries_most >= REFRESH_DELIVERIES) {
		struct hold *hold = hold_open(walk->ctl->config.amqp_url, AMQP_DEAD_QUEUE, 0,
					      "the queue does not accept a message");
		const char *trouble = NULL;
		int64_t left = hold->length;

		for (int n = 1; n > 0 && left > 0 && !trouble; left -= n)
			n = hold_copy_round(hold, AMQP_DEAD_QUEUE, left, 0, &trouble);
		if (trouble)
			log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, trouble);
		hold_close(hold);
	}
	json_arena_free(walk->arena);
	redis_client_free(walk->redis);
	db_close(walk->db);
}

static void found_check(const struct walk *walk)
{
	if (walk->chosen > 0)
		return;
	if (walk->number)
		log_fatal_as(CTL_ABSENT, "there is no dead letter %" PRId64 ": %s has %" PRId64,
			     walk->number, AMQP_DEAD_QUEUE, walk->seen);
	if (*walk->batch)
		log_fatal_as(CTL_ABSENT, "none of the %" PRId64 " messages in %s is of batch %s",
			     walk->seen, AMQP_DEAD_QUEUE, walk->batch);
	if (*walk->digest)
		log_fatal_as(CTL_ABSENT, "none of the %" PRId64 " messages in %s has the digest %s",
			     walk->seen, AMQP_DEAD_QUEUE, walk->digest);
}

/* dead list */

static int list_run(struct ctl *ctl)
{
	static struct walk walk;
	cJSON *messages = args_has(&ctl->args, "json") ? cJSON_CreateArray() : NULL, *object;
	const struct dead_letter *letter;
	int64_t length;

	walk.most = args_count(&ctl->args, PAGE);
	walk.after = args_number(&ctl->args, "after", 0, INT64_MAX, 0);
	walk_begin(&walk, ctl);
	length = walk.hold->length;
	if (!messages && length == 0)
		printf("%s is empty\n", AMQP_DEAD_QUEUE);
	else if (!messages)
		printf("%s has %" PRId64 " message%s, the oldest first:\n\n"
		       "number  coupon               batch                      receives    bytes  "
		       "reason\n",
		       AMQP_DEAD_QUEUE, length, length == 1 ? "" : "s");
	while ((letter = walk_next(&walk)) != NULL) {
		cJSON *row = dead_letter_json(letter, 0);
		char batches[40];

		if (messages) {
			cJSON_AddItemToArray(messages, row);
			continue;
		}
		snprintf(batches, sizeof(batches), "%zu batches", letter->batches_n);
		if (letter->batches_n > 1)
			cJSON_ReplaceItemInObject(row, "batch", cJSON_CreateString(batches));
		output_say(row,
			   "{number:6}  {coupon:-20|-} {batch:-26|-} {receives:8|-} {bytes:8}  "
			   "{reason|-}\n",
			   0);
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
	walk_end(&walk);
	return 0;
}

static const struct command dead_list_command = {
	.name = "dead list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("N", "message", "20")),
	.summary = "print the number of dead letters, and the oldest of them",
	.detail = "Consumes nothing: the messages return to their places. Concurrent commands\n"
		  "each see only part of them.",
};

/* dead show */

static int show_run(struct ctl *ctl)
{
	static struct walk walk;
	const struct dead_letter *letter;

	choose(&walk, ctl->args.argument);
	walk.most = 1;
	walk_begin(&walk, ctl);
	letter = walk_next(&walk);
	if (letter && args_has(&ctl->args, "json"))
		output_print(dead_letter_json(letter, 1));
	else if (letter)
		dead_letter_print(letter);
	walk_end(&walk);
	found_check(&walk);
	return 0;
}

static const struct command dead_show_command = {
	.name = "dead show",
	.run = show_run,
	.argument = "N|BATCH|DIGEST",
	.summary = "print one dead letter, by its number, its batch or its digest",
};

/* Whether one of its batches has the receive, as far as it can be read. */
static int has_receive(const struct walk *walk, const struct receive *receive)
{
	static struct message message;
	char ulid[ULID_SIZE];
	const char *error;

	ulid_format(&receive->batch, ulid);
	for (size_t i = 0; i < walk->letter.batches_n; i++) {
		const struct dead_batch *batch = &walk->letter.batches[i];

		if (strcmp(batch->ulid, ulid) == 0)
			return message_decode(walk->arena, batch->body.bytes, batch->body.len,
					      &message, &error) ||
			       message_has(&message, receive);
	}
	return 0;
}

/* The pipe of the process that searches for --api; its parent tells what it says. */
static int find_out;

static void find_sentence(const char *sentence, int is_warning)
{
	cJSON *object = output_object();
	char *text;

	(void)is_warning;
	output_text(object, "sentence", sentence);
	text = checked(json_write(object));
	dprintf(find_out, "%s\n", text);
	cJSON_free(text);
	cJSON_Delete(object);
}

/* Searches in a process of its own, so that a RabbitMQ that fails or hangs ends nothing else. */
cJSON *dead_find(const struct ctl *ctl, const struct receive *receives, size_t n)
{
	cJSON *found = NULL;
	const char *sentence;
	char *text = NULL;
	size_t size = 0;
	FILE *in;
	int fds[2];
	pid_t pid;

	check(pipe2(fds, O_CLOEXEC) == 0);
	fflush(NULL); /* both processes would write what is left, the answer of --api included */
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		static struct walk walk = { .most = DEAD_FIND_MAX };
		cJSON *letters;
		char number[NUMBER_SIZE], *line;

		alarm(FIND_S);
		find_out = fds[1];
		if (say_is_collected())
			say_to(find_sentence);

		/* Answer with one line of JSON. A RabbitMQ that fails ends the process. */
		letters = output_object();
		walk_begin(&walk, ctl);
		while (walk_next(&walk))
			for (size_t i = 0; i < n; i++)
				if (!cJSON_HasObjectItem(letters,
							 number_text((int64_t)i, number)) &&
				    has_receive(&walk, &receives[i]))
					output_add(letters, number,
						   dead_letter_json(&walk.letter, 0));
		output_bool(letters, "is_all", walk.seen >= walk.hold->length);
		walk_end(&walk);
		line = checked(json_write(letters));
		dprintf(fds[1], "%s\n", line);
		cJSON_free(line);
		cJSON_Delete(letters);
		_exit(0);
	}
	close(fds[1]);
	in = checked(fdopen(fds[0], "r"));
	while (!found && getline(&text, &size, in) > 0) {
		found = cJSON_Parse(text);
		sentence = cJSON_GetStringValue(cJSON_GetObjectItem(found, "sentence"));
		if (!sentence)
			continue;
		say("%s", sentence);
		cJSON_Delete(found);
		found = NULL;
	}
	free(text);
	fclose(in);
	check(waitpid(pid, NULL, 0) == pid);
	return found;
}

static void database_open(struct walk *walk)
{
	if (!walk->db)
		walk->db = store_postgres_open(walk->ctl);
}

/*
 * What Redis has of each batch of a dead letter: the entry in its coupon's outbox, and the mark,
 * its id in the set of dead ones, with which the keeper does not send the entry again. A batch
 * whose coupon or id is unknown has neither. When Redis cannot be reached or refuses, the process
 * ends with one sentence.
 */
static int is_named(const struct dead_batch *batch)
{
	return batch->coupon && *batch->ulid;
}

/*
 * Connects if Redis is needed for this letter, before its change is announced or begun. What
 * PostgreSQL says of a receive decides what is removed in Redis: they must belong together.
 */
static void redis_open(struct walk *walk, const struct dead_letter *letter)
{
	size_t i = 0;

	while (i < letter->batches_n && !is_named(&letter->batches[i]))
		i++;
	if (walk->redis || i == letter->batches_n)
		return;
	walk->redis = store_redis_open(walk->ctl);
	if (!walk->is_removal)
		return;
	database_open(walk);
	store_redis_check(walk->redis, behind_read(walk->db, walk->redis) >= 0);
}

/* The reply to a command with the batch's id as its only argument. */
static redisReply *batch_call(const struct walk *walk, const char *command, enum coupon_key key,
			      const struct dead_batch *batch)
{
	char name[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(batch->coupon, key, name), batch->ulid };
	redisReply *reply = redis_client_call(walk->redis, 3, argv);

	store_redis_check(walk->redis, reply != NULL);
	return reply;
}

/*
 * Removes the marks: should RabbitMQ lose the message, the keeper sends its batches again. When the
 * letter itself is removed, the entry goes and the mark stays: without it the keeper could settle
 * the receives from their slots.
 */
static void outbox_change(struct walk *walk, const struct dead_letter *letter)
{
	redis_open(walk, letter);
	for (size_t i = 0; i < letter->batches_n; i++) {
		const struct dead_batch *batch = &letter->batches[i];

		int has_entry = 0;

		if (!is_named(batch))
			continue;
		/* Another body is that of another message, which the keeper sends. */
		if (walk->is_removal) {
			redisReply *entry = batch_call(walk, "HGET", COUPON_KEY_OUTBOX, batch);

			has_entry = entry->type == REDIS_REPLY_STRING &&
				    entry->len == batch->body.len &&
				    memcmp(entry->str, batch->body.bytes, entry->len) == 0;
			freeReplyObject(entry);
		}
		if (has_entry)
			freeReplyObject(batch_call(walk, "HDEL", COUPON_KEY_OUTBOX, batch));
		else
			freeReplyObject(batch_call(walk, "SREM", COUPON_KEY_DEAD, batch));
	}
}

/* dead requeue */

static int requeue_run(struct ctl *ctl)
{
	/* The properties that programs use. Headers are dropped: they describe the first death. */
	amqp_flags_t kept = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_CONTENT_ENCODING_FLAG |
			    AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
			    AMQP_BASIC_TYPE_FLAG;
	static struct walk walk;
	const struct dead_letter *letter;
	const char *trouble = NULL;
	struct hold *hold;
	int64_t moved;

	choose_many(&walk, &ctl->args);
	if (!args_has(&ctl->args, "adopt"))
		kept |= AMQP_BASIC_APP_ID_FLAG; /* the id of the installation */
	walk_begin(&walk, ctl);
	database_open(&walk);
	store_by_set(walk.db, ctl);
	store_key_bind(walk.db, ctl, NULL);
	hold = walk.hold;
	while (!trouble && (letter = walk_next(&walk)) != NULL) {
		amqp_basic_properties_t properties = letter->raw.properties;

		hold_send_begin(hold);
		outbox_change(&walk, letter);
		properties._flags &= kept;
		hold_send(hold, letter->tag, AMQP_EXCHANGE,
			  letter->is_use ? AMQP_USE_KEY : AMQP_ROUTING_KEY, &properties,
			  letter->raw.body);
		log_fatal_status(CTL_UNKNOWN);
		if (hold_is_full(hold))
			trouble = hold_confirm(hold);
	}
	if (!trouble)
		trouble = hold_confirm(hold);
	if (trouble)
		say("%s; what was not confirmed is still in %s", trouble, AMQP_DEAD_QUEUE);
	moved = hold->moved;
	walk_end(&walk);
	if (!trouble)
		found_check(&walk);
	if (args_has(&ctl->args, "json"))
		printf("{\"requeued\":%" PRId64 "}\n", moved);
	else
		printf("%" PRId64 " message%s requeued\n", moved, moved == 1 ? "" : "s");
	return trouble ? CTL_STOPPED : CTL_DONE;
}

static const struct command dead_requeue_command = {
	.name = "dead requeue",
	.run = requeue_run,
	.argument = "[N|BATCH|DIGEST]",
	.options = OPTIONS(SWITCH("all", "all messages that are in the queue at the start"),
			   OPTION("count", "N", "the N oldest messages"),
			   SWITCH("adopt",
				  "as messages of this installation, whichever they are of"),
			   KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "publish dead letters to the workers again",
	.detail = "First repair what made them fail, or they return. A message leaves the\n"
		  "dead-letter queue only after RabbitMQ has confirmed its copy. After an\n"
		  "interruption it may be in both queues, which changes nothing: a receive is\n"
		  "settled once.",
};

/* dead remove */

/*
 * Names the owed receives of a batch. A receive is owed unless another copy of its message was
 * settled. `list` NULL: prints them for people.
 */
static void owed_say(struct walk *walk, const struct dead_batch *batch, cJSON *list)
{
	static struct message message;
	char text[RECEIVE_SIZE];

	if (message_decode(walk->arena, batch->body.bytes, batch->body.len, &message,
			   &(const char *){ NULL })) {
		if (!list)
			printf("  cannot be read (%s): it may contain receives that are owed\n",
			       batch->unreadable);
		return;
	}
	for (size_t i = 0; i < message.receives_n; i++) {
		struct receive receive = { .coupon = message.coupon,
					   .user = message.receives[i].user,
					   .batch = message.batch,
					   .index = (int)i };
		PGresult *rows;
		int is_owed;

		database_open(walk);
		rows = store_receive_ask(walk->db, sql_query_receive_outcome, RECEIVE_ARGS_N,
					 &receive);
		is_owed = PQntuples(rows) == 0;
		PQclear(rows);
		if (!is_owed)
			continue;
		receive_format(&receive, text);
		if (list)
			cJSON_AddItemToArray(list, cJSON_CreateString(text));
		else
			printf("  owed: %s\n", text);
		walk->owed++;
	}
}

static int remove_run(struct ctl *ctl)
{
	static struct walk walk = { .is_removal = 1 };
	int as_json = args_has(&ctl->args, "json");
	const struct dead_letter *letter;

	choose_many(&walk, &ctl->args);
	walk.sure = args_has(&ctl->args, "yes");
	walk_begin(&walk, ctl);
	if (walk.sure) {
		database_open(&walk);
		store_by_set(walk.db, ctl);
		store_key_bind(walk.db, ctl, NULL);
	}
	while ((letter = walk_next(&walk)) != NULL) {
		cJSON *owed = as_json ? cJSON_CreateArray() : NULL, *object;

		if (walk.sure)
			redis_open(&walk, letter);
		if (!as_json) {
			printf("%s %" PRId64 ": ", walk.sure ? "removed" : "would remove",
			       letter->number);
			dead_letter_summary_print(letter);
		}
		for (size_t i = 0; i < letter->batches_n && !letter->is_use; i++)
			owed_say(&walk, &letter->batches[i], owed);
		if (as_json) {
			object = dead_letter_json(letter, 0);
			output_bool(object, "removed", walk.sure);
			output_add(object, "owed", owed);
			output_print(object);
		}
		/* Printed before the removal: then no receive vanishes unnamed. */
		fflush(stdout);
		if (!walk.sure)
			continue;
		/*
		 * The outbox changes first: if the command is interrupted in between, it finds the
		 * letter once more.
		 */
		outbox_change(&walk, letter);
		log_fatal_status(CTL_UNKNOWN);
		hold_remove(walk.hold, letter->tag);
	}
	walk_end(&walk);
	found_check(&walk);
	if (!as_json)
		printf("%" PRId64 " message%s %s, with %" PRId64 " receive%s that %s owed\n",
		       walk.chosen, walk.chosen == 1 ? "" : "s",
		       walk.sure ? "removed" : "would be removed", walk.owed,
		       walk.owed == 1 ? "" : "s", walk.owed == 1 ? "was" : "were");
	if (!walk.sure)
		log_fatal("nothing was removed, because --yes is missing");
	return 0;
}

static const struct command dead_remove_command = {
	.name = "dead remove",
	.run = remove_run,
	.argument = "[N|BATCH|DIGEST]",
	.options = OPTIONS(SWITCH("all", "all messages that are in the queue at the start"),
			   OPTION("count", "N", "the N oldest messages"),
			   SWITCH("yes", "remove; without it, only print what would be removed"),
			   KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "remove dead letters",
	.detail = "A receive in the dead-letter queue is still owed to its user: each one that\n"
		  "can be read and has no outcome is named. After the removal it cannot get an\n"
		  "outcome, and its coupon counts it as in flight. The message is removed from\n"
		  "the outbox in Redis, too.",
};

const struct command dead_command = {
	.name = "dead",
	.subcommands = COMMANDS(&dead_list_command, &dead_show_command, &dead_requeue_command,
				&dead_remove_command),
	.summary = "list, show, requeue and remove dead letters",
};

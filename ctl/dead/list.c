/* couponctl dead and dead list: the dead-letter queue and its oldest messages. */
#include "common/rabbit/connection.h"
#include "common/check.h"
#include "ctl/dead/walk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE 20
#define PAGE_MAX 1000

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
	length = dead_queue_length(walk.queue);
	if (!messages && length == 0)
		printf("%s is empty\n", AMQP_DEAD_QUEUE);
	else if (!messages)
		printf("%s has %" PRId64
		       " message%s, the oldest first:\n\n%6s  %-20s %-26s %8s %8s  reason\n",
		       AMQP_DEAD_QUEUE, length, length == 1 ? "" : "s", "number", "coupon", "batch",
		       "receives", "bytes");
	while (dead_walk_step(&walk, &letter) != DEAD_STEP_END) {
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

static const struct command *const dead_commands[] = {
	&dead_list_command, &dead_show_command, &dead_requeue_command, &dead_drop_command, NULL,
};

const struct command dead_command = {
	.name = "dead",
	.subcommands = dead_commands,
	.summary = "list, show, requeue and drop dead letters",
};

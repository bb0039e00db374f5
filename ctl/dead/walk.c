#include "ctl/dead/walk.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/rabbit/connection.h"
#include "common/rabbit/envelope.h"
#include "ctl/dead/refresh.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_EVERY 500

void dead_choice_read(struct dead_choice *choice, const struct ctl *ctl)
{
	const char *text = ctl->args.argument;
	struct ulid batch;

	*choice = (struct dead_choice){ .first = INT64_MAX };
	if (id_parse(text, strlen(text), &choice->number) == 0)
		return;
	choice->number = 0;
	if (ulid_parse(&batch, text, strlen(text)))
		args_fail("\"%s\" is neither a number that couponctl dead list prints nor a batch "
			  "of 26 characters",
			  text);
	ulid_format(&batch, choice->batch);
}

void dead_choice_read_many(struct dead_choice *choice, const struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int all = args_has(args, "all"), some = args_has(args, "limit"),
	    one = args->argument != NULL;

	if (all + some + one != 1)
		args_fail("%s needs one of: a number or a batch, --all, --limit N; see couponctl "
			  "%s --help",
			  args->command->name, args->command->name);
	if (one)
		dead_choice_read(choice, ctl);
	else
		*choice = (struct dead_choice){ .first = args_number(args, "limit", 1, INT64_MAX,
								     INT64_MAX) };
}

void dead_walk_begin(struct dead_walk *walk, const struct ctl *ctl)
{
	walk->seen = walk->chosen = walk->deliveries_most = 0;
	walk->arena = json_arena_new();
	walk->show_progress = isatty(STDERR_FILENO);
	walk->url = ctl->config.amqp_url;
	walk->queue = dead_queue_open(ctl->config.amqp_url);
}

static void progress_print(const struct dead_walk *walk)
{
	if (walk->show_progress && walk->seen > 0 && walk->seen % PROGRESS_EVERY == 0)
		fprintf(stderr, "\rcouponctl: %" PRId64 " of %" PRId64 " looked at", walk->seen,
			dead_queue_length(walk->queue));
}

static void deliveries_note(struct dead_walk *walk, const amqp_message_t *message)
{
	int64_t deliveries = envelope_delivery_count(&message->properties);

	if (deliveries > walk->deliveries_most)
		walk->deliveries_most = deliveries;
}

/* Takes the remaining messages: when all return, their order and numbers stay the same. */
static void rest_take(struct dead_walk *walk)
{
	amqp_message_t message;
	uint64_t tag;

	if (dead_queue_length(walk->queue) > DEAD_ORDER_MAX)
		return;
	while (dead_queue_held(walk->queue) > 0 && walk->seen < dead_queue_length(walk->queue) &&
	       dead_queue_take(walk->queue, &message, &tag)) {
		deliveries_note(walk, &message);
		amqp_destroy_message(&message);
		walk->seen++;
		progress_print(walk);
	}
}

void dead_walk_end(struct dead_walk *walk)
{
	rest_take(walk);
	if (walk->show_progress && walk->seen >= PROGRESS_EVERY)
		fputc('\n', stderr);
	dead_queue_close(walk->queue);
	if (walk->deliveries_most >= DEAD_REFRESH_DELIVERIES)
		dead_refresh(walk->url);
	json_arena_free(walk->arena);
}

static int has_batch(const struct dead_letter *letter, const char *ulid)
{
	for (size_t i = 0; i < letter->batches_n; i++)
		if (strcmp(letter->batches[i].ulid, ulid) == 0)
			return 1;
	return 0;
}

static int is_chosen(const struct dead_choice *choice, const struct dead_letter *letter)
{
	return (!choice->number || choice->number == letter->number) &&
	       (!*choice->batch || has_batch(letter, choice->batch));
}

static int is_over(const struct dead_walk *walk)
{
	return walk->seen >= dead_queue_length(walk->queue) || walk->chosen >= walk->choice.first ||
	       (walk->choice.number && walk->seen >= walk->choice.number);
}

enum dead_step dead_walk_step(struct dead_walk *walk, struct dead_letter *letter)
{
	if (is_over(walk) || !dead_queue_take(walk->queue, &letter->raw, &letter->tag))
		return DEAD_STEP_END;
	deliveries_note(walk, &letter->raw);
	letter->number = ++walk->seen;
	dead_letter_read(letter, walk->arena);
	progress_print(walk);
	if (is_chosen(&walk->choice, letter)) {
		walk->chosen++;
		return DEAD_STEP_CHOSEN;
	}
	dead_letter_fini(letter);
	return DEAD_STEP_PASSED;
}

void dead_walk_check_found(const struct dead_walk *walk)
{
	if (walk->chosen > 0)
		return;
	if (walk->choice.number)
		log_fatal("there is no dead letter %" PRId64 ": %s has %" PRId64,
			  walk->choice.number, AMQP_DEAD_QUEUE, walk->seen);
	if (*walk->choice.batch)
		log_fatal("none of the %" PRId64 " messages in %s is of batch %s", walk->seen,
			  AMQP_DEAD_QUEUE, walk->choice.batch);
}

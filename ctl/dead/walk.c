#include "ctl/dead/walk.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/rabbit/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_EVERY 500
#define REFRESH_DELIVERIES 8 /* of a message: then all are published again */

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
	walk->hold = hold_open(walk->url, AMQP_DEAD_QUEUE, 0,
			       "no queue took a message: start a coupon-worker, which "
			       "declares " AMQP_QUEUE);
}

static void progress_print(const struct dead_walk *walk)
{
	if (walk->show_progress && walk->seen > 0 && walk->seen % PROGRESS_EVERY == 0)
		fprintf(stderr, "\rcouponctl: %" PRId64 " of %" PRId64 " looked at", walk->seen,
			hold_length(walk->hold));
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

	if (hold_length(walk->hold) > HOLD_ORDER_MAX)
		return;
	while (hold_count(walk->hold) > 0 && walk->seen < hold_length(walk->hold) &&
	       hold_take(walk->hold, &message, &tag, 0)) {
		deliveries_note(walk, &message);
		amqp_destroy_message(&message);
		walk->seen++;
		progress_print(walk);
	}
}

static void refresh(const char *url)
{
	struct hold *hold = hold_open(url, AMQP_DEAD_QUEUE, 0, "it does not take a message");
	const char *trouble = NULL;
	amqp_message_t message;
	uint64_t tag;

	for (int64_t n = 0; !trouble && n < hold_length(hold) && hold_take(hold, &message, &tag, 0);
	     n++) {
		hold_copy(hold, tag, AMQP_DEAD_QUEUE, &message);
		amqp_destroy_message(&message);
		if (hold_is_full(hold))
			trouble = hold_confirm(hold);
	}
	if (!trouble)
		trouble = hold_confirm(hold);
	if (trouble)
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, trouble);
	hold_close(hold);
}

void dead_walk_end(struct dead_walk *walk)
{
	rest_take(walk);
	if (walk->show_progress && walk->seen >= PROGRESS_EVERY)
		fputc('\n', stderr);
	hold_close(walk->hold);
	if (walk->deliveries_most >= REFRESH_DELIVERIES)
		refresh(walk->url);
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
	return walk->seen >= hold_length(walk->hold) || walk->chosen >= walk->choice.first ||
	       (walk->choice.number && walk->seen >= walk->choice.number);
}

int dead_walk_next(struct dead_walk *walk, struct dead_letter *letter)
{
	while (!is_over(walk) && hold_take(walk->hold, &letter->raw, &letter->tag, 0)) {
		deliveries_note(walk, &letter->raw);
		letter->number = ++walk->seen;
		dead_letter_read(letter, walk->arena);
		progress_print(walk);
		if (is_chosen(&walk->choice, letter)) {
			walk->chosen++;
			return 1;
		}
		dead_letter_fini(letter);
	}
	return 0;
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

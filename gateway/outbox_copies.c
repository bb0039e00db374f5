#include "gateway/outbox_copies.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdio.h>
#include <stdlib.h>

/* What Redis is asked, or told, of a coupon with unconfirmed batches. */
struct copy_ticket {
	struct outbox_copies *outbox;
	struct copies_coupon *asked;
	struct redis_link *link; /* NULL: none */
	char run_id[REDIS_RUN_ID_SIZE];
	int is_look;
	struct copies_look look;
	enum copies_result result;
};

/* A Redis of others is neither asked nor told: the ticket has no link then. */
static struct copy_ticket *ticket_new(struct outbox_copies *outbox, struct copies_coupon *asked)
{
	struct copy_ticket *ticket = checked(calloc(1, sizeof(*ticket)));

	ticket->outbox = outbox;
	ticket->asked = asked;
	if (presence_may_report(outbox->presence))
		ticket->link = redis_pool_pick(outbox->redis);
	if (ticket->link)
		snprintf(ticket->run_id, sizeof(ticket->run_id), "%s",
			 redis_link_run_id(ticket->link));
	return ticket;
}

static void ticket_end(struct copy_ticket *ticket, int is_replied)
{
	struct copies *copies = ticket->outbox->copies;

	if (ticket->is_look)
		copies_looked(copies, ticket->asked, ticket->run_id,
			      is_replied ? &ticket->look : NULL);
	else
		copies_written(copies, ticket->asked, ticket->result);
	free(ticket);
}

static void on_replicated(void *context, int is_replicated)
{
	struct copy_ticket *ticket = context;

	ticket->look.is_alone = !is_replicated;
	if (!is_replicated)
		ticket->result = COPIES_ALONE;
	ticket_end(ticket, 1);
}

static void ticket_replied(struct copy_ticket *ticket)
{
	if (ticket->outbox->replicas)
		replicas_hold(ticket->outbox->replicas, ticket->run_id,
			      &(struct held){ .done = on_replicated, .context = ticket });
	else
		ticket_end(ticket, 1);
}

static void on_look(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	if (restore_look_take(&ticket->look, reply))
		ticket_end(ticket, 0);
	else
		ticket_replied(ticket);
}

static void look(void *context, struct copies_coupon *asked, int64_t coupon)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { RESTORE_LOOK_WORDS(coupon_key(coupon, COUPON_KEY_COUPON, key)) };
	struct copy_ticket *ticket = ticket_new(context, asked);

	ticket->is_look = 1;
	redis_pool_query_over(ticket->link, RESTORE_LOOK_WORDS_N, argv, on_look, ticket);
}

static void on_written(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	ticket->result = restore_result_take(reply);
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_restore", LOG_S("error", reply->str));
	if (ticket->result == COPIES_WRITTEN && reply->type == REDIS_REPLY_INTEGER)
		metrics_add(METRIC_RESTORED, reply->integer);
	if (ticket->result == COPIES_WRITTEN)
		ticket_replied(ticket);
	else
		ticket_end(ticket, 1);
}

static void write_again(void *context, struct copies_coupon *asked, int64_t coupon,
			const struct copy *const *messages, size_t n)
{
	struct copy_ticket *ticket = ticket_new(context, asked);
	struct restore_command command;

	restore_command_make(&command, coupon, lua_restore, messages, n);
	if (!ticket->link || redis_link_command(ticket->link, command.n, command.words,
						command.lengths, on_written, ticket))
		on_written(ticket, NULL);
}

struct copies *outbox_copies_new(struct outbox_copies *outbox)
{
	const struct copies_port port = {
		.now_ms = clock_monotonic_ms, .look = look, .write = write_again, .context = outbox
	};

	outbox->copies = copies_new(&port);
	return outbox->copies;
}

/*
 * couponctl queue move. Replaces queues that exist with other arguments than the programs declare,
 * while the programs run. Another queue, the helper, is in place of the queue meanwhile:
 *
 *	 1. declare the helper, and bind it as the queue is bound
 *	 2. unbind the queue
 *	 3. move its messages to the helper (drain.c); workers return what they hold, and leave
 *	 4. delete the queue, declare it as it should be, bind it
 *	 5. unbind the helper
 *	 6. move the messages of the helper back, and delete it
 *
 * From 1 to 5 the helper is bound, so what is published is in it even if a program binds the queue
 * again meanwhile; then it is in both, and the second copy is settled as repeated. So 4 deletes
 * nothing that only the queue has. A run that was interrupted anywhere is finished by the next one:
 * a queue that differs begins at 1, another one at 5, and each step may be repeated.
 *
 * The helper of the receive queue is the parking queue, which workers consume: receives are settled
 * without a pause, also after an interruption, and there is no 6. The other helpers exist during a
 * move only.
 */
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/rabbit/topology.h"
#include "ctl/queue/drain.h"
#include "ctl/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define HELPER_SIZE 64
#define CONSUMERS_BACK_MS (RABBIT_LEAVE_MS + 4000)
#define LOOK_US 50000
#define LEAVE_S 60
#define SECONDS_MAX 86400

struct move {
	const struct ctl *ctl;
	struct db *db; /* has the lock */
	amqp_connection_state_t connection;
	const struct rabbit_queue_place *place;
	char helper[HELPER_SIZE];
	int helper_stays; /* it is a queue of the programs */
	int had_consumers;
	int64_t leave_timeout_ms;
	int show_progress;
};

static _Noreturn void rabbit_fatal(const char *queue, const char *error)
{
	log_fatal("RabbitMQ, queue %s: %s. Run the command again", queue, error);
}

/* After each RPC on the connection. */
static void reply_check(const struct move *move, const char *queue)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(amqp_get_rpc_reply(move->connection), error))
		rabbit_fatal(queue, error);
}

/* Fails if another run has the lock, or if the connection that holds it is lost. */
static void lock_check(struct move *move)
{
	if (!db_lock_try(move->db, "queue-move"))
		log_fatal("another couponctl queue move is running");
}

static void queue_bind(const struct move *move, const char *queue)
{
	amqp_queue_bind(move->connection, RABBIT_CHANNEL, amqp_cstring_bytes(queue),
			amqp_cstring_bytes(move->place->exchange),
			amqp_cstring_bytes(move->place->routing_key), amqp_empty_table);
	reply_check(move, queue);
}

static void queue_unbind(const struct move *move, const char *queue)
{
	amqp_queue_unbind(move->connection, RABBIT_CHANNEL, amqp_cstring_bytes(queue),
			  amqp_cstring_bytes(move->place->exchange),
			  amqp_cstring_bytes(move->place->routing_key), amqp_empty_table);
	reply_check(move, queue);
}

static void queue_delete(const struct move *move, const char *queue)
{
	amqp_queue_delete(move->connection, RABBIT_CHANNEL, amqp_cstring_bytes(queue), 0, 0);
	reply_check(move, queue);
}

/* 1 when the queue exists, with its numbers of ready messages and consumers. */
static int queue_find(const struct move *move, const char *queue, int64_t *ready,
		      int64_t *consumers)
{
	char error[RABBIT_ERROR_SIZE];
	int rc = rabbit_connection_queue_read(move->connection, queue, ready, consumers, error);

	if (rc == 0)
		return 1;
	if (rc < 0 || rabbit_channel_reopen(move->connection, 0,
					    clock_monotonic_ms() + 1000 * RABBIT_TIMEOUT_S, error))
		rabbit_fatal(queue, error);
	rabbit_time_restore(move->connection);
	return 0;
}

/* Declares it. 1 when it exists with other arguments, which `error` then names. */
static int queue_declare(const struct move *move, const char *queue, char error[RABBIT_ERROR_SIZE])
{
	int rc = rabbit_queue_declare(move->connection, 0, queue, error);

	if (rc < 0)
		rabbit_fatal(queue, error);
	return rc;
}

static void progress(void *context, int64_t moved)
{
	const struct move *move = context;

	if (move->show_progress)
		fprintf(stderr, "\rcouponctl: %s: %" PRId64 " messages moved", move->place->name,
			moved);
}

/* A program that reconnects binds the queue again. */
static void replace_turn(void *context, int64_t moved)
{
	const struct move *move = context;

	queue_unbind(move, move->place->name);
	progress(context, moved);
}

static int64_t drain(struct move *move, const char *from, const char *to,
		     void (*turn)(void *context, int64_t moved))
{
	int64_t moved = drain_run(&(struct drain){ .ctl = move->ctl,
						   .from = from,
						   .to = to,
						   .leave_timeout_ms = move->leave_timeout_ms,
						   .control = move->connection,
						   .turn = turn,
						   .context = move });

	if (move->show_progress)
		fputc('\n', stderr);
	return moved;
}

/* Steps 1 to 4. */
static void queue_replace(struct move *move)
{
	const char *name = move->place->name;
	char error[RABBIT_ERROR_SIZE];
	int64_t ready, moved;

	queue_find(move, name, &ready, &(int64_t){ 0 });
	if (!move->helper_stays && queue_declare(move, move->helper, error))
		rabbit_fatal(move->helper, error);
	queue_bind(move, move->helper);
	fault_point(FAULT_MOVE_BOUND);
	queue_unbind(move, name);
	fault_point(FAULT_MOVE_UNBOUND);
	moved = drain(move, name, move->helper, replace_turn);
	lock_check(move);
	fault_point(FAULT_MOVE_BEFORE_DELETE);
	queue_delete(move, name);
	fault_point(FAULT_MOVE_DELETED);
	if (queue_declare(move, name, error))
		log_fatal("a program declared %s with other arguments again: %s. Upgrade all "
			  "programs, and run the command again",
			  name, error);
	printf("%s: replaced, %" PRId64 " messages moved\n", name, moved);
}

/* So that what is published is not delayed: workers that have left come back. */
static void consumers_await(const struct move *move)
{
	int64_t until_ms = clock_monotonic_ms() + CONSUMERS_BACK_MS, ready, consumers;

	while (move->had_consumers && clock_monotonic_ms() < until_ms) {
		if (queue_find(move, move->place->name, &ready, &consumers) && consumers > 0)
			return;
		usleep(LOOK_US);
	}
}

/* Steps 5 and 6, and the binding of step 4. */
static void helper_end(struct move *move)
{
	char error[RABBIT_ERROR_SIZE];
	int64_t ready, consumers;

	if (!queue_find(move, move->helper, &ready, &consumers))
		return;
	/* An earlier run may have ended after it deleted the queue. */
	if (queue_declare(move, move->place->name, error))
		rabbit_fatal(move->place->name, error);
	queue_bind(move, move->place->name);
	consumers_await(move);
	fault_point(FAULT_MOVE_REBOUND);
	queue_unbind(move, move->helper);
	if (move->helper_stays)
		return;
	drain(move, move->helper, move->place->name, progress);
	lock_check(move);
	queue_delete(move, move->helper);
}

static struct move move_begin(const struct ctl *ctl, amqp_connection_state_t connection,
			      struct db *db, enum rabbit_queue queue)
{
	struct move move = { .ctl = ctl,
			     .db = db,
			     .connection = connection,
			     .place = rabbit_queue_place(queue),
			     .helper_stays = queue == RABBIT_QUEUE_RECEIVES,
			     .leave_timeout_ms = 1000 * args_number(&ctl->args, "leave-timeout-s",
								    1, SECONDS_MAX, LEAVE_S),
			     .show_progress = isatty(STDERR_FILENO) };

	snprintf(move.helper, sizeof(move.helper), "%s%s",
		 move.helper_stays ? AMQP_PARKED_QUEUE : move.place->name,
		 move.helper_stays ? "" : AMQP_MOVING_SUFFIX);
	return move;
}

static const char *unfinished(struct move *move)
{
	int64_t unused;

	return !move->helper_stays && queue_find(move, move->helper, &unused, &unused)
		       ? "; a move is to be finished"
		       : "";
}

/* Returns whether it is to be replaced. */
static int move_look(struct move *move, char error[RABBIT_ERROR_SIZE])
{
	int64_t ready = 0, consumers = 0;

	if (!queue_find(move, move->place->name, &ready, &consumers)) {
		printf("%s: does not exist%s\n", move->place->name, unfinished(move));
		return 0;
	}
	move->had_consumers = consumers > 0;
	if (queue_declare(move, move->place->name, error)) {
		printf("%s: is to be replaced, %" PRId64 " messages ready: %s\n", move->place->name,
		       ready, error);
		return 1;
	}
	printf("%s: as it should be, %" PRId64 " messages ready%s\n", move->place->name, ready,
	       unfinished(move));
	return 0;
}

static int move_run(struct ctl *ctl)
{
	static const enum rabbit_queue order[] = { RABBIT_QUEUE_PARKED, RABBIT_QUEUE_RECEIVES,
						   RABBIT_QUEUE_DEAD };
	int is_dry = args_has(&ctl->args, "dry-run");
	struct db *db = is_dry ? NULL : store_postgres_open(ctl);
	char error[RABBIT_ERROR_SIZE];
	amqp_connection_state_t connection;

	connection = rabbit_connection_open(ctl->config.amqp_url, 0, error);
	if (!connection)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct move move = move_begin(ctl, connection, db, order[i]);
		int differs;

		if (!is_dry)
			lock_check(&move);
		differs = move_look(&move, error);
		fflush(stdout);
		if (!is_dry && differs)
			queue_replace(&move);
		if (!is_dry)
			helper_end(&move);
	}
	rabbit_connection_close(connection);
	db_close(db);
	return 0;
}

static const struct option move_options[] = {
	SWITCH("dry-run", "print what is to be done, and change nothing"),
	OPTION("leave-timeout-s", "S",
	       "how long to wait for consumers that do not leave; 1 to 86400, default 60"),
	OPTIONS_END,
};

static const struct command queue_move_command = {
	.name = "queue move",
	.run = move_run,
	.options = move_options,
	.summary = "replace queues that exist with other arguments than the programs declare",
	.detail = "Such a queue is reported as queue_differs, for instance after an upgrade from "
		  "RabbitMQ 3 to 4. Gateways and\n"
		  "workers go on. No message is lost: each leaves its queue only after RabbitMQ "
		  "has confirmed a copy, and a\n"
		  "receive is settled once. After an interruption run it again; it finishes what "
		  "was begun. Upgrade all programs\n"
		  "first.",
};

static const struct command *const queue_commands[] = { &queue_move_command, NULL };

const struct command queue_command = {
	.name = "queue",
	.subcommands = queue_commands,
	.summary = "replace queues that differ from what the programs declare",
};

/*
 * couponctl queue move: replaces queues that exist with other arguments than the programs declare,
 * while the programs run. Another queue, the helper, takes the place of the queue meanwhile:
 *
 *	 1. declare the helper, and bind it as the queue is bound
 *	 2. unbind the queue
 *	 3. move its messages to the helper; workers return what they hold, and leave
 *	 4. delete the queue, declare it as it should be, bind it
 *	 5. unbind the helper
 *	 6. move the messages of the helper back, and delete it
 *
 * From step 1 to 5 the helper is bound, so it has what is published even if a program binds the
 * queue again meanwhile; then both have it, and the second copy is settled as repeated. So step 4
 * deletes nothing that only the queue has. The next run finishes one that was interrupted anywhere:
 * a queue that differs begins at step 1, another one at step 5, and each step may be repeated.
 *
 * The helper of the receive queue is the parking queue, which workers consume: receives are settled
 * without a pause, also after an interruption, and there is no step 6. The other helpers exist only
 * during a move.
 *
 * RabbitMQ counts a consumer until it has acked or returned all that it was delivered, also after
 * it was cancelled. So a queue that is empty and has one consumer, this one, has no message that
 * another program holds.
 */
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/rabbit/topology.h"
#include "ctl/output.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define HELPER_SIZE 64
#define CONSUMERS_BACK_MS (RABBIT_LEAVE_MS + 4000)
#define LOOK_US 50000
#define LEAVE_S 60
#define SECONDS_MAX 86400
#define TAKE_WAIT_US 50000
#define LOOK_EVERY_MS 100
#define QUIET_MS 1000      /* a queue is drained after so long without messages and consumers */
#define LEAVE_EVERY_MS 300 /* a consumer that leaves takes less */
#define LEAVE_TTL_MS "10000"

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

	/* While a queue is drained. */
	struct hold *hold;
	int64_t leave_since_ms; /* first request to other consumers to leave; 0: there are none */
	int64_t leave_sent_ms;  /* last request */
};

static _Noreturn void rabbit_fatal(const char *queue, const char *error)
{
	log_fatal_as(CTL_STOPPED, "RabbitMQ, queue %s: %s. Run the command again", queue, error);
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
		log_fatal_as(CTL_AWAY, "another couponctl queue move is running");
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

/* Declares it. 1 when it exists with other arguments, which `error` then names. */
static int queue_declare(const struct move *move, const char *queue, char error[RABBIT_ERROR_SIZE])
{
	int rc = rabbit_queue_declare(move->connection, 0, queue, error);

	if (rc < 0)
		rabbit_fatal(queue, error);
	return rc;
}

static void trouble_check(const struct move *move, const char *trouble)
{
	if (trouble)
		log_fatal_as(CTL_STOPPED,
			     "%s; what was not confirmed is still in %s. Run the command again",
			     trouble, move->hold->queue);
}

/*
 * Whether the queue that is drained is empty and has no other consumer. If it is only empty, the
 * other consumers are requested to leave.
 */
static int is_empty(struct move *move, int64_t now_ms)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_TYPE_FLAG |
							 AMQP_BASIC_EXPIRATION_FLAG,
					       .type = amqp_cstring_bytes(RABBIT_LEAVE_TYPE),
					       .expiration = amqp_cstring_bytes(LEAVE_TTL_MS) };
	const char *from = move->hold->queue;
	int64_t ready, consumers;

	if (!rabbit_queue_find(move->connection, from, &ready, &consumers))
		rabbit_fatal(from, "the queue no longer exists");
	if (consumers <= 1) {
		move->leave_since_ms = 0;
		return ready == 0;
	}
	if (ready > 0)
		return 0;
	if (move->leave_since_ms && now_ms - move->leave_since_ms >= move->leave_timeout_ms)
		log_fatal_as(CTL_STOPPED,
			     "%" PRId64 " other consumers of %s do not leave: programs of another "
			     "version, or other clients. End them, and run the command again",
			     consumers - 1, from);
	if (now_ms - move->leave_sent_ms < LEAVE_EVERY_MS)
		return 0;
	move->leave_sent_ms = now_ms;
	if (!move->leave_since_ms)
		move->leave_since_ms = now_ms;
	/*
	 * One message requests one consumer to leave. RabbitMQ delivers round robin: with one other
	 * consumer about half of them arrive here.
	 */
	for (int64_t i = 0; i < 2 * (consumers - 1) && !hold_is_full(move->hold); i++)
		hold_send(move->hold, 0, "", from, &properties, amqp_empty_bytes);
	trouble_check(move, hold_confirm(move->hold));
	return 0;
}

/*
 * Moves the messages of a queue to another one, until nobody holds any of its messages. Returns how
 * many were moved. `unbinds`: a program that reconnects binds the queue again.
 */
static int64_t drain(struct move *move, const char *from, const char *to, int unbinds)
{
	int64_t now_ms = clock_monotonic_ms(), quiet_since_ms = now_ms, looked_ms = now_ms, moved;

	move->leave_since_ms = move->leave_sent_ms = 0;
	move->hold = hold_open(move->ctl->config.amqp_url, from, 1,
			       "the queue that is to receive the messages no longer exists");
	while (now_ms - quiet_since_ms < QUIET_MS) {
		const char *trouble;
		int n = hold_copy_round(move->hold, to, INT64_MAX, TAKE_WAIT_US, &trouble);

		trouble_check(move, trouble);
		now_ms = clock_monotonic_ms();
		if (n > 0)
			quiet_since_ms = now_ms;
		if (now_ms - looked_ms < LOOK_EVERY_MS)
			continue;
		looked_ms = now_ms;
		if (unbinds)
			queue_unbind(move, from);
		if (move->show_progress)
			fprintf(stderr, "\rcouponctl: %s: %" PRId64 " messages moved",
				move->place->name, move->hold->moved);
		if (!is_empty(move, now_ms))
			quiet_since_ms = now_ms;
	}
	moved = move->hold->moved;
	hold_close(move->hold);
	if (move->show_progress)
		fputc('\n', stderr);
	return moved;
}

/* `state`: right, differs, absent or replaced. */
static void queue_say(const struct move *move, const char *state, int64_t messages,
		      const char *template, const char *why)
{
	cJSON *object = output_object();

	output_text(object, "queue", move->place->name);
	output_text(object, "state", state);
	output_number(object, "messages", messages);
	output_text(object, "why", why);
	output_say(object, template, args_has(&move->ctl->args, "json"));
}

/* Steps 1 to 4. */
static void queue_replace(struct move *move)
{
	const char *name = move->place->name;
	char error[RABBIT_ERROR_SIZE];
	int64_t moved;

	if (!move->helper_stays && queue_declare(move, move->helper, error))
		rabbit_fatal(move->helper, error);
	queue_bind(move, move->helper);
	fault_point(FAULT_MOVE_BOUND);
	queue_unbind(move, name);
	fault_point(FAULT_MOVE_UNBOUND);
	moved = drain(move, name, move->helper, 1);
	lock_check(move);
	fault_point(FAULT_MOVE_BEFORE_DELETE);
	queue_delete(move, name);
	fault_point(FAULT_MOVE_DELETED);
	if (queue_declare(move, name, error))
		log_fatal("a program declared %s with other arguments again: %s. Upgrade all "
			  "programs, and run the command again",
			  name, error);
	queue_say(move, "replaced", moved, "{queue}: replaced, {messages} messages moved\n", NULL);
}

/* Steps 5 and 6, and the binding of step 4. */
static void helper_end(struct move *move)
{
	char error[RABBIT_ERROR_SIZE];
	int64_t ready, consumers, until_ms;

	if (!rabbit_queue_find(move->connection, move->helper, &ready, &consumers))
		return;
	/* An earlier run may have ended after it deleted the queue. */
	if (queue_declare(move, move->place->name, error))
		rabbit_fatal(move->place->name, error);
	queue_bind(move, move->place->name);

	/* Waits for the workers that have left, so that what is published is not delayed. */
	until_ms = clock_monotonic_ms() + CONSUMERS_BACK_MS;
	while (move->had_consumers && clock_monotonic_ms() < until_ms) {
		if (rabbit_queue_find(move->connection, move->place->name, &ready, &consumers) &&
		    consumers > 0)
			break;
		usleep(LOOK_US);
	}
	fault_point(FAULT_MOVE_REBOUND);
	queue_unbind(move, move->helper);
	if (move->helper_stays)
		return;
	drain(move, move->helper, move->place->name, 0);
	lock_check(move);
	queue_delete(move, move->helper);
}

static int move_run(struct ctl *ctl)
{
	static const enum rabbit_queue order[] = { RABBIT_QUEUE_PARKED, RABBIT_QUEUE_RECEIVES,
						   RABBIT_QUEUE_USES, RABBIT_QUEUE_DEAD };
	int is_dry = args_has(&ctl->args, "dry-run");
	int64_t leave_timeout_s = args_number(&ctl->args, "leave-timeout-s", 1, SECONDS_MAX,
					      LEAVE_S);
	struct db *db = is_dry ? NULL : store_postgres_open(ctl);
	amqp_connection_state_t connection = rabbit_open(ctl->config.amqp_url);
	char error[RABBIT_ERROR_SIZE];

	if (db)
		store_by_set(db, ctl);
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		int stays = order[i] == RABBIT_QUEUE_RECEIVES, found, differs;
		int64_t ready, consumers, unused;
		const char *why = NULL;
		struct move move = { .ctl = ctl,
				     .db = db,
				     .connection = connection,
				     .place = &rabbit_queue_places[order[i]],
				     .helper_stays = stays,
				     .leave_timeout_ms = 1000 * leave_timeout_s,
				     .show_progress = isatty(STDERR_FILENO) };

		snprintf(move.helper, sizeof(move.helper), "%s%s",
			 stays ? AMQP_PARKED_QUEUE : move.place->name,
			 stays ? "" : AMQP_MOVING_SUFFIX);

		if (!is_dry)
			lock_check(&move);
		found = rabbit_queue_find(connection, move.place->name, &ready, &consumers);
		move.had_consumers = consumers > 0;
		differs = found && queue_declare(&move, move.place->name, error);
		if (differs)
			why = error;
		else if (!stays && rabbit_queue_find(connection, move.helper, &unused, &unused))
			why = "a move is to be finished";
		queue_say(&move,
			  differs ? "differs"
			  : found ? "right"
				  : "absent",
			  ready,
			  differs ? "{queue}: is to be replaced, {messages} messages ready: {why}\n"
			  : found ? "{queue}: as it should be, {messages} messages ready[why ; "
				    "{why}]\n"
				  : "{queue}: does not exist[why ; {why}]\n",
			  why);
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

static const struct command queue_move_command = {
	.name = "queue move",
	.run = move_run,
	.options = OPTIONS(
		SWITCH("dry-run", "print what would be done, and change nothing"), BY_OPTION,
		OPTION("leave-timeout-s", "S",
		       "how long to wait for consumers that do not leave, 1 to 86400 s; default "
		       "60")),
	.summary = "replace queues that exist with other arguments than the programs declare",
	.detail =
		"Gateways and workers report such a queue as queue_differs, for instance after an\n"
		"upgrade from RabbitMQ 3 to 4, and go on. No message is lost: each leaves its\n"
		"queue only after RabbitMQ has confirmed a copy, and a receive is settled once.\n"
		"After an interruption run the command again: it finishes what was begun. Upgrade\n"
		"all programs first.",
};

const struct command queue_command = {
	.name = "queue",
	.subcommands = COMMANDS(&queue_move_command),
	.summary = "replace queues that differ from what the programs declare",
};

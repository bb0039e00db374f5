/*
 * Uses of receives: what orders do.
 *
 *	use() ──COMMIT──▶ Redis has the records and the number ──▶ reply, ack
 *
 * A use is answered, and its message acked, when both PostgreSQL and Redis have what it has
 * changed: either of them may be lost. Until then RabbitMQ has the message, and a copy of it
 * changes nothing. The calls to Redis block, each for at most REDIS_CLIENT_TIMEOUT_MS; while Redis
 * cannot be reached, the transaction stays as it is, and no other begins.
 */

#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/use.h"
#include "common/program/program.h"
#include "common/rabbit/topology.h"
#include "common/redis/redis_client.h"
#include "embed.h"
#include "worker/settler.h"

#include <stdlib.h>
#include <string.h>

#define PREFETCH 1000       /* messages, unacked */
#define TRANSACTION_MAX 512 /* uses in one transaction */
#define RECORDS_MAX 1000    /* of one call of lua/uses.lua */
#define STALE "this PostgreSQL server was started before another one that the worker has met since"

/* The arguments of the statement. */
enum {
	ACTION,
	ORDER,
	KEY,
	BY,
	TTL_S,
	AMOUNT,
	CURRENCY,
	REASON,
	OP,
	COUPON,
	USER,
	BATCH,
	IDX,
	TRACE,
	ARGUMENTS
};

static const enum postgres_type types[ARGUMENTS] = {
	[ACTION] = POSTGRES_TEXT,   [ORDER] = POSTGRES_TEXT,  [KEY] = POSTGRES_TEXT,
	[BY] = POSTGRES_TEXT,       [TTL_S] = POSTGRES_INT4,  [AMOUNT] = POSTGRES_INT8,
	[CURRENCY] = POSTGRES_TEXT, [REASON] = POSTGRES_TEXT, [OP] = POSTGRES_INT4,
	[COUPON] = POSTGRES_INT8,   [USER] = POSTGRES_TEXT,   [BATCH] = POSTGRES_UUID,
	[IDX] = POSTGRES_INT2,      [TRACE] = POSTGRES_TEXT,
};

/* The columns of its rows. */
enum {
	ROW_OP,
	ROW_RESULT,
	ROW_COUPON,
	ROW_USER,
	ROW_BATCH,
	ROW_IDX,
	ROW_UNTIL_MS,
	ROW_AMOUNT_OFF,
	ROW_CURRENCY,
	ROW_NOW,
	ROW_NOW_IS_OWN,
	ROW_NOW_UNTIL_MS,
	ROW_RECORD
};

struct work_uses {
	struct redis_client *redis;
	char keep_ms[NUMBER_SIZE], keep_bytes[NUMBER_SIZE];
	struct postgres_array arrays[ARGUMENTS];
	int64_t announced_ms; /* when the session was connected that is announced */
};

static void redis_failed(enum redis_failure failure, const char *why)
{
	(void)failure;
	log_warn("uses_failed", LOG_S("why", why));
}

static void uses_open(struct settler *settler, const struct config *config)
{
	struct work_uses *uses = checked(calloc(1, sizeof(*uses)));

	uses->redis = redis_client_new(config->redis_url, redis_failed);
	number_text(USE_KEEP_S * 1000, uses->keep_ms);
	number_text(config->keep_uses_bytes, uses->keep_bytes);
	for (int i = 0; i < ARGUMENTS; i++)
		postgres_array_init(&uses->arrays[i], types[i]);
	settler->state = uses;
	settler->prefetch = PREFETCH;
	settler->transaction_receives_max = TRANSACTION_MAX;
	/* What is put off stays here: uses have no parking queue. */
	settler->settlement = settlement_new(envelope_free, put_off_log, PREFETCH, 0);
}

static void uses_close(void *state)
{
	struct work_uses *uses = state;

	for (int i = 0; i < ARGUMENTS; i++)
		postgres_array_fini(&uses->arrays[i]);
	redis_client_free(uses->redis);
	free(uses);
}

/* lua/uses.lua. Empty: Redis has failed, and may have done it. */
static void redis_add(struct settler *settler, const char *number, size_t n,
		      const char *const *records, char word[REDIS_WORD_SIZE])
{
	static const char *const keys[] = { CHANGES_KEY, CHANGES_USES_KEY };
	struct work_uses *uses = settler->state;
	const struct primary *primary = &settler->primary;
	char server[SERVER_TEXT_SIZE];
	const char *argv[6 + RECORDS_MAX] = {
		primary->installation, server_text(&primary->server, server),
		settler->started,      uses->keep_ms,
		uses->keep_bytes,      number
	};

	*word = '\0';
	for (size_t i = 0; i < n; i++)
		argv[6 + i] = records[i];
	if (redis_client_open(uses->redis) == 0)
		redis_word_take(redis_client_eval(uses->redis, lua_uses, 2, keys, (int)(6 + n),
						  argv),
				word);
}

/* Announces the session; its numbers are compared after that, once more. */
static int uses_may_begin(struct settler *settler, int64_t now_ms)
{
	struct work_uses *uses = settler->state;
	int64_t since_ms = postgres_since_ms(settler->postgres);
	char word[REDIS_WORD_SIZE];

	if (uses->announced_ms == since_ms)
		return 1;
	redis_add(settler, "", 0, NULL, word);
	if (strcmp(word, "ok") == 0) {
		uses->announced_ms = since_ms;
		primary_again(&settler->primary);
	} else {
		settler->due_ms = now_ms + backoff_ms(&settler->backoff);
	}
	return 0;
}

static void text_add(struct postgres_array *array, const char *text)
{
	postgres_array_add_text(array, text, strlen(text));
}

/* Adds the uses of the transaction in flight: of each delivery the part that is tried. */
static void uses_send(struct settler *settler, int64_t now_ms)
{
	struct work_uses *uses = settler->state;
	struct postgres_argument arguments[ARGUMENTS];
	struct postgres_array *arrays = uses->arrays;
	int has_traces = 0;

	for (int i = 0; i < ARGUMENTS; i++)
		postgres_array_clear(&arrays[i]);
	for (size_t n = 0; n < settler->settlement->taken_n; n++) {
		const struct delivery *delivery = settler->settlement->taken[n];
		const struct receive *receive = delivery->use_receives;

		for (size_t i = 0; i < delivery->end; i++) {
			const struct use *use = &delivery->uses[i];
			const struct receive *end = receive + use->receives_n;
			const char *trace = delivery_trace(delivery, i);

			if (i < delivery->first) {
				receive = end;
				continue;
			}
			text_add(&arrays[ACTION], use_action_names[use->action]);
			text_add(&arrays[ORDER], use->order);
			text_add(&arrays[KEY], use->key);
			text_add(&arrays[BY], use->by);
			postgres_array_add_number(&arrays[TTL_S], use->ttl_s);
			if (use->amount >= 0)
				postgres_array_add_number(&arrays[AMOUNT], use->amount);
			else
				postgres_array_add_null(&arrays[AMOUNT]);
			text_add(&arrays[CURRENCY], use->currency);
			text_add(&arrays[REASON], use->reason);
			text_add(&arrays[TRACE], trace);
			has_traces |= *trace != '\0';
			for (; receive < end; receive++) {
				postgres_array_add_number(&arrays[OP], (int64_t)arrays[ACTION].n);
				postgres_array_add_number(&arrays[COUPON], receive->coupon);
				postgres_array_add_text(&arrays[USER], receive->user.text,
							receive->user.len);
				if (receive->index == USE_ANY_RECEIVE) {
					postgres_array_add_null(&arrays[BATCH]);
					postgres_array_add_null(&arrays[IDX]);
				} else {
					postgres_array_add_uuid(&arrays[BATCH], &receive->batch);
					postgres_array_add_number(&arrays[IDX], receive->index);
				}
			}
		}
	}
	if (!has_traces)
		postgres_array_clear(&arrays[TRACE]);
	for (int i = 0; i < ARGUMENTS; i++)
		arguments[i] = postgres_array(&arrays[i]);
	settler_send(settler, ARGUMENTS, arguments, now_ms);
	fault_point(FAULT_WORKER_USES_SENT);
}

static int64_t number_or_none(const PGresult *rows, int row, int column)
{
	return PQgetisnull(rows, row, column) ? -1 : number_at(rows, row, column);
}

/*
 * Replies to one message with the rows of its uses, whose first is `op`. Returns the row behind
 * them. Without a reply, if one is not of the form that use() returns.
 */
static int outcomes_reply(struct settler *settler, const struct delivery *delivery,
			  const PGresult *rows, int row, int64_t op)
{
	struct reply *reply = &settler->reply;
	int64_t end = op + (int64_t)delivery_part_size(delivery), at;
	int is_known = 1;

	reply->batch = delivery->batch;
	reply->is_to_uses = 1;
	reply->outcomes_n = 0;
	for (; row < PQntuples(rows); row++) {
		struct use_outcome *outcome = &reply->uses[reply->outcomes_n];
		const char *user = PQgetvalue(rows, row, ROW_USER), *trace;

		at = number_at(rows, row, ROW_OP);
		if (at < op || at >= end)
			break;
		check(reply->outcomes_n < MESSAGE_RECEIVES_MAX);
		*outcome = (struct use_outcome){
			.use = delivery->first + (size_t)(at - op),
			.result = use_result_find(PQgetvalue(rows, row, ROW_RESULT)),
			.receive = { .coupon = number_at(rows, row, ROW_COUPON),
				     .index = USE_ANY_RECEIVE },
			.until_ms = number_or_none(rows, row, ROW_UNTIL_MS),
			.amount_off = number_or_none(rows, row, ROW_AMOUNT_OFF),
			.now = receive_now_find(PQgetvalue(rows, row, ROW_NOW)),
			.now_is_own = *PQgetvalue(rows, row, ROW_NOW_IS_OWN) == 't',
			.now_until_ms = number_or_none(rows, row, ROW_NOW_UNTIL_MS)
		};
		snprintf(outcome->currency, sizeof(outcome->currency), "%s",
			 PQgetvalue(rows, row, ROW_CURRENCY));
		if (outcome->result == USE_RESULTS_N || outcome->now == NOWS_N ||
		    user_id_parse(&outcome->receive.user, user, strlen(user)))
			is_known = 0;
		if (!PQgetisnull(rows, row, ROW_BATCH)) {
			outcome->receive.index = (int)number_at(rows, row, ROW_IDX);
			if (ulid_from_uuid(&outcome->receive.batch,
					   PQgetvalue(rows, row, ROW_BATCH)))
				is_known = 0;
		}

		trace = delivery_trace(delivery, outcome->use);
		if (is_known && *trace && outcome->receive.index != USE_ANY_RECEIVE)
			trace_context_log(trace, &outcome->receive,
					  use_result_text(outcome->result));
		reply->outcomes_n++;
	}
	if (is_known)
		settler_reply(settler, delivery);
	else
		log_error("outcome_unreadable", LOG_S("outcome", "of a use"));
	return row;
}

static void uses_committed(struct settler *settler, int64_t now_ms)
{
	const PGresult *rows = postgres_result(settler->postgres);
	const char **records = checked(calloc((size_t)PQntuples(rows) + 1, sizeof(*records)));
	const char *number = "0:0"; /* the transaction has none */
	char word[REDIS_WORD_SIZE] = "ok";
	size_t n = 0;
	int64_t op = 1;
	int row;

	fault_point(FAULT_WORKER_USES_COMMITTED);

	/* Adds the records to the list in Redis. */
	for (row = 0; row < PQntuples(rows); row++) {
		if (PQgetisnull(rows, row, ROW_RECORD))
			continue;
		if (number_at(rows, row, ROW_OP) == 0)
			number = PQgetvalue(rows, row, ROW_RECORD);
		else
			records[n++] = PQgetvalue(rows, row, ROW_RECORD);
	}
	for (size_t at = 0; at < n && strcmp(word, "ok") == 0; at += RECORDS_MAX)
		redis_add(settler, number, n - at < RECORDS_MAX ? n - at : RECORDS_MAX,
			  records + at, word);
	free(records);
	if (strcmp(word, "stale") == 0 || strcmp(word, "other") == 0) {
		postgres_lose(settler->postgres, STALE);
		settler_retry(settler, now_ms);
		return;
	}
	if (strcmp(word, "ok") != 0) {
		settler->due_ms = now_ms + backoff_ms(&settler->backoff);
		return;
	}
	fault_point(FAULT_WORKER_USES_COPIED);
	backoff_reset(&settler->backoff);

	row = 0;
	for (size_t i = 0; i < settler->settlement->taken_n; i++) {
		const struct delivery *delivery = settler->settlement->taken[i];

		row = outcomes_reply(settler, delivery, rows, row, op);
		op += (int64_t)delivery_part_size(delivery);
	}
	fault_point(FAULT_WORKER_USES_ANSWERED);
	metrics_add(METRIC_USES, op - 1);
	settlement_commit(settler->settlement);
}

const struct work work_of_uses = {
	.queues = { AMQP_USE_QUEUE },
	.queues_n = 1,
	.routing_key = AMQP_USE_KEY,
	.application_name = "coupon-worker uses " PROGRAM_VERSION,
	.statement = sql_query_use,
	.open = uses_open,
	.close = uses_close,
	.read = uses_read,
	.may_begin = uses_may_begin,
	.send = uses_send,
	/* The locks need not be those of coupons' rows, which a look would show. */
	.committed = uses_committed,
	/* A dead letter of uses is in no outbox. */
};

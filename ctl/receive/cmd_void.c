/*
 * couponctl void: takes issued receives back. PostgreSQL decides. Then Redis frees what comes back,
 * and remembers that the receive is voided, should PostgreSQL be put back to before it. If Redis
 * cannot be told, the keeper frees what comes back; a void that keeps the slot is told to Redis
 * when void is run again.
 */
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define WHY_BYTES_MAX 500

struct voiding {
	struct ctl *ctl;
	struct db *db;
	struct redis_client *redis;
	char run_id[REDIS_RUN_ID_SIZE]; /* "" if it is not known */
	int not_voided_n, not_in_redis_n;
};

/* VOID_GONE: Redis does not have the coupon any more, and nobody will ask for it. */
enum void_in_redis { VOID_FAILED, VOID_DONE, VOID_GONE };

static void receive_void(struct voiding *voiding, const struct receive *receive)
{
	char ulid[ULID_SIZE], index[NUMBER_SIZE];
	enum void_in_redis in_redis = VOID_FAILED;
	cJSON *object = output_object();
	struct redis_coupon coupon;
	redisReply *reply;
	char text[RECEIVE_SIZE], batch[ULID_UUID_SIZE];
	char coupons[NUMBER_SIZE + 2], batches[ULID_UUID_SIZE + 2], indexes[NUMBER_SIZE + 2];
	PGresult *row = db_ask(voiding->db, sql_query_coupon_void, postgres_number(receive->coupon),
			       postgres_text(ulid_to_uuid(&receive->batch, batch)),
			       postgres_number(receive->index), postgres_text(receive->user.text),
			       postgres_text(args_text(&voiding->ctl->args, "why")));
	const char *result = column_text(row, 0, "result");
	int is_again = strcmp(result, "again") == 0,
	    is_voided = is_again || strcmp(result, "voided") == 0,
	    is_returned = db_is_true(row, 0, "is_returned");

	fault_point(FAULT_VOID_BEFORE_REDIS);
	/* The copy first: it must be noticed if PostgreSQL is put back to before the void. */
	if (is_voided && behind_copy(voiding->db, voiding->redis) == 0) {
		const char *argv[] = { receive->user.text, column_text(row, 0, "slot"),
				       ulid_format(&receive->batch, ulid),
				       number_text(receive->index, index),
				       is_returned ? "void" : "keep" };

		reply = redis_client_coupon_eval(voiding->redis, lua_slot_free, receive->coupon,
						 COUPON_KEYS_SLOT_FREE, 5, argv);
		if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
		    strcmp(reply->element[3]->str, "malformed") != 0)
			in_redis = VOID_DONE;
		else if (redis_coupon_read(voiding->redis, receive->coupon, &coupon) == 0)
			in_redis = VOID_GONE;
		freeReplyObject(reply);
	}
	fault_point(FAULT_VOID_BEFORE_MARK);
	if (in_redis == VOID_DONE && is_returned) {
		/* The keeper need not free the slot. */
		snprintf(coupons, sizeof(coupons), "{%lld}", (long long)receive->coupon);
		snprintf(batches, sizeof(batches), "{%s}", batch);
		snprintf(indexes, sizeof(indexes), "{%d}", receive->index);
		db_do(voiding->db, sql_query_slot_free_done, postgres_text(coupons),
		      postgres_text(batches), postgres_text(indexes),
		      postgres_text(voiding->run_id));
	}
	if (is_voided)
		log_fatal_status(CTL_UNKNOWN);
	voiding->not_voided_n += !is_voided;
	voiding->not_in_redis_n += is_voided && in_redis == VOID_FAILED;
	receive_format(receive, text);
	output_text(object, "receive", text);
	output_text(object, "result", result);
	output_bool(object, "voided", is_voided);
	output_bool(object, "returned", is_voided && is_returned);
	output_bool(object, "in_redis", in_redis == VOID_DONE);
	output_say(
		object,
		is_again    ? "{receive} is voided already: its stock and its slot "
			      "[returned come back][!returned stay taken]\n"
		: is_voided ? "{receive} is voided: its stock and its slot "
			      "[returned come back][!returned stay taken]\n"
		: strcmp(result, "rejected") == 0
			? "{receive} was rejected: there is nothing to void\n"
		: strcmp(result, "late") == 0
			? "{receive} is not issued in Redis yet, try again: nothing was changed\n"
			: "{receive} is not issued: nothing was changed\n",
		args_has(&voiding->ctl->args, "json"));
	PQclear(row);
}

static int void_run(struct ctl *ctl)
{
	struct voiding voiding = { .ctl = ctl };
	struct receive receive;
	int64_t uptime_s;
	PGresult *rows;

	args_bytes(&ctl->args, "why", WHY_BYTES_MAX);
	args_receive(&ctl->args, &receive);
	voiding.db = store_changing_open(ctl, &voiding.redis);
	store_key_bind(voiding.db, ctl, NULL);
	redis_client_process(voiding.redis, voiding.run_id, &uptime_s);
	if (ctl->args.argument) {
		receive_void(&voiding, &receive);
	} else {
		rows = db_ask(voiding.db, sql_query_void_receives, postgres_number(receive.coupon),
			      postgres_text(receive.user.text));
		if (PQntuples(rows) == 0)
			log_fatal_as(CTL_ABSENT, "user %s has no issued receive of coupon %lld",
				     receive.user.text, (long long)receive.coupon);
		for (int row = 0; row < PQntuples(rows); row++) {
			ulid_from_uuid(&receive.batch, column_text(rows, row, "batch"));
			receive.index = (int)column_number(rows, row, "idx");
			receive_void(&voiding, &receive);
		}
		PQclear(rows);
	}
	redis_client_free(voiding.redis);
	db_close(voiding.db);
	if (voiding.not_in_redis_n > 0)
		say_warning("recorded, but Redis could not be updated: a "
			    "keeper will update it, or run this command again");
	if (voiding.not_voided_n > 0)
		return CTL_REFUSED;
	return voiding.not_in_redis_n > 0 ? CTL_NOT_IN_REDIS : CTL_DONE;
}

const struct command void_command = {
	.name = "void",
	.run = void_run,
	.argument = "[RECEIVE]",
	.options = OPTIONS(OPTION("coupon", "ID",
				  "with --user, instead of RECEIVE: every issued receive of the "
				  "user of this coupon"),
			   OPTION("user", "USER", "the user"),
			   OPTION("why", "TEXT", "the reason, which is recorded: 1 to 500 bytes"),
			   KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "take issued receives back",
	.detail = "The command takes a RECEIVE, or --coupon and --user. The terms of the campaign\n"
		  "say whether the stock and the user's slot come back (couponctl create or edit,\n"
		  "--void-returns). The status of the receive is rejected from then on, with the\n"
		  "reason voided. Voiding again changes nothing. A receive that is not issued is\n"
		  "refused.",
};

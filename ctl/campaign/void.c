/*
 * couponctl void: takes issued receives back. PostgreSQL decides; then Redis gives back what comes
 * back, and remembers that the receive is voided, should PostgreSQL be put back to before it. What
 * Redis does not get now it gets from the keeper; it gets what is kept when this is run again.
 */
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES_MAX 500

struct voiding {
	struct ctl *ctl;
	struct db *db;
	struct redis_client *redis;
	int not_voided_n, not_told_n;
};

/* What PostgreSQL says of one receive. */
struct voided {
	char result[16];
	int is_returned;
	int64_t slot;
};

static void why_check(const struct args *args)
{
	const char *why = args_text(args, "why");

	if (why && (!*why || strlen(why) > WHY_BYTES_MAX))
		args_fail("--why is \"%s\": allowed are 1 to %d bytes", why, WHY_BYTES_MAX);
}

static void postgres_void(struct voiding *voiding, const struct receive *receive,
			  struct voided *voided)
{
	char batch[ULID_UUID_SIZE];
	PGresult *row = db_ask(voiding->db, sql_query_coupon_void, postgres_number(receive->coupon),
			       postgres_text(ulid_to_uuid(&receive->batch, batch)),
			       postgres_number(receive->index), postgres_text(receive->user.text),
			       postgres_text(args_text(&voiding->ctl->args, "why")));

	snprintf(voided->result, sizeof(voided->result), "%s", db_text(row, 0, "result"));
	voided->is_returned = db_is_true(row, 0, "is_returned");
	voided->slot = db_int(row, 0, "slot");
	PQclear(row);
}

enum told { TOLD_NOT, TOLD, TOLD_GONE };

/* TOLD_GONE: Redis does not have the coupon any more, and nobody will ask it. */
static enum told redis_void(struct voiding *voiding, const struct receive *receive,
			    const struct voided *voided)
{
	char slot[DB_NUMBER_SIZE], batch[ULID_SIZE], index[DB_NUMBER_SIZE];
	const char *argv[] = { receive->user.text, db_number(voided->slot, slot),
			       ulid_format(&receive->batch, batch),
			       db_number(receive->index, index),
			       voided->is_returned ? "void" : "keep" };
	struct redis_coupon coupon;
	redisReply *reply;
	int told;

	/* First: it must be noticed if PostgreSQL is put back to before the void. */
	if (behind_copy(voiding->db, voiding->redis))
		return TOLD_NOT;
	reply = redis_client_coupon_eval(voiding->redis, lua_release, receive->coupon,
					 COUPON_KEYS_RELEASE, 5, argv);
	told = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
	       strcmp(reply->element[3]->str, "malformed") != 0;
	freeReplyObject(reply);
	if (told)
		return TOLD;
	return redis_coupon_read(voiding->redis, receive->coupon, &coupon) == 0 ? TOLD_GONE
										: TOLD_NOT;
}

/* The keeper need not release it. */
static void released_mark(struct voiding *voiding, const struct receive *receive)
{
	struct postgres_array coupons = { .type = POSTGRES_INT8 },
			      batches = { .type = POSTGRES_UUID },
			      indexes = { .type = POSTGRES_INT2 };

	postgres_array_add_number(&coupons, receive->coupon);
	postgres_array_add_uuid(&batches, &receive->batch);
	postgres_array_add_number(&indexes, receive->index);
	db_do(voiding->db, sql_query_release_done, postgres_array(&coupons),
	      postgres_array(&batches), postgres_array(&indexes));
	postgres_array_fini(&coupons);
	postgres_array_fini(&batches);
	postgres_array_fini(&indexes);
}

static void result_print(const struct voiding *voiding, const char *receive,
			 const struct voided *voided, int is_told)
{
	int is_voided = strcmp(voided->result, "voided") == 0 ||
			strcmp(voided->result, "again") == 0;
	cJSON *object;

	if (args_has(&voiding->ctl->args, "json")) {
		object = output_object();
		output_text(object, "receive", receive);
		output_text(object, "result", voided->result);
		output_bool(object, "voided", is_voided);
		output_bool(object, "returned", is_voided && voided->is_returned);
		output_bool(object, "in_redis", is_told);
		output_print(object);
	} else if (is_voided) {
		printf("%s is voided%s: its stock and its slot %s\n", receive,
		       strcmp(voided->result, "again") == 0 ? " already" : "",
		       voided->is_returned ? "come back" : "stay taken");
	} else if (strcmp(voided->result, "rejected") == 0) {
		printf("%s was rejected: there is nothing to void\n", receive);
	} else {
		printf("%s is not issued%s: nothing was changed\n", receive,
		       strcmp(voided->result, "late") == 0 ? " in Redis yet, try again" : "");
	}
}

static void receive_void(struct voiding *voiding, const struct receive *receive)
{
	char text[RECEIVE_SIZE];
	struct voided voided;
	enum told told = TOLD_NOT;
	int is_voided;

	postgres_void(voiding, receive, &voided);
	is_voided = strcmp(voided.result, "voided") == 0 || strcmp(voided.result, "again") == 0;
	fault_point(FAULT_VOID_BEFORE_REDIS);
	if (is_voided)
		told = redis_void(voiding, receive, &voided);
	fault_point(FAULT_VOID_BEFORE_MARK);
	if (told == TOLD && voided.is_returned)
		released_mark(voiding, receive);
	receive_format(receive, text);
	voiding->not_voided_n += !is_voided;
	voiding->not_told_n += is_voided && told == TOLD_NOT;
	result_print(voiding, text, &voided, told == TOLD);
}

/* Every issued receive of the user. */
static void user_void(struct voiding *voiding, struct receive *receive)
{
	PGresult *rows = db_ask(voiding->db, sql_query_void_receives,
				postgres_number(receive->coupon),
				postgres_text(receive->user.text));

	if (PQntuples(rows) == 0)
		log_fatal("user %s has no issued receive of coupon %lld", receive->user.text,
			  (long long)receive->coupon);
	for (int row = 0; row < PQntuples(rows); row++) {
		ulid_from_uuid(&receive->batch, db_text(rows, row, "batch"));
		receive->index = (int)db_int(rows, row, "idx");
		receive_void(voiding, receive);
	}
	PQclear(rows);
}

static int void_run(struct ctl *ctl)
{
	struct voiding voiding = { .ctl = ctl };
	struct args_receive read;

	why_check(&ctl->args);
	args_receive(&ctl->args, &read);
	voiding.db = store_changing_open(ctl, &voiding.redis);
	if (read.is_given)
		receive_void(&voiding, &read.receive);
	else
		user_void(&voiding, &read.receive);
	redis_client_free(voiding.redis);
	db_close(voiding.db);
	if (voiding.not_told_n > 0)
		fprintf(stderr, "couponctl: warning: recorded, but Redis could not be updated: a "
				"keeper will update it, or run this command again\n");
	if (voiding.not_voided_n > 0)
		return 1;
	return voiding.not_told_n > 0 ? CTL_NOT_IN_REDIS : 0;
}

static const struct option void_options[] = {
	OPTION("coupon", "ID", "with --user: of this coupon"),
	OPTION("user", "USER", "every issued receive of this user"),
	OPTION("why", "TEXT", "for the record, 1 to 500 bytes"),
	BY_OPTION,
	SWITCH("json", "print one JSON object for each receive"),
	OPTIONS_END,
};

const struct command void_command = {
	.name = "void",
	.run = void_run,
	.argument = "[RECEIVE]",
	.options = void_options,
	.summary = "take an issued receive back",
	.detail =
		"Takes a RECEIVE, or --coupon and --user. The terms of the campaign say whether\n"
		"its piece of the stock and its user's slot come back (couponctl create or edit\n"
		"--void-returns). Voiding again changes nothing. Its status is rejected from then\n"
		"on, with the reason voided. Exit status: 0 every receive is voided, 1 one of "
		"them\n"
		"is not issued.",
};
